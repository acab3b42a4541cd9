"""Cells and functions that run in another process, where the GPUs are."""
