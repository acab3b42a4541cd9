"""Stands for cupy.cuda.runtime."""
# ruff: noqa: N802 - names of the library

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only


def getDeviceCount() -> int:
    return len(stand_in_cuda.need())


def memGetInfo() -> tuple[int, int]:
    stand_in_cuda.need()
    return 1, 2


def runtimeGetVersion() -> int:
    return 13000
