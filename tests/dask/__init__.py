"""Dask's scheduler and workers: real processes, on the GPUs of a real server."""
