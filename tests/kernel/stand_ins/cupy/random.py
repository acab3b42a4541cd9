"""Stands for cupy.random."""

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only


def rand(n: int) -> str:
    return f"{n} on {stand_in_cuda.need()[0]}"
