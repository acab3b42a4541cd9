"""Stands for Numba."""
