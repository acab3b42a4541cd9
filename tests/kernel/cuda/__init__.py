"""The CUDA guard, and the variables that show GPUs to programs."""
