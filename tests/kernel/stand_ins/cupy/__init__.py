"""Stands for CuPy: every array asks the runtime, without going through a name that could be replaced."""
# ruff: noqa: F401 - the library has it as an attribute

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

from . import cuda, random


def zeros(n: int) -> str:
    return f"{n} on {stand_in_cuda.need()[0]}"


def get_array_module(*_: object) -> str:
    return "numpy"


def is_available() -> bool:
    return bool(stand_in_cuda.devices())
