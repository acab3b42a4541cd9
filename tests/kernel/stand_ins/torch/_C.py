"""Stands for PyTorch's compiled core."""
# ruff: noqa: N802, N999 - names of the library

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only


def _cuda_init() -> None:
    if not stand_in_cuda.devices():
        raise RuntimeError("No CUDA GPUs are available")


def _cuda_getDeviceCount() -> int:
    return len(stand_in_cuda.devices())


def first() -> str:
    return str(stand_in_cuda.need()[0])
