"""Stands for the driver package of Numba."""
