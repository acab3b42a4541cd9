"""Stands for numba.cuda."""

from .cudadrv import driver


def is_available() -> bool:
    return driver.driver.is_available


def to_device(n: int) -> str:
    return f"{n} on {driver.driver.cuMemAlloc()}"
