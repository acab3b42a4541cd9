"""Stands for TensorFlow with CUDA."""
# ruff: noqa: F401 - the library has it as an attribute

from . import config
