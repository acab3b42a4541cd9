"""Processes that run what a notebook sends: the first process of a worker, and its kernels."""
