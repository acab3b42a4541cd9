"""A small program that uses the driver, for tests: run in a process of its own, by ctypes, like any client.

Failed calls raise an error; `raw` returns its number instead.
"""

import ctypes
from typing import Any

Pointer, Size = ctypes.c_void_p, ctypes.c_size_t
PER_THREAD = Pointer(2)

library = ctypes.CDLL("libcuda.so.1")


class Failed(Exception):
    """A call that returned an error."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} -> {code}")
        self.code = code


def raw(name: str, *arguments: Any) -> int:
    """Call a function; integers are 64 bits wide."""
    wide = [ctypes.c_uint64(value & (2**64 - 1)) if isinstance(value, int) else value for value in arguments]
    return int(getattr(library, name)(*wide))


def call(name: str, *arguments: Any) -> None:
    """Call a function that must succeed."""
    code = raw(name, *arguments)
    if code:
        raise Failed(name, code)


def new(name: str, *arguments: Any) -> Any:
    """Call a function that writes its answer, a pointer or a 64-bit number, to its first argument."""
    made = ctypes.c_uint64(0)
    call(name, ctypes.byref(made), *arguments)
    return made.value


def start(device: int = 0) -> int:
    """Initialize the driver and create a context on a device."""
    call("cuInit", 0)
    return int(new("cuCtxCreate_v2", 0, device))


def kernel(name: str) -> int:
    """Return a kernel of that name."""
    return int(new("cuModuleGetFunction", new("cuModuleLoadData", b"image"), name.encode()))


def launch(function: int, blocks: int = 1, stream: int = 0, form: str = "cuLaunchKernel") -> None:
    """Launch a kernel with one thread in each block."""
    call(form, function, blocks, 1, 1, 1, 1, 1, 0, stream, None, None)


def memory() -> tuple[int, int]:
    """Return the free and the total bytes."""
    free, total = Size(), Size()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
