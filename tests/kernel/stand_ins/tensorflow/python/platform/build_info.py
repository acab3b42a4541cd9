"""Stands for what TensorFlow was built with."""

build_info = {"is_cuda_build": True}
