"""AMD's GPUs as the driver of the Linux kernel (amdgpu) describes them in files. Pure.

Compute has a description of its own, a *node* for each CPU and GPU: ``/sys/class/kfd/kfd/topology/nodes``. It says
which device opens a GPU (``drm_render_minor``); the other facts are in that device's folder, below ``/sys/class/drm``.
A value that is missing or makes no sense is an error: a GPU that is not understood is not given to a pod.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import AMD, Device, Gpu
from jupyter_gpu.model.quantity import MAX_BYTES
from jupyter_gpu.model.view import GpuLoad, read_celsius, read_watts
from jupyter_gpu_node.gpus.rules.compute import billions

T = TypeVar("T")
UNITS = 64
"""Numbers that one of AMD's compute units multiplies at once, in all its generations."""
MAJOR = 226
"""Major number of the devices of graphics cards."""
DEVICES_END = 512
"""Minor number behind the last device that is looked after."""
DIVIDED = (
    "It is divided into partitions: it cannot be given as a whole. Set its compute partition to SPX to use it here."
)
TWICE = "Another GPU has the same unique id, or the same device."

_LINE = re.compile(r"(\w+) (\d{1,20})")
_VRAM = (1, 2)
"""Kinds of memory banks that are the GPU's own, visible to the CPU or not."""
_BUS_AND_DEVICE = 0xFFF8
"""Bits of ``location_id``; kernels put a partition's number into the function, or above these."""
_METRICS = (1, 3)
"""Layout of ``gpu_metrics`` that tells in the same way for all GPUs why the clocks are low."""
_WHY_LOW = struct.Struct("<112xQ")
_HOT = 0xFFFF << 32
"""Its bits for temperatures. Those for power are no sign: full load reaches its limit, too."""
_UNKNOWN = 2**64 - 1
_HOLDER = re.compile(r"vram_(\d{1,10})")
_read_id = strict.integer(0, 2**32 - 1)
_read_unique = strict.integer(1, 2**64 - 1)
_read_minor = strict.integer(128, DEVICES_END - 1)
_read_percent = strict.integer(0, 100)
_read_bytes = strict.integer(0, MAX_BYTES)
_read_memory = strict.integer(1, MAX_BYTES)
_read_any = strict.integer(0, 2**64 - 1)


class Node(NamedTuple):
    """A GPU's node of the topology."""

    gpu_id: int
    """The driver's name for it, until the machine starts again."""
    unique: int
    """Number of the chip; no other has it."""
    minor: int
    """Minor number of its device."""
    memory: int
    """Bytes."""
    place: tuple[int, int]
    """Its PCI domain, and its bus and device there, which partitions of one GPU share."""
    hive: int = 0
    """GPUs with the same number are joined by xGMI; 0: it is joined to none."""
    target: str = ""
    """Its architecture, such as ``gfx90a``."""
    compute: int | None = None
    """Billions of operations a second with numbers of 32 bits."""

    @property
    def bus(self) -> str:
        """Its PCI address as Linux writes it, without the function: ``0000:c1:00``."""
        domain, location = self.place
        return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 31:02x}"

    @property
    def uuid(self) -> str:
        """Its name for ROCm and here."""
        return f"GPU-{self.unique:016x}"


class Files(NamedTuple):
    """The texts of a device's files; None where a file cannot be read."""

    product: str | None = None
    numa: str | None = None
    total: str | None = None
    """Bytes of memory: the driver does not tell while it resets the GPU."""
    busy: str | None = None
    used: str | None = None
    celsius: str | None = None
    """In thousandths."""
    watts: str | None = None
    """In millionths."""
    unique: str | None = None
    """The number of the chip, which no other has; this file can be read without the right to open the GPU."""
    metrics: bytes | None = None
    """A table of the driver, in a layout that its first bytes name."""


def properties(text: str) -> dict[str, int]:
    """Return the lines of the form ``name number``; a name twice is an error. Raises `FieldError`."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            if match[1] in found:
                raise strict.FieldError(f"{match[1]!r} is there twice.", match[1])
            found[match[1]] = int(match[2])
    return found


def node(gpu_id: str, text: str, banks: Iterable[str]) -> Node | None:
    """Read the node with these ``properties`` and memory ``banks``; None: a CPU. Raises `FieldError`."""
    number = _read_id(_number(gpu_id), "gpu_id")
    if number == 0:
        return None
    about = properties(text)
    memory = 0
    for bank in map(properties, banks):
        if strict.required(bank, "heap_type", _read_any) in _VRAM:
            memory += strict.required(bank, "size_in_bytes", _read_bytes)
    return Node(
        number,
        unique=strict.required(about, "unique_id", _read_unique),
        minor=strict.required(about, "drm_render_minor", _read_minor),
        memory=_read_memory(memory, "size_in_bytes"),
        place=(about.get("domain", 0), strict.required(about, "location_id", _read_any) & _BUS_AND_DEVICE),
        hive=about.get("hive_id", 0),
        target=_target(about.get("gfx_target_version", 0)),
        compute=_compute(about),
    )


def gpus(found: Iterable[tuple[Node, Files]]) -> tuple[Gpu, ...]:
    """Return the GPUs by the number of their device. Of nodes that have a name or place in common the first is shown,
    as one GPU that is unhealthy.
    """
    every = sorted(found, key=lambda item: item[0].minor)
    places = Counter(at.place for at, _ in every)
    names: Counter[str | int] = Counter(name for at, _ in every for name in (at.uuid, at.minor))
    shown: list[Gpu] = []
    taken: set[object] = set()
    for at, files in every:
        own = {at.place, at.uuid, at.minor}
        if taken.isdisjoint(own):
            alone = names[at.uuid] == names[at.minor] == 1
            shown.append(_gpu(len(shown), at, files, DIVIDED if places[at.place] > 1 else "" if alone else TWICE))
        taken |= own
    return tuple(shown)


def _gpu(index: int, at: Node, files: Files, problem: str) -> Gpu:
    silent = "" if _read(files.total, _read_memory) else "Its driver does not answer, or resets it."
    return Gpu(
        uuid=at.uuid,
        index=index,
        model=strict.printable((files.product or "").strip() or f"AMD {at.target}".strip(), 128),
        memory=at.memory,
        device=Device(MAJOR, at.minor),
        path=f"/dev/dri/renderD{at.minor}",
        healthy=not (problem or silent),
        health=problem or silent,
        numa=_read(files.numa, strict.integer(0, 1023)),
        island=f"hive-{at.hive:x}" if at.hive else None,
        vendor=AMD,
        slow=slow(files.metrics),
        compute=at.compute,
    )


def load(files: Files) -> GpuLoad:
    """Return the load; None for what cannot be read, or cannot be."""
    celsius, watts = _read(files.celsius, _read_any), _read(files.watts, _read_any)
    return GpuLoad(
        busy(files.busy),
        _read(files.used, _read_bytes),
        None if celsius is None else _checked(celsius // 1000, read_celsius),
        None if watts is None else _checked(watts / 10**6, read_watts),
    )


def busy(text: str | None) -> int | None:
    """Return how busy a GPU is, in per cent; None if that cannot be read, or cannot be."""
    return _read(text, _read_percent)


def slow(metrics: bytes | None) -> bool:
    """Tell whether the GPU is slowed down now because it is hot; False where the driver does not tell."""
    if metrics is None or len(metrics) < _WHY_LOW.size or (metrics[2], metrics[3]) != _METRICS:
        return False
    (why,) = _WHY_LOW.unpack_from(metrics)
    return why != _UNKNOWN and bool(why & _HOT)


def held(names: Iterable[str]) -> frozenset[int]:
    """Return the driver's names of the GPUs that it keeps for a process, by the ``names`` of the process's files."""
    return frozenset(int(match[1]) for name in names if (match := _HOLDER.fullmatch(name)))


def _target(version: int) -> str:
    """Return the architecture behind a version: 90010 is ``gfx90a``."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if version else ""


def _compute(about: Mapping[str, int]) -> int | None:
    """Return the compute of a GPU, whose units consist of several SIMDs each; None where the driver does not tell."""
    units = about.get("simd_count", 0) // max(1, about.get("simd_per_cu", 0))
    known = "simd_per_cu" in about
    return billions(UNITS * units, about.get("max_engine_clk_fcompute", 0)) if known else None


def _number(text: str) -> int | None:
    """Return the number that a file consists of; None: it is none."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def _read(text: str | None, read: Callable[[Any, str], T]) -> T | None:
    """Read the number of a file; None where it is none, or not one that ``read`` accepts."""
    return _checked(None if text is None else _number(text), read)


def _checked(value: float | None, read: Callable[[Any, str], T]) -> T | None:
    try:
        return read(value, "")
    except strict.FieldError:
        return None
