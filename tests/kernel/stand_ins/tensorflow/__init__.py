"""Stands for TensorFlow with CUDA."""

from . import config
