"""Stands for cupy.cuda."""
# ruff: noqa: F401 - the library has it as an attribute

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

from . import runtime


def is_available() -> bool:
    return bool(stand_in_cuda.devices())
