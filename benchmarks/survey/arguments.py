"""Arguments with which any function of the driver can be called: handles, small numbers, structures."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from .driver import SPIN, Driver
from .signatures import Parameter

_ROOM = 16384
_PAGE = 2 << 20
_LOCATION = struct.pack("<ii", 1, 0)
_HANDLE_PROPERTIES = struct.pack("<ii", 1, 0) + _LOCATION
"""Properties for cuMemCreate and cuMemPoolCreate: pinned memory of the first GPU, not to be shared."""
_NUMBERS = {
    "numDependencies": 0, "numExtensions": 0, "numEdges": 0, "count": 1, "numOps": 1, "sharedMemBytes": 0,
    "bytesize": _PAGE, "size": _PAGE, "bytes": _PAGE, "offset": 0, "alignment": 0, "addr": 0, "flags": 0, "Flags": 0,
    "Width": 16, "WidthInBytes": 64, "Height": 1, "dstPitch": 64, "N": 16, "ElementSizeBytes": 4, "value": 0,
    "numMipmapLevels": 1, "level": 0, "ordinal": 0, "pid": 0, "timeout_ms": 1, "cudaVersion": 13000, "numOptions": 0,
    "numJitOptions": 0, "numLibraryOptions": 0, "blockSize": 32, "dynamicSMemSize": 0, "dynamicSmemSize": 0, "mode": 0,
    "initialRefcount": 1, "srcOffset": 0, "dstOffset": 0, "arrayIndex": 0, "index": 0, "paramIndex": 0, "us": 1,
    "enabled": 1, "isEnabled": 1, "isInteger": 0, "len": 100,
}  # fmt: skip
_TEXTS = {"symbol": b"cuMemAlloc", "name": b"spin", "fname": b"/nonexistent", "path": b"/nonexistent"}
_ATTRIBUTES = {"CUdevice_attribute": 16, "CUpointer_attribute": 2, "CUlimit": 0, "CUfunction_attribute": 4}


class Maker:
    """Makes arguments of calls, and keeps what they point to. All that it makes is new, so a call may destroy it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.kept: list[Any] = []
        self._made: dict[str, int] = {}
        self.symbol = ""
        """The function that arguments are made for."""
        self.nothing = ctypes.cast(ctypes.CDLL(None).getpid, c_void_p).value or 0
        """A function that does nothing, whatever its arguments."""
        bus = ctypes.create_string_buffer(32)
        driver.call("cuDeviceGetPCIBusId", bus, 32, driver.device)
        self._texts = {**_TEXTS, "pciBusId": bus.value}

    def arguments(self, symbol: str, parameters: Sequence[Parameter] | None) -> list[c_uint64]:
        """Return arguments for a function; zeros if its parameters are not known. Raises DriverError."""
        self._made, self.symbol = {}, symbol
        if special := _SPECIAL.get(symbol):
            return [c_uint64(number) for number in special(self)]
        if parameters is None:
            return [c_uint64(0)] * 12
        return [c_uint64(self._one(parameter)) for parameter in parameters]

    def buffer(self, content: bytes = b"", size: int = _ROOM) -> int:
        """Return the address of new memory that begins with the content."""
        kept = ctypes.create_string_buffer(content, max(size, len(content) + 1))
        self.kept.append(kept)
        return ctypes.addressof(kept)

    def handle(self, kind: str) -> int:
        """Return a new handle of a kind, the same one within a call; 0 if none can be made."""
        if kind not in self._made:
            self._made[kind] = _HANDLES[kind](self)
        return self._made[kind]

    def of(self, name: str, *arguments: Any) -> int:
        """Return the handle that a function writes through its first argument; 0 if it fails."""
        found = c_uint64()
        return found.value if self._driver.call(name, byref(found), *arguments) == 0 else 0

    def run(self, name: str, *arguments: Any) -> int:
        """Return the result of a function."""
        return self._driver.call(name, *arguments)

    def context(self) -> int:
        """Return the primary context."""
        return self._driver.context.value or 0

    def _one(self, parameter: Parameter) -> int:
        kind, depth, name, _ = parameter
        if depth:
            return self._pointer(parameter)
        if kind in _HANDLES:
            return self.handle(kind)
        if kind.endswith(("Fn", "Callback")):
            return self.nothing
        if kind in _ATTRIBUTES:
            return _ATTRIBUTES[kind]
        if "attrib" in kind.lower() or "attrid" in kind.lower():
            return 1
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name.startswith(("gridDim", "blockDim", "num", "Num")):
            return 1
        return 1024 if kind == "size_t" else 0

    def _pointer(self, parameter: Parameter) -> int:
        kind, depth, name, constant = parameter
        if kind == "char" and constant and depth == 1:
            return self.buffer(self._texts.get(name, b"spin"))
        if name in ("image", "code", "fatCubin", "data") and constant:
            return self.buffer(SPIN)
        if name == "kernelParams":
            return self.buffer(struct.pack("<Q", self.buffer()))
        if name in ("extra", "options", "jitOptions", "libraryOptions", "optionValues"):
            return 0
        if kind == "CUdeviceptr" and depth == 1 and constant:
            return self.buffer(struct.pack("<Q", self.handle("CUdeviceptr")))
        content = _STRUCTURES.get(kind)
        return self.buffer(content(self) if content else b"")


def _event(maker: Maker) -> int:
    event = maker.of("cuEventCreate", c_uint(0))
    maker.run("cuEventRecord", c_uint64(event), c_uint64(0))
    maker.run("cuEventSynchronize", c_uint64(event))
    return event


def _module(maker: Maker) -> int:
    return maker.of("cuModuleLoadData", SPIN)


def _function(maker: Maker) -> int:
    return maker.of("cuModuleGetFunction", c_uint64(maker.handle("CUmodule")), b"spin")


def _kernel(maker: Maker) -> int:
    return maker.of("cuLibraryGetKernel", c_uint64(maker.handle("CUlibrary")), b"spin")


def _library(maker: Maker) -> int:
    return maker.of("cuLibraryLoadData", SPIN, None, None, c_uint(0), None, None, c_uint(0))


def _node(maker: Maker) -> int:
    symbol, graph, none = maker.symbol, c_uint64(maker.handle("bare graph")), c_size_t(0)
    context = c_uint64(maker.context())
    if "Memset" in symbol:
        return maker.of("cuGraphAddMemsetNode", graph, None, none, c_uint64(maker.buffer(_memset(maker))), context)
    if "Memcpy" in symbol:
        return maker.of("cuGraphAddMemcpyNode", graph, None, none, c_uint64(maker.buffer(_copy3(maker))), context)
    if "Host" in symbol:
        return maker.of("cuGraphAddHostNode", graph, None, none, c_uint64(maker.buffer(_host(maker))))
    if "Event" in symbol:
        record = "cuGraphAddEventWaitNode" if "Wait" in symbol else "cuGraphAddEventRecordNode"
        return maker.of(record, graph, None, none, c_uint64(maker.handle("CUevent")))
    if "Child" in symbol:
        return maker.of("cuGraphAddChildGraphNode", graph, None, none, c_uint64(maker.of("cuGraphCreate", c_uint(0))))
    return maker.of("cuGraphAddKernelNode_v2", graph, None, none, c_uint64(maker.buffer(_kernel_node(maker))))


def _graph(maker: Maker) -> int:
    maker.handle("CUgraphNode")
    return maker.handle("bare graph")


def _executable(maker: Maker) -> int:
    return maker.of("cuGraphInstantiateWithFlags", c_uint64(maker.handle("CUgraph")), c_uint64(0))


def _array(maker: Maker) -> int:
    return maker.of("cuArrayCreate_v2", struct.pack("<QQiI", 64, 4, 0x20, 1))


def _mipmapped(maker: Maker) -> int:
    return maker.of("cuMipmappedArrayCreate", struct.pack("<QQQiII4x", 64, 4, 0, 0x20, 1, 0), c_uint(2))


def _texture(maker: Maker) -> int:
    resource = struct.pack("<i4xQiI Q", 2, maker.handle("CUdeviceptr"), 0x20, 1, 4096).ljust(256, b"\0")
    return maker.of("cuTexObjectCreate", resource, bytes(256), None)


def _user_object(maker: Maker) -> int:
    return maker.of("cuUserObjectCreate", None, c_uint64(maker.nothing), c_uint(1), c_uint(1))


_HANDLES: dict[str, Callable[[Maker], int]] = {
    "CUcontext": lambda maker: maker.context(),
    "CUdeviceptr": lambda maker: maker.of("cuMemAlloc_v2", c_size_t(_PAGE)),
    "CUstream": lambda maker: maker.of("cuStreamCreate", c_uint(1)),
    "CUevent": _event,
    "CUmodule": _module,
    "CUfunction": _function,
    "CUlibrary": _library,
    "CUkernel": _kernel,
    "bare graph": lambda maker: maker.of("cuGraphCreate", c_uint(0)),
    "CUgraph": _graph,
    "CUgraphNode": _node,
    "CUgraphExec": _executable,
    "CUarray": _array,
    "CUmipmappedArray": _mipmapped,
    "CUtexObject": _texture,
    "CUtexref": lambda maker: maker.of("cuTexRefCreate"),
    "CUlinkState": lambda maker: maker.of("cuLinkCreate_v2", c_uint(0), None, None),
    "CUuserObject": _user_object,
    "CUmemoryPool": lambda maker: maker.of("cuMemPoolCreate", _HANDLE_PROPERTIES.ljust(88, b"\0")),
    "CUmemGenericAllocationHandle": lambda maker: maker.of(
        "cuMemCreate", c_size_t(_PAGE), _HANDLE_PROPERTIES.ljust(32, b"\0"), c_uint64(0)
    ),
}


def _kernel_node(maker: Maker) -> bytes:
    function = maker.handle("CUfunction")
    return struct.pack("<Q7I4xQQQQ", function, *(1,) * 6, 0, maker.buffer(struct.pack("<Q", maker.buffer())), 0, 0, 0)


def _memset(maker: Maker) -> bytes:
    return struct.pack("<QQIIQQ", maker.handle("CUdeviceptr"), 0, 0, 4, 16, 1)


def _copy2(maker: Maker) -> bytes:
    there = struct.pack("<QQi4xQQQQ", 0, 0, 2, 0, maker.handle("CUdeviceptr"), 0, 64)
    return there + there + struct.pack("<QQ", 64, 1)


def _copy3(maker: Maker) -> bytes:
    there = struct.pack("<QQQQi4xQQQQQQ", 0, 0, 0, 0, 2, 0, maker.handle("CUdeviceptr"), 0, 0, 64, 1)
    return there + there + struct.pack("<QQQ", 64, 1, 1)


def _host(maker: Maker) -> bytes:
    return struct.pack("<QQ", maker.nothing, 0)


def _launch(maker: Maker) -> bytes:
    return struct.pack("<7I4xQQI4x", *(1,) * 6, 0, maker.handle("CUstream"), 0, 0)


_STRUCTURES: dict[str, Callable[[Maker], bytes]] = {
    "CUDA_KERNEL_NODE_PARAMS": _kernel_node,
    "CUDA_MEMSET_NODE_PARAMS": _memset,
    "CUDA_HOST_NODE_PARAMS": _host,
    "CUDA_MEMCPY2D": _copy2,
    "CUDA_MEMCPY3D": _copy3,
    "CUlaunchConfig": _launch,
    "CUmemAllocationProp": lambda _: _HANDLE_PROPERTIES,
    "CUmemPoolProps": lambda _: _HANDLE_PROPERTIES,
    "CUDA_ARRAY_DESCRIPTOR": lambda _: struct.pack("<QQiI", 64, 4, 0x20, 1),
    "CUDA_ARRAY3D_DESCRIPTOR": lambda _: struct.pack("<QQQiII4x", 64, 4, 0, 0x20, 1, 0),
    "CUmemLocation": lambda _: _LOCATION,
    "CUmemAccessDesc": lambda _: _LOCATION + struct.pack("<i", 3),
}


def _mapped(maker: Maker) -> int:
    place = maker.of("cuMemAddressReserve", c_size_t(_PAGE), c_size_t(0), c_uint64(0), c_uint64(0))
    handle = c_uint64(maker.handle("CUmemGenericAllocationHandle"))
    maker.run("cuMemMap", c_uint64(place), c_size_t(_PAGE), c_size_t(0), handle, c_uint64(0))
    return place


def _map(maker: Maker) -> list[int]:
    place = maker.of("cuMemAddressReserve", c_size_t(_PAGE), c_size_t(0), c_uint64(0), c_uint64(0))
    return [place, _PAGE, 0, maker.handle("CUmemGenericAllocationHandle"), 0]


def _reserved(maker: Maker) -> list[int]:
    return [maker.of("cuMemAddressReserve", c_size_t(_PAGE), c_size_t(0), c_uint64(0), c_uint64(0)), _PAGE]


def _pinned(maker: Maker) -> list[int]:
    return [maker.of("cuMemAllocHost_v2", c_size_t(4096))]


def _registered(maker: Maker) -> list[int]:
    place = maker.buffer(size=3 * 4096) + 4095 & ~4095
    maker.run("cuMemHostRegister_v2", c_uint64(place), c_size_t(4096), c_uint(0))
    return [place]


def _device_pointer(maker: Maker) -> list[int]:
    return [maker.buffer(), _pinned(maker)[0], 0]


def _capturing(maker: Maker) -> int:
    stream = maker.handle("CUstream")
    maker.run("cuStreamBeginCapture_v2", c_uint64(stream), c_int(2))
    return stream


def _from_pool(maker: Maker) -> list[int]:
    stream = maker.handle("CUstream")
    place = maker.of("cuMemAllocAsync", c_size_t(_PAGE), c_uint64(stream))
    maker.run("cuStreamSynchronize", c_uint64(stream))
    return [place, stream]


_SPECIAL: dict[str, Callable[[Maker], list[int]]] = {
    "cuMemMap": _map,
    "cuMemUnmap": lambda maker: [_mapped(maker), _PAGE],
    "cuMemAddressFree": _reserved,
    "cuMemSetAccess": lambda maker: [
        _mapped(maker),
        _PAGE,
        maker.buffer(_LOCATION + struct.pack("<i", 3)),
        1,
    ],
    "cuMemGetAccess": lambda maker: [maker.buffer(), maker.buffer(_LOCATION), _mapped(maker)],
    "cuMemRetainAllocationHandle": lambda maker: [maker.buffer(), _mapped(maker)],
    "cuMemFreeHost": _pinned,
    "cuMemHostUnregister": _registered,
    "cuMemHostRegister_v2": lambda maker: [maker.buffer(size=3 * 4096) + 4095 & ~4095, 4096, 0],
    "cuMemHostGetDevicePointer_v2": _device_pointer,
    "cuMemHostGetFlags": lambda maker: [maker.buffer(), *_pinned(maker)],
    "cuMemFreeAsync": _from_pool,
    "cuStreamEndCapture": lambda maker: [_capturing(maker), maker.buffer()],
    "cuStreamGetCaptureInfo_v2": lambda maker: [_capturing(maker), *(maker.buffer() for _ in range(5))],
    "cuStreamGetCaptureInfo_v3": lambda maker: [_capturing(maker), *(maker.buffer() for _ in range(6))],
    "cuEventElapsedTime_v2": lambda maker: [maker.buffer(), _event(maker), _event(maker)],
    "cuGetExportTable": lambda maker: [maker.buffer(), maker.buffer(bytes(range(16)))],
    "cuGetProcAddress_v2": lambda maker: [maker.buffer(b"cuMemAlloc"), maker.buffer(), 13000, 0, 0],
    "cuModuleGetFunctionCount": lambda maker: [maker.buffer(), maker.handle("CUmodule")],
}
