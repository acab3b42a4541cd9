"""An own copy of large allocations before the checkpoint, and where the driver's own copy gets its host memory.

The driver's checkpoint copies at 2 GB/s, a pinned copy at 55. So: copy memory of the virtual memory calls to the host,
unmap and release it with its addresses kept, park what is left; after the return create, map and copy back.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import parking, process
from .answers import Case, ask, say
from .driver import Driver
from .speed import _checksum

GIB = 2**30
_HUGE = 14
"""`MADV_HUGEPAGE`."""
_PROPERTIES = (ctypes.c_int * 8)(1, 0, 1, 0)
"""Properties for cuMemCreate: pinned, not to be shared, on the first GPU."""
_ACCESS = (ctypes.c_int * 3)(1, 0, 3)


@functools.cache
def _toucher() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="toucher") as folder:
        library = Path(folder) / "toucher.so"
        source = Path(__file__).with_name("toucher.c")
        subprocess.run(["gcc", "-O2", "-w", "-shared", "-fPIC", source, "-o", library, "-pthread"], check=True)
        return ctypes.CDLL(str(library))


def _took(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 4)


class Room:
    """Anonymous memory of the host."""

    def __init__(self, size: int, *, huge: bool = False) -> None:
        self.size = size
        self._map = mmap.mmap(-1, size + 2**21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(view) + 2**21 - 1 & ~(2**21 - 1)
        del view
        if huge:
            self._map.madvise(_HUGE)

    def write(self, threads: int, *, populate: bool = False) -> None:
        """Write every page."""
        _toucher().spread(c_void_p(self.address), None, c_size_t(self.size), threads, int(populate))

    def end(self) -> None:
        """Give the memory back."""
        self._map.close()


def _written(driver: Driver, size: int, *, huge: bool, threads: int, populate: bool) -> dict[str, float]:
    room = Room(size, huge=huge)
    host, length = c_void_p(room.address), c_size_t(size)
    return {
        "write": _took(lambda: room.write(threads, populate=populate)),
        "pin": _took(lambda: driver.call("cuMemHostRegister_v2", host, length, 0)),
        "unpin": _took(lambda: driver.call("cuMemHostUnregister", host)),
        "free": _took(room.end),
    }


def touching() -> object:
    """Return seconds to write 2 GiB of fresh memory by threads, kind of pages and turn, and to pin and to free it."""
    driver = Driver()
    driver.start()
    for turn in range(2):
        for huge in (False, True):
            for threads, populate in ((1, False), (4, False), (16, False), (16, True)):
                took = _written(driver, 2 * GIB, huge=huge, threads=threads, populate=populate)
                say(turn=turn, huge=huge, threads=threads, populate=populate, **took)
    pinned = _took(lambda: driver.call("cuMemAllocHost_v2", byref(c_void_p()), c_size_t(2 * GIB)))
    return {"cuMemAllocHost": pinned}


class Memory:
    """GPU memory of the virtual memory calls, in pieces, at addresses that stay."""

    def __init__(self, driver: Driver, size: int, piece: int) -> None:
        self.driver, self.size, self.piece = driver, size, piece
        place = c_uint64()
        driver.need("cuMemAddressReserve", byref(place), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))
        self.address = place.value
        self.handles: list[int] = []

    def map(self) -> None:
        """Create the pieces and map them."""
        for at in range(0, self.size, self.piece):
            handle = c_uint64()
            self.driver.need("cuMemCreate", byref(handle), c_size_t(self.piece), _PROPERTIES, c_uint64(0))
            where = c_uint64(self.address + at)
            self.driver.need("cuMemMap", where, c_size_t(self.piece), c_size_t(0), handle, c_uint64(0))
            self.handles.append(handle.value)
        self.driver.need("cuMemSetAccess", c_uint64(self.address), c_size_t(self.size), _ACCESS, c_size_t(1))

    def unmap(self) -> None:
        """Unmap the pieces and release them."""
        self.driver.need("cuMemUnmap", c_uint64(self.address), c_size_t(self.size))
        for handle in self.handles:
            self.driver.need("cuMemRelease", c_uint64(handle))
        self.handles.clear()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory as 64-bit integers."""
        return {"shape": (self.size // 8,), "typestr": "<i8", "data": (self.address, False), "version": 3}


def _copy(driver: Driver, host: int, gpu: int, size: int, *, out: bool, streams: Sequence[c_void_p]) -> None:
    """Copy by several streams, in parts of 64 MiB."""
    part = 2**26
    for number, at in enumerate(range(0, size, part)):
        stream = streams[number % len(streams)]
        count = c_size_t(min(part, size - at))
        if out:
            driver.need("cuMemcpyDtoHAsync_v2", c_void_p(host + at), c_uint64(gpu + at), count, stream)
        else:
            driver.need("cuMemcpyHtoDAsync_v2", c_uint64(gpu + at), c_void_p(host + at), count, stream)
    for stream in streams:
        driver.need("cuStreamSynchronize", stream)


def _bounce(driver: Driver, host: int, gpu: int, size: int, *, out: bool, threads: int) -> None:
    """Copy by way of two pinned buffers of 128 MiB, while threads copy between these and pageable memory."""
    part = 2**27
    buffers = [c_void_p(), c_void_p()]
    stream = c_void_p()
    driver.need("cuStreamCreate", byref(stream), 1)
    for buffer in buffers:
        driver.need("cuMemAllocHost_v2", byref(buffer), c_size_t(part))
    spread = _toucher().spread
    steps = [(at, min(part, size - at)) for at in range(0, size, part)]
    for number, (at, count) in enumerate(steps):
        buffer, before = buffers[number % 2], buffers[1 - number % 2]
        if out:
            driver.need("cuMemcpyDtoHAsync_v2", buffer, c_uint64(gpu + at), c_size_t(count), stream)
            if number:
                last, many = steps[number - 1]
                spread(c_void_p(host + last), before, c_size_t(many), threads, 0)
            driver.need("cuStreamSynchronize", stream)
        else:
            spread(buffer, c_void_p(host + at), c_size_t(count), threads, 0)
            driver.need("cuStreamSynchronize", stream)
            driver.need("cuMemcpyHtoDAsync_v2", c_uint64(gpu + at), buffer, c_size_t(count), stream)
    if out:
        spread(c_void_p(host + steps[-1][0]), buffers[(len(steps) - 1) % 2], c_size_t(steps[-1][1]), threads, 0)
    driver.need("cuStreamSynchronize", stream)
    for buffer in buffers:
        driver.need("cuMemFreeHost", buffer)


Way = tuple[Callable[[bool, int], None], Callable[[], object], dict[str, float]]
"""How to copy (out or in, with an address of the GPU), how to end it, and the seconds that it took to get ready."""


def _ways(driver: Driver, size: int) -> dict[str, Callable[[], Way]]:
    streams = [c_void_p() for _ in range(4)]
    for stream in streams:
        driver.need("cuStreamCreate", byref(stream), 1)

    def pinned(count: int, *, huge: bool) -> Way:
        room = Room(size, huge=huge)
        host = c_void_p(room.address)
        times = {"write": _took(lambda: room.write(16))}
        times["pin"] = _took(lambda: driver.need("cuMemHostRegister_v2", host, c_size_t(size), 0))

        def end() -> None:
            driver.need("cuMemHostUnregister", host)
            room.end()

        def copy(out: bool, gpu: int) -> None:
            _copy(driver, room.address, gpu, size, out=out, streams=streams[:count])

        return copy, end, times

    def pageable(threads: int) -> Way:
        room = Room(size, huge=True)

        def copy(out: bool, gpu: int) -> None:
            _bounce(driver, room.address, gpu, size, out=out, threads=threads)

        return copy, room.end, {}

    return {
        "16 threads write, huge pages, pinned, 1 stream": lambda: pinned(1, huge=True),
        "16 threads write, small pages, pinned, 4 streams": lambda: pinned(4, huge=False),
        "pageable by two buffers, 8 threads": lambda: pageable(8),
    }


def own(gib: float, piece: int) -> object:
    """Park with an own copy, by each way; beside it with the driver's copy."""
    torch: Any = importlib.import_module("torch")
    driver = Driver()
    driver.start()
    torch.zeros(1, device="cuda")
    size = int(gib * GIB)
    memory = Memory(driver, size, piece)
    say(map=_took(memory.map), pieces=size // piece)
    tensor = torch.as_tensor(memory, device="cuda")
    for at in range(0, tensor.numel(), 2**27):
        tensor[at : at + 2**27].random_()
    graph, kept, little = torch.cuda.CUDAGraph(), tensor[:1024].clone(), tensor[:1024]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept += little
    graph.replay()
    before = _checksum(tensor)
    wanted = kept + little
    torch.cuda.empty_cache()
    if gib <= 8:
        steps = parking.Steps(driver)
        codes = [steps.lock(), steps.checkpoint(), steps.restore(), steps.unlock()]
        say(way="the driver's copy", codes=codes, calls=steps.milliseconds, equal=_checksum(tensor) == before)
        torch.cuda.empty_cache()
    for name, make in _ways(driver, size).items():
        answer = _staged(driver, memory, make())
        say(way=name, equal=_checksum(tensor) == before, **answer)
        torch.cuda.empty_cache()
    graph.replay()
    torch.cuda.synchronize()
    return {"gib": gib, "graph": bool((kept == wanted).all())}


def _staged(driver: Driver, memory: Memory, way: Way) -> dict[str, object]:
    """Park once with an own copy; return the seconds of its steps and the results of the driver's."""
    copy, end, seconds = way
    seconds["out"] = _took(lambda: copy(True, memory.address))
    seconds["unmap"] = _took(memory.unmap)
    steps = parking.Steps(driver)
    codes = [steps.lock(), steps.checkpoint()]
    parked = {"memory": process.memory(), "files": process.gpu_files(), "GPU": process.smi("gpu", "memory.used")}
    codes += [steps.restore(), steps.unlock()]
    seconds["map"] = _took(memory.map)
    seconds["in"] = _took(lambda: copy(False, memory.address))
    seconds["end"] = _took(end)
    speed = {key: round(memory.size / seconds[key] / 1e9, 1) for key in ("out", "in")}
    return {"codes": codes, "seconds": seconds, "calls": steps.milliseconds, "parked": parked, "GB/s": speed}


def _training(torch: Any, between: Callable[[int], None]) -> list[float]:
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 4096)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(512, 4096, device="cuda")
    losses = []
    for step in range(20):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        between(step)
    return losses


def expandable() -> object:
    """Take PyTorch's expandable segments off the GPU before three parks while it trains, against a run without."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch: Any = importlib.import_module("torch")
    plain = _training(torch, lambda _: None)
    torch.cuda.empty_cache()
    driver = Driver()
    driver.start()
    found: list[Any] = []

    def park(step: int) -> None:
        if step % 6 == 5:
            torch.cuda.synchronize()
            found.append(_park_segments(torch, driver))

    parked = _training(torch, park)
    try:
        torch.cuda.empty_cache()
        emptied: object = True
    except Exception as error:
        emptied = str(error)[:200]
    return {"parks": found, "equal": plain == parked, "losses": plain[-1], "empty_cache afterwards": emptied}


def _pieces(torch: Any, driver: Driver) -> list[tuple[int, int, int]]:
    """Return the mapped pieces of PyTorch's segments: address, size, handle."""
    found = []
    for segment in torch.cuda.memory_snapshot():
        if not segment.get("is_expandable"):
            continue
        at, end = segment["address"], segment["address"] + segment["total_size"]
        size = (20 if segment["segment_type"] == "large" else 2) * 2**20
        while at < end:
            handle = c_uint64()
            if driver.call("cuMemRetainAllocationHandle", byref(handle), c_void_p(at)) == 0:
                found.append((at, size, handle.value))
            at += size
    return found


def _park_segments(torch: Any, driver: Driver) -> object:
    pieces = _pieces(torch, driver)
    size = sum(many for _, many, _ in pieces)
    if not pieces:
        return "no expandable segments"
    room = Room(size, huge=True)
    room.write(8)
    driver.need("cuMemHostRegister_v2", c_void_p(room.address), c_size_t(size), 0)
    offset, codes, handles = 0, list[int](), list[bool]()
    for at, many, _ in pieces:
        codes.append(driver.call("cuMemcpyDtoH_v2", c_void_p(room.address + offset), c_uint64(at), c_size_t(many)))
        offset += many
    for at, many, held in pieces:
        codes.append(driver.call("cuMemUnmap", c_uint64(at), c_size_t(many)))
        codes += [driver.call("cuMemRelease", c_uint64(held)) for _ in range(2)]
    steps = parking.Steps(driver)
    park = [steps.lock(), steps.checkpoint()]
    used = process.smi("gpu", "memory.used")
    park += [steps.restore(), steps.unlock()]
    offset = 0
    for at, many, before in pieces:
        handle = c_uint64()
        codes.append(driver.call("cuMemCreate", byref(handle), c_size_t(many), _PROPERTIES, c_uint64(0)))
        codes.append(driver.call("cuMemMap", c_uint64(at), c_size_t(many), c_size_t(0), handle, c_uint64(0)))
        codes.append(driver.call("cuMemSetAccess", c_uint64(at), c_size_t(many), _ACCESS, c_size_t(1)))
        codes.append(driver.call("cuMemcpyHtoD_v2", c_uint64(at), c_void_p(room.address + offset), c_size_t(many)))
        handles.append(handle.value == before)
        offset += many
    driver.need("cuMemHostUnregister", c_void_p(room.address))
    gc.collect()
    room.end()
    return {"pieces": len(pieces), "MiB": size >> 20, "codes": sorted(set(codes)), "park": park, "GPU": used,
            "same handles": sum(handles), "calls": steps.milliseconds}  # fmt: skip


def _anonymous() -> dict[str, int]:
    """Return MiB of each large anonymous mapping by its address and rights."""
    found = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(None, 5)
        begin, end = (int(word, 16) for word in words[0].split("-"))
        if end - begin >= 2**20 and (len(words) == 5 or words[5].startswith("[")):
            found[f"{words[0]} {words[1]} {words[5] if len(words) > 5 else ''}"] = (end - begin) >> 20
    return found


def memory_child(pool: str) -> None:
    """Park 4 GiB twice, in one allocation or in 64; say who got memory of the host, and how long it took."""
    library = ctypes.CDLL(None)
    driver = Driver()
    driver.start()
    count = 64 if pool == "pieces" else 1
    places = [driver.allocate(4 * GIB // count) for _ in range(count)]
    for place in places:
        driver.fill(place, 4 * GIB // count, 0x1234)
    driver.call("cuCtxSynchronize")
    for turn in range(2):
        room = Room(6 * GIB, huge=True) if pool == "pool" else None
        if room:
            room.write(16)
            library.preload_pool(c_void_p(room.address), c_size_t(room.size))
        before, asked = _anonymous(), _asked(library)
        steps = parking.Steps(driver)
        codes = [steps.lock(), steps.checkpoint()]
        more = {key: size for key, size in _anonymous().items() if key not in before}
        asked = [now - then for now, then in zip(_asked(library), asked, strict=True)]
        rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
        codes += [steps.restore(), steps.unlock()]
        if room:
            library.preload_pool(None, c_size_t(0))
        say(turn=turn, pool=pool, codes=codes, calls=steps.milliseconds, mappings=list(more.items())[:20])
        huge = [line for line in rollup if line.startswith("AnonHuge")]
        say(turn=turn, asked=asked, huge=huge, of_all_mappings=len(more))
    say(right=all(driver.holds(place, 2**26, 0x1234) for place in places))
    os._exit(0)


def _asked(library: ctypes.CDLL) -> list[int]:
    """Return pieces and bytes of large pieces that malloc, calloc, memalign and mmap were asked for."""
    counted = (c_uint64 * 8)()
    if hasattr(library, "preload_counted"):
        library.preload_counted(counted)
    return list(counted)


def host_copy() -> object:
    """Park 4 GiB with the driver's copy, and various memory of the host; in processes of their own."""
    with tempfile.TemporaryDirectory(prefix="preload") as folder:
        library = Path(folder) / "preload.so"
        source = Path(__file__).with_name("preload.c")
        subprocess.run(["gcc", "-O2", "-w", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        preload = {"LD_PRELOAD": str(library)}
        for name, pool, extra in (
            ("plain", "", {}),
            ("counted", "", preload),
            ("from a pool that is written before", "pool", preload),
            ("64 pieces", "pieces", {}),
            ("huge pages of malloc", "", {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
        ):
            say(program=name)
            code = f"from benchmarks.survey.staging import memory_child; memory_child({pool!r})"
            done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **extra}, capture_output=True,
                                  text=True, check=False, timeout=50)  # fmt: skip
            print(done.stdout, end="", flush=True)
            if done.returncode:
                say(status=done.returncode, stderr=done.stderr[-300:])
    return None


CASES: dict[str, Case] = {
    "own copy, 8 GiB": functools.partial(own, 8, 2**28),
    "host memory of the driver's copy": host_copy,
    "expandable segments": expandable,
    "writing": touching,
    "own copy, 32 GiB": functools.partial(own, 32, 2**28),
    "own copy, 8 GiB in pieces of 20 MiB": functools.partial(own, 8180 / 1024, 20 * 2**20),
    "own copy, 1 GiB": functools.partial(own, 1, 2**28),
}
"""The most valuable first."""

if __name__ == "__main__":
    parking.prepare()
    _toucher()
    ask(CASES, apart=__spec__.name)
