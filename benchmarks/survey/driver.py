"""The driver, by ctypes: no framework stands between a question and its answer."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

SPIN = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 wanted)
{
    .reg .u64 %r<4>;
    .reg .pred %p;
    ld.param.u64 %r0, [wanted];
    mov.u64 %r1, %globaltimer;
again:
    mov.u64 %r2, %globaltimer;
    sub.u64 %r3, %r2, %r1;
    setp.lt.u64 %p, %r3, %r0;
    @%p bra again;
    ret;
}
"""
"""A kernel that keeps one thread of the GPU busy for some nanoseconds."""


class DriverError(Exception):
    """A call of the driver that failed; ``code`` is its result."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class Driver:
    """The calling process's driver. Each call releases the GIL."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.device = c_int()
        self.context = c_void_p()
        self._module, self._spin = c_void_p(), c_void_p()

    def call(self, name: str, *arguments: Any) -> int:
        """Return the result of a function; -2 if this driver has no such function."""
        try:
            function = getattr(self.library, name)
        except AttributeError:
            return -2
        return int(function(*arguments))

    def need(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed. Raises DriverError."""
        if code := self.call(name, *arguments):
            raise DriverError(name, code)

    def start(self) -> None:
        """Initialise the driver and use the primary context of the first GPU in this thread. Raises DriverError."""
        self.need("cuInit", 0)
        self.need("cuDeviceGet", byref(self.device), 0)
        self.need("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.use()

    def use(self) -> None:
        """Use the primary context in the calling thread."""
        self.need("cuCtxSetCurrent", self.context)

    def allocate(self, size: int) -> c_uint64:
        """Return the address of ``size`` bytes on the GPU. Raises DriverError."""
        address = c_uint64()
        self.need("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address

    def fill(self, address: c_uint64, size: int, word: int) -> None:
        """Fill memory of the GPU with a 32-bit word."""
        self.need("cuMemsetD32_v2", address, c_uint(word), c_size_t(size // 4))

    def words(self, address: c_uint64, count: int) -> list[int]:
        """Return the first 32-bit words of memory of the GPU."""
        found = (c_uint * count)()
        self.need("cuMemcpyDtoH_v2", found, address, c_size_t(4 * count))
        return list(found)

    def holds(self, address: c_uint64, size: int, word: int) -> bool:
        """Tell whether memory of the GPU consists of that word."""
        part = min(size, 2**26)
        wanted = word.to_bytes(4, "little") * (part // 4)
        found = ctypes.create_string_buffer(part)
        for at in range(0, size, part):
            self.need("cuMemcpyDtoH_v2", found, c_uint64(address.value + at), c_size_t(part))
            if found.raw != wanted:
                return False
        return True

    def spin(self, seconds: float, stream: c_void_p | None = None) -> int:
        """Launch a kernel that runs for some seconds; return the launch's result."""
        if not self._spin:
            self.need("cuModuleLoadData", byref(self._module), SPIN)
            self.need("cuModuleGetFunction", byref(self._spin), self._module, b"spin")
        wanted = c_uint64(round(seconds * 1e9))
        arguments = (c_void_p * 1)(ctypes.cast(byref(wanted), c_void_p))
        one = (c_uint(1),) * 6
        return self.call("cuLaunchKernel", self._spin, *one, c_uint(0), stream or c_void_p(), arguments, None)

    def uuid(self) -> bytes:
        """Return the 16 bytes of the GPU's UUID."""
        found = (ctypes.c_ubyte * 16)()
        self.need("cuDeviceGetUuid_v2", found, self.device)
        return bytes(found)

    def free_memory(self) -> int:
        """Return the bytes of the GPU that are free."""
        free, total = c_size_t(), c_size_t()
        self.need("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value
