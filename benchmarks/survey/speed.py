"""How long parking takes by size, beside copies of as many bytes; what stays open; memory of the host."""

from __future__ import annotations

import ctypes
import functools
import importlib
import mmap
import os
import time
from collections.abc import Callable
from ctypes import byref, c_size_t
from pathlib import Path
from typing import Any

from . import parking, process
from .answers import Case, ask
from .driver import Driver

GIB = 2**30
SIZES = (1 / 8, 1, 8, 32)
"""GiB on the GPU."""
_CHUNK = 2**27


def _checksum(tensor: Any) -> tuple[int, int]:
    """Return two sums of 64-bit words, one of them weighted by position; both wrap."""
    torch = importlib.import_module("torch")
    plain = weighted = 0
    weights = torch.arange(1, _CHUNK + 1, device="cuda")
    for at in range(0, tensor.numel(), _CHUNK):
        part = tensor[at : at + _CHUNK]
        plain += int(part.sum())
        weighted += (1 + at) * int((part * weights[: part.numel()]).sum())
    return plain % 2**64, weighted % 2**64


def _copies(tensor: Any, *, pinned: bool) -> dict[str, float]:
    """Return GB/s of copies of all its bytes to the host and back, by way of a buffer of 1 GiB at most."""
    torch = importlib.import_module("torch")
    each = min(tensor.numel(), GIB // 8)
    host = torch.empty(each, dtype=tensor.dtype, pin_memory=pinned)
    host.zero_()
    found = {}
    for name in ("out", "in"):
        torch.cuda.synchronize()
        began = time.monotonic()
        for at in range(0, tensor.numel(), each):
            part = tensor[at : at + each]
            buffer = host[: part.numel()]
            if name == "out":
                buffer.copy_(part, non_blocking=True)
            else:
                part.copy_(buffer, non_blocking=True)
                # what is written back last is what was read last: the contents change, so this comes before checksums
        torch.cuda.synchronize()
        found[name] = round(tensor.numel() * 8 / (time.monotonic() - began) / 1e9, 2)
    return found


def size(gib: float) -> object:
    """Park twice with so much memory on the GPU: from a native thread, then from this one."""
    torch = importlib.import_module("torch")
    torch.manual_seed(1)
    tensor = torch.empty(int(gib * GIB) // 8, dtype=torch.int64, device="cuda")
    copies = {"pinned": _copies(tensor, pinned=True), "pageable": _copies(tensor[: GIB // 8], pinned=False)}
    for at in range(0, tensor.numel(), _CHUNK):
        tensor[at : at + _CHUNK].random_()
    before = _checksum(tensor)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    driver = Driver()
    runs = [_native(reserved), _from_python(driver, reserved)]
    after = _checksum(tensor)
    return {
        "gib": gib,
        "reserved": reserved,
        "copies, GB/s": copies,
        "equal": before == after,
        "native thread": runs[0],
        "Python thread": runs[1],
    }


def _now() -> dict[str, Any]:
    pid = os.getpid()
    gpu = process.smi("gpu", "memory.used")
    return {**process.holds(), "memory": process.memory(), "listed": process.listed(pid), "GPU": gpu}


def _speeds(steps: dict[str, float], size: int) -> dict[str, float]:
    return {name: round(size / milliseconds / 1e6, 2) for name, milliseconds in steps.items() if milliseconds > 0}


def _native(size: int) -> object:
    before = _now()
    park = parking.start(30)
    park.wait(parking.PARKED)
    parked = _now()
    report = park.finish()
    speeds = _speeds({name: report.get(name, {}).get("ms", 0) for name in ("checkpoint", "restore")}, size)
    return {"steps": report, "GB/s": speeds, "before": before, "parked": parked, "after": _now()}


def _from_python(driver: Driver, size: int) -> object:
    steps = parking.Steps(driver)
    codes = [steps.lock(), steps.checkpoint()]
    parked = process.memory()
    codes += [steps.restore(), steps.unlock()]
    times = {name: milliseconds for name, _, milliseconds in steps.milliseconds}
    speeds = _speeds({name: times[name] for name in ("checkpoint", "restore")}, size)
    return {"codes": codes, "ms": times, "GB/s": speeds, "memory parked": parked, "memory after": process.memory()}


def pinning() -> object:
    """Return seconds to get 4 GiB of pinned memory, to write as much fresh memory, and to pin that."""
    driver = Driver()
    driver.start()
    size, found, pinned = 4 * GIB, {}, ctypes.c_void_p()

    def took(work: Callable[[], object]) -> float:
        began = time.monotonic()
        work()
        return round(time.monotonic() - began, 3)

    found["cuMemAllocHost"] = took(lambda: driver.need("cuMemAllocHost_v2", byref(pinned), c_size_t(size)))
    found["cuMemFreeHost"] = took(lambda: driver.need("cuMemFreeHost", pinned))
    own = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(own))
    found["fresh memory"] = took(lambda: ctypes.memset(address, 1, size))
    found["written again"] = took(lambda: ctypes.memset(address, 2, size))
    register = functools.partial(driver.need, "cuMemHostRegister_v2", ctypes.c_void_p(address), c_size_t(size), 0)
    found["cuMemHostRegister"] = took(register)
    found["cuMemHostUnregister"] = took(lambda: driver.need("cuMemHostUnregister", ctypes.c_void_p(address)))
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    return {"seconds for 4 GiB": found, "huge pages": pages}


def bare() -> object:
    """Park a process with a context and no framework: threads, the restoring thread, times of five cycles."""
    driver = Driver()
    began = time.monotonic()
    driver.start()
    started = time.monotonic() - began
    address = driver.allocate(2**20)
    driver.fill(address, 2**20, 0xABCD)
    steps = parking.Steps(driver)
    names = {"running": process.threads(), "restoring thread": steps.restore_thread(), "pid": os.getpid()}
    reports = [parking.once() for _ in range(5)]
    good = set(driver.words(address, 64)) == {0xABCD}
    return {"start, s": round(started, 3), "cycles": reports, "equal": good, "threads": names, **process.holds()}


CASES: dict[str, Case] = {
    "bare": bare,
    "pinning": pinning,
    **{f"{gib} GiB": functools.partial(size, gib) for gib in SIZES},
}

if __name__ == "__main__":
    parking.prepare()
    ask(CASES, apart=__spec__.name)
