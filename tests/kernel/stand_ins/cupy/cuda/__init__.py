"""Stands for cupy.cuda."""

import stand_in_cuda

from . import runtime


def is_available() -> bool:
    return bool(stand_in_cuda.devices())
