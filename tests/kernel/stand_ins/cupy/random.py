"""Stands for cupy.random."""

import stand_in_cuda


def rand(n: int) -> str:
    return f"{n} on {stand_in_cuda.need()[0]}"
