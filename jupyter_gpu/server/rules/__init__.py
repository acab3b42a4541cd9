"""Pure: accounts of use, kernels elsewhere, and commands that start kernels."""
