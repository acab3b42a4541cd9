"""The CUDA guard: GPUs that come and go, and the frameworks that look for them."""
