"""Stands for the inner parts of JAX."""
