"""Pure: which workers there are, and the words between a program and the processes that it starts for Dask."""
