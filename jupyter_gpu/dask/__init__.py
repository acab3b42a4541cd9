"""`gpu.client()`: a Dask client whose workers are the attached GPUs, one process for each."""
