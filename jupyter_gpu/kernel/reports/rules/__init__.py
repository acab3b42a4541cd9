"""Pure: use of GPUs in words."""
