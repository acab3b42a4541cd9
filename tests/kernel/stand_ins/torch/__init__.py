"""Stands for PyTorch with CUDA."""

from . import _C, cuda


def zeros(n: int, device: str) -> str:
    """The device of the tensor."""
    if device == "cuda":
        cuda._lazy_init()
    return f"{n} on {_C.first() if device == 'cuda' else 'the CPU'}"
