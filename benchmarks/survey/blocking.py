"""Which calls return while the process is locked, and while it is parked; what the others do when it runs again.

Each call has a park of its own, made by a native thread, so one that blocks delays no other. A second thread counts
time meanwhile: a gap in it means that the blocked call holds the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import parking
from .answers import Case, ask
from .driver import SPIN, Driver

HOLD = 0.3
"""Seconds for which the process stays locked or parked after the call began."""
Call = Callable[[], object]


class _Ticker:
    """A thread that notes the longest time in which it could not run."""

    def __init__(self) -> None:
        self.longest, self._on = 0.0, True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while self._on:
            time.sleep(0.005)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now

    def stop(self) -> float:
        """Return the longest gap in seconds."""
        self._on = False
        self._thread.join()
        return self.longest


def probe(driver: Driver, call: Call, *, only_lock: bool) -> object:
    """Make a call in a thread of its own while the process is locked or parked."""
    answer: dict[str, Any] = {}
    go = threading.Event()

    def caller() -> None:
        driver.use()
        go.wait()
        began = time.monotonic()
        try:
            answer["result"] = call()
        except Exception as error:
            answer["result"] = f"{type(error).__name__}: {error}"[:200]
        answer["seconds"] = round(time.monotonic() - began, 4)

    thread = threading.Thread(target=caller, daemon=True)
    thread.start()
    time.sleep(0.02)
    ticker = _Ticker()
    park = parking.start(HOLD, only_lock=only_lock)
    reached = park.wait(parking.LOCKED if only_lock else parking.PARKED)
    go.set()
    report = park.finish(early=False)
    thread.join(10)
    gap = ticker.stop()
    answer.setdefault("result", "never returned")
    codes = [report[name]["code"] for name in parking.STEPS if name in report]
    blocked = answer.get("seconds", HOLD) >= 0.6 * HOLD
    return {"blocked": blocked, **answer, "gap": round(gap, 3), "reached": reached, "codes": codes}


def _driver_calls(driver: Driver) -> Mapping[str, Call]:
    """Return calls of the driver; what they need is made now."""
    number, value, size, pointer = c_int(), c_uint64(), c_size_t(), c_void_p()
    address, doomed = driver.allocate(2**20), driver.allocate(2**20)
    event, stream, text = c_void_p(), c_void_p(), ctypes.create_string_buffer(100)
    driver.need("cuEventCreate", byref(event), 0)
    driver.need("cuStreamCreate", byref(stream), 1)
    driver.need("cuEventRecord", event, stream)
    driver.need("cuStreamSynchronize", stream)
    host = (c_uint * 256)()
    pinned = c_void_p()
    driver.need("cuMemAllocHost_v2", byref(pinned), c_size_t(4096))
    driver.spin(0)
    driver.need("cuCtxSynchronize")

    def of(name: str, *arguments: Any) -> Call:
        return functools.partial(driver.call, name, *arguments)

    def release() -> int:
        driver.call("cuDevicePrimaryCtxRetain", byref(pointer), driver.device)
        return driver.call("cuDevicePrimaryCtxRelease_v2", driver.device)

    return {
        "cuDriverGetVersion": of("cuDriverGetVersion", byref(number)),
        "cuGetErrorString": of("cuGetErrorString", 2, byref(pointer)),
        "cuGetErrorName": of("cuGetErrorName", 2, byref(pointer)),
        "cuGetProcAddress": of("cuGetProcAddress_v2", b"cuMemAlloc", byref(pointer), 12000, value, None),
        "cuGetExportTable": of("cuGetExportTable", byref(pointer), ctypes.create_string_buffer(16)),
        "cuInit": of("cuInit", 0),
        "cuCtxGetCurrent": of("cuCtxGetCurrent", byref(pointer)),
        "cuCtxSetCurrent": of("cuCtxSetCurrent", driver.context),
        "cuCtxPushCurrent": of("cuCtxPushCurrent_v2", driver.context),
        "cuCtxGetDevice": of("cuCtxGetDevice", byref(number)),
        "cuCtxGetApiVersion": of("cuCtxGetApiVersion", driver.context, byref(number)),
        "cuCtxGetLimit": of("cuCtxGetLimit", byref(size), 0),
        "cuCtxGetStreamPriorityRange": of("cuCtxGetStreamPriorityRange", byref(number), byref(number)),
        "cuCtxSynchronize": of("cuCtxSynchronize"),
        "cuDevicePrimaryCtxGetState": of("cuDevicePrimaryCtxGetState", driver.device, byref(number), byref(number)),
        "cuDevicePrimaryCtxRetain and Release": release,
        "cuDeviceGetCount": of("cuDeviceGetCount", byref(number)),
        "cuDeviceGet": of("cuDeviceGet", byref(number), 0),
        "cuDeviceGetName": of("cuDeviceGetName", text, 100, driver.device),
        "cuDeviceGetUuid": of("cuDeviceGetUuid_v2", text, driver.device),
        "cuDeviceGetAttribute": of("cuDeviceGetAttribute", byref(number), 16, driver.device),
        "cuDeviceGetPCIBusId": of("cuDeviceGetPCIBusId", text, 100, driver.device),
        "cuDeviceTotalMem": of("cuDeviceTotalMem_v2", byref(size), driver.device),
        "cuPointerGetAttribute": of("cuPointerGetAttribute", byref(value), 2, address),
        "cuMemGetAddressRange": of("cuMemGetAddressRange_v2", byref(value), byref(size), address),
        "cuMemGetInfo": of("cuMemGetInfo_v2", byref(size), byref(size)),
        "cuMemHostGetFlags": of("cuMemHostGetFlags", byref(number), pinned),
        "cuEventQuery": of("cuEventQuery", event),
        "cuEventSynchronize": of("cuEventSynchronize", event),
        "cuEventRecord": of("cuEventRecord", event, stream),
        "cuEventCreate": of("cuEventCreate", byref(c_void_p()), 0),
        "cuStreamQuery": of("cuStreamQuery", stream),
        "cuStreamIsCapturing": of("cuStreamIsCapturing", stream, byref(number)),
        "cuStreamGetCtx": of("cuStreamGetCtx", stream, byref(pointer)),
        "cuStreamGetPriority": of("cuStreamGetPriority", stream, byref(number)),
        "cuStreamSynchronize": of("cuStreamSynchronize", stream),
        "cuStreamCreate": of("cuStreamCreate", byref(c_void_p()), 1),
        "cuMemAllocHost": of("cuMemAllocHost_v2", byref(c_void_p()), c_size_t(4096)),
        "cuMemHostRegister": of("cuMemHostRegister_v2", host, c_size_t(1024), 0),
        "cuMemAlloc": of("cuMemAlloc_v2", byref(c_uint64()), c_size_t(2**20)),
        "cuMemFree": of("cuMemFree_v2", doomed),
        "cuMemcpyDtoH": of("cuMemcpyDtoH_v2", host, address, c_size_t(1024)),
        "cuMemcpyHtoD": of("cuMemcpyHtoD_v2", address, host, c_size_t(1024)),
        "cuMemsetD32Async": of("cuMemsetD32Async", address, c_uint(1), c_size_t(256), stream),
        "cuLaunchKernel": lambda: driver.spin(0, stream),
        "cuLaunchHostFunc": of("cuLaunchHostFunc", stream, ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None), None),
        "cuModuleLoadData": of("cuModuleLoadData", byref(c_void_p()), SPIN),
        "cuCtxCreate": of("cuCtxCreate_v2", byref(c_void_p()), 0, driver.device),
    }  # fmt: skip


def _runtime_calls() -> Mapping[str, Call]:
    """Return calls of the CUDA runtime that PyTorch has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next((line.split(None, 5)[5] for line in maps if "/libcudart" in line), None)
    if path is None:
        return {}
    library = ctypes.CDLL(path)
    number, size = c_int(), c_size_t()

    def of(name: str, *arguments: Any) -> Call:
        return functools.partial(getattr(library, name), *arguments)

    return {
        "cudaGetDevice": of("cudaGetDevice", byref(number)),
        "cudaGetDeviceCount": of("cudaGetDeviceCount", byref(number)),
        "cudaGetLastError": of("cudaGetLastError"),
        "cudaSetDevice": of("cudaSetDevice", 0),
        "cudaDeviceGetAttribute": of("cudaDeviceGetAttribute", byref(number), 16, 0),
        "cudaRuntimeGetVersion": of("cudaRuntimeGetVersion", byref(number)),
        "cudaDriverGetVersion": of("cudaDriverGetVersion", byref(number)),
        "cudaMemGetInfo": of("cudaMemGetInfo", byref(size), byref(size)),
        "cudaGetDeviceProperties": of("cudaGetDeviceProperties", ctypes.create_string_buffer(4096), 0),
    }


def _nvml_calls(library: ctypes.CDLL, *, first: bool) -> Mapping[str, Call]:
    """Return calls of NVML, which is initialised now, or only by the ``first`` of them."""
    count, device, room = c_uint(), c_void_p(), (c_uint64 * 4096)()

    def initialise() -> list[int]:
        return [library.nvmlInit_v2(), library.nvmlDeviceGetHandleByIndex_v2(0, byref(device))]

    if first:
        return {"nvmlInit": initialise}
    initialise()
    return {
        "nvmlDeviceGetCount": lambda: library.nvmlDeviceGetCount_v2(byref(count)),
        "nvmlDeviceGetMemoryInfo": lambda: library.nvmlDeviceGetMemoryInfo(device, room),
        "nvmlDeviceGetUtilizationRates": lambda: library.nvmlDeviceGetUtilizationRates(device, room),
        "nvmlDeviceGetName": lambda: library.nvmlDeviceGetName(device, room, 96),
        "nvmlSystemGetDriverVersion": lambda: library.nvmlSystemGetDriverVersion(room, 96),
        "nvmlInit again": initialise,
        "nvmlShutdown, nvmlInit": lambda: [library.nvmlShutdown(), *initialise()],
    }


def _torch_calls() -> Mapping[str, Call]:
    """Return things that programs do with PyTorch, also without meaning to."""
    torch: Any = importlib.import_module("torch")
    there = torch.ones(1024, device="cuda")
    kept = [torch.ones(1 << 20, device="cuda")]
    big = [torch.ones(1 << 24, device="cuda")]
    event = torch.cuda.Event()
    event.record()
    torch.cuda.synchronize()

    def give_back() -> None:
        big.clear()
        torch.cuda.empty_cache()

    return {
        "a CPU tensor": lambda: torch.ones(8).sum().item(),
        "torch.cuda.memory_allocated": torch.cuda.memory_allocated,
        "torch.cuda.memory_reserved": torch.cuda.memory_reserved,
        "torch.cuda.is_available": torch.cuda.is_available,
        "torch.cuda.device_count": torch.cuda.device_count,
        "torch.cuda.current_device": torch.cuda.current_device,
        "torch.cuda.get_device_name": torch.cuda.get_device_name,
        "torch.cuda.current_stream": lambda: str(torch.cuda.current_stream()),
        "torch.cuda.mem_get_info": lambda: torch.cuda.mem_get_info()[1],
        "torch.cuda.utilization (NVML)": torch.cuda.utilization,
        "shape, dtype, device of a tensor": lambda: str((there.shape, there.dtype, there.device, there.data_ptr() > 0)),
        "a view of a tensor": lambda: there[:10] is there,
        "the end of a tensor": kept.clear,
        "torch.empty from the cache": lambda: torch.empty(1 << 20, device="cuda").numel(),
        "torch.cuda.Event.query": event.query,
        "tensor + 1": lambda: there + 1 is there,
        "tensor.item": lambda: float(there[0]),
        "repr of a tensor": lambda: len(repr(there)),
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "the end of a large tensor, then empty_cache": give_back,
        "CPU tensor to the GPU": lambda: torch.ones(8).cuda().numel(),
    }


def _cases(chosen: Sequence[str]) -> Mapping[str, Case]:
    driver = Driver()
    driver.start()
    calls = {f"driver:{name}": call for name, call in _driver_calls(driver).items()}
    if not chosen or any(name.startswith("torch:") for name in chosen):
        calls |= {f"torch:{name}": call for name, call in _torch_calls().items()}
        calls |= {f"torch:{name}": call for name, call in _runtime_calls().items()}
    if not chosen or any(name.startswith("nvml") for name in chosen):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        first = any(name.startswith("nvml first:") for name in chosen)
        kind = "nvml first" if first else "nvml"
        calls |= {f"{kind}:{name}": call for name, call in _nvml_calls(library, first=first).items()}
    return {
        f"{kind}:{depth}:{name}": functools.partial(probe, driver, call, only_lock=depth == "locked")
        for depth in ("locked", "parked")
        for kind, _, name, call in ((*label.partition(":"), call) for label, call in calls.items())
    }


if __name__ == "__main__":
    parking.prepare()
    ask(_cases(sys.argv[1:]))
