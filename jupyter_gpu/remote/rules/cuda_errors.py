"""Pure: errors after which CUDA works no more in the process that got them, whatever it does: *sticky* ones.

CUDA's manual says of each: "This leaves the process in an inconsistent state and any further CUDA work will return the
same error. To continue using CUDA, the process must be terminated and relaunched." Libraries raise classes of their
own for them, which are known by their names here: none of these libraries is imported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

STICKY = {
    226: "CONTAINED",
    700: "ILLEGAL_ADDRESS",
    702: "LAUNCH_TIMEOUT",
    710: "ASSERT",
    714: "HARDWARE_STACK_ERROR",
    715: "ILLEGAL_INSTRUCTION",
    716: "MISALIGNED_ADDRESS",
    717: "INVALID_ADDRESS_SPACE",
    718: "INVALID_PC",
    719: "LAUNCH_FAILED",
    721: "TENSOR_MEMORY_LEAK",
}
"""Codes of CUDA's driver and runtime, with the names that follow ``CUDA_ERROR_``."""
NUMBERS = ("error_code", "status", "code")
"""Attributes in which the classes have the code: PyTorch's, CuPy's, Numba's."""
_CLASSES = frozenset(
    [
        ("torch", "AcceleratorError"),
        ("cupy_backends", "CUDADriverError"),
        ("cupy_backends", "CUDARuntimeError"),
        ("numba", "CudaAPIError"),
        ("cuda", "CUDAError"),  # of cuda.core
        ("jaxlib", "XlaRuntimeError"),
        ("jaxlib", "JaxRuntimeError"),
    ]
)
"""Packages and names of classes. The last three have no code, but its name in their text."""


class Kind(NamedTuple):
    """A class of errors."""

    module: str
    name: str


def is_of_cuda(kinds: Sequence[Kind]) -> bool:
    """Tell whether an error is one of CUDA's, by its class and those that it derives from."""
    return any((kind.module.partition(".")[0], kind.name) in _CLASSES for kind in kinds)


def sticky(numbers: Sequence[object], text: str) -> int | None:
    """Return the code of an error of CUDA's if it is sticky, else None. ``numbers``: what it has for `NUMBERS`."""
    codes = [int(number) for number in numbers if isinstance(number, int) and not isinstance(number, bool)]
    if codes:
        return next((code for code in codes if code in STICKY), None)
    return next((code for code, name in STICKY.items() if re.search(rf"\bCUDA_ERROR_{name}\b", text)), None)
