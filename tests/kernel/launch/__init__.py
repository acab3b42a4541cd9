"""The start of kernels."""
