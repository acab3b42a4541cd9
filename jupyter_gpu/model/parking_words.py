"""Words about what is parked and what cannot be; the panel has the same ones (`words/parked.ts`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo

from .message import Message, gettext
from .parking import Obstacle, ParkedMemory, UnparkableShare
from .quantity import format_bytes
from .strict import MAX_TIME
from .view import PodGpu

_DAY = 86400


def in_memory(gpus: Sequence[PodGpu], now: float | None = None, zone: tzinfo | None = None) -> str:
    """Say what is in memory: ``34 GiB in memory since 12:05, back at the next use (about 6 s)``."""
    memory = joined(gpus)
    back = "" if memory.back is None else f" (about {memory.back} s)"
    return f"{format_bytes(memory.bytes)} in memory since {clock(memory.since, now, zone)}, back at the next use{back}"


def way_back(gpus: Sequence[PodGpu]) -> str:
    """Say what comes back: ``34 GiB come back from memory (about 6 s)``."""
    memory = joined(gpus)
    about = "" if memory.back is None else f" (about {memory.back} s)"
    return f"{format_bytes(memory.bytes)} come back from memory{about}"


def joined(gpus: Iterable[PodGpu]) -> ParkedMemory:
    """Return the parked memory of all of ``gpus``; at least one has some. They come back beside each other."""
    found = [gpu.parked for gpu in gpus if gpu.parked]
    back = max((memory.back for memory in found if memory.back is not None), default=None)
    return ParkedMemory(sum(memory.bytes for memory in found), min(memory.since for memory in found), back)


def clock(since: float, now: float | None = None, zone: tzinfo | None = None) -> str:
    """Return ``12:05``, with the date before it if that is not today's."""
    moment = datetime.fromtimestamp(min(since, MAX_TIME - _DAY), zone)  # in any zone a date that Python knows
    today = datetime.now(zone) if now is None else datetime.fromtimestamp(now, zone)
    return f"{moment:%H:%M}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M}"


_OBSTACLES: Mapping[str, Message] = {
    Obstacle.DRIVER: gettext("the driver of the GPU is too old for it: it needs 580 or newer"),
    Obstacle.PERSISTENCE: gettext("the persistence mode of the GPU is off: the administrator can switch it on"),
    Obstacle.PARTITION: gettext("the driver cannot do it with MIG, MPS or virtual GPUs"),
    Obstacle.NO_GATE: gettext("a program has the GPU open that cannot be parked: end it"),
    Obstacle.BROKEN: gettext("the driver failed to do it once, and cannot try again: restart the kernel"),
    Obstacle.MANAGED_MEMORY: gettext("managed memory is in use, which the driver cannot move: free it"),
    Obstacle.IMPORTED_MEMORY: gettext(
        "memory of other processes or GPUs is in use, as by NCCL: end the process group, or close what was imported"
    ),
    Obstacle.EXPORTED_MEMORY: gettext("another process may use its memory: close the exported handles"),
    Obstacle.HOST_MEMORY: gettext("there is not enough host memory for it"),
    Obstacle.ADDRESS_SPACE: gettext("a limit of the address space of the process is too low"),
    Obstacle.SEVERAL: gettext("several processes or GPUs belong together"),
    Obstacle.IN_USE: gettext("it is in use again"),
    Obstacle.HANGS: gettext("the driver has not answered yet"),
}


def obstacle(share: UnparkableShare) -> Message:
    """Say why the GPU cannot be parked, and what to do about it, to stand after a colon."""
    if share.why == Obstacle.HOST_MEMORY and share.figure:
        return gettext("there is not enough host memory for it: %1 are missing", format_bytes(share.figure))
    if share.why == Obstacle.NO_GATE and share.holders:
        names = ", ".join(dict.fromkeys(holder.command for holder in share.holders))
        return gettext("a program has the GPU open that cannot be parked: end %1", names)
    return _OBSTACLES.get(share.why, gettext("the node has another reason (%1)", share.why))
