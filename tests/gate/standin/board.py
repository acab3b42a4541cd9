"""Reads what a simulated GPU of the stand-in driver did: whose work, when, and which work overlapped another owner's.

The layout is that of node_plugin/gate/standin/board.h. No lock is needed: an entry is written before it is counted.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0x32306472616F6267
HEAD = struct.Struct("<QQIIQ48s")
SLOTS, SLOT, FIRST_SLOT = 256, struct.Struct("<IIQ"), 256
WORK = struct.Struct("<QQQQIIIIQ40s")
FIRST_WORK = FIRST_SLOT + SLOTS * SLOT.size
OVERLAP, CUT = 1, 2
FLOCK, FIRST_BYTE = struct.Struct("hhqqi4x"), 1 << 40  # struct flock, where longs have 64 bits


@dataclass(frozen=True)
class Work:
    """One launch: a kernel or a whole graph. Times are microseconds of the monotonic clock."""

    start: int
    end: int
    owner: str
    pid: int
    process: int  # counted for each GPU from 1: unlike a pid, never used again
    kernels: int
    queued: int  # when it was launched, which may be long before its start
    overlapped: bool  # came while another owner's work was still on the GPU
    cut: bool  # its process ended first; `end` is when that was noticed


@dataclass(frozen=True)
class Sums:
    """Everything that a GPU did since its board was made."""

    launches: int
    overlaps: int
    busy: int  # microseconds, with what is still to be done


class Board:
    """The board of one GPU, read anew at each call."""

    def __init__(self, folder: Path, uuid: str) -> None:
        self._path = folder / f"{uuid}.board"
        with self._path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, self.memory, self._capacity, _, _, name = HEAD.unpack_from(self._map)
        if magic != MAGIC:
            raise ValueError(f"{self._path} is not a board of this version of the stand-in driver")
        self.uuid = name.rstrip(b"\0").decode()

    def close(self) -> None:
        """Close the file."""
        self._map.close()

    def _entries(self) -> int:
        """Return the number of launches so far."""
        return int(HEAD.unpack_from(self._map)[4])

    def _raw(self, index: int) -> bytes:
        """Return one entry as it is in the file."""
        at = FIRST_WORK + index % self._capacity * WORK.size
        return self._map[at : at + WORK.size]

    def sums(self) -> Sums:
        """Return launches, overlaps and busy time since the board was made, even of those that the log has dropped."""
        while True:
            entries = self._entries()
            if not entries:
                return Sums(0, 0, 0)
            _, _, busy, overlaps, *_ = WORK.unpack(self._raw(entries - 1))
            if self._entries() < entries + self._capacity - 1 or self._capacity == 1:
                return Sums(entries, overlaps, busy)

    def log(self, since: int = 0) -> list[Work]:
        """Return the launches from number `since` on, oldest first; raise if the log has dropped some of them."""
        entries = self._entries()
        raw = [self._raw(index) for index in range(max(since, 0), entries)] if entries - since <= self._capacity else []
        if self._entries() > since + self._capacity or len(raw) < entries - since:
            raise LookupError(f"the log keeps {self._capacity} launches and there were {entries}: make it longer")
        return [_work(one) for one in raw]

    def live(self) -> dict[int, int]:
        """Return the device memory by pid of each living process with the GPU open: such a process holds a lock on one
        byte.
        """
        held: dict[int, int] = {}
        with self._path.open("rb") as file:
            for i in range(SLOTS):
                process, pid, size = SLOT.unpack_from(self._map, FIRST_SLOT + i * SLOT.size)
                asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, FIRST_BYTE + i, 1, 0)
                if process and FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK:
                    held[pid] = held.get(pid, 0) + size  # a process can have opened it twice
        return held


def _work(raw: bytes) -> Work:
    """Decode an entry."""
    start, end, _, _, pid, process, flags, kernels, queued, owner = WORK.unpack(raw)
    name = owner.rstrip(b"\0").decode()
    return Work(start, end, name, pid, process, kernels, queued, bool(flags & OVERLAP), bool(flags & CUT))


def busy(works: Iterable[Work], owner: str | None = None, start: int = 0, end: int = 1 << 63) -> int:
    """Return the microseconds of work between two times, of one owner or of all."""
    mine = (work for work in works if owner is None or work.owner == owner)
    return sum(max(0, min(work.end, end) - max(work.start, start)) for work in mine)


def outside(works: Iterable[Work], leases: Iterable[tuple[int, int]]) -> list[Work]:
    """Return the work that no single lease (start, end) covers wholly; of cut work only the start must be covered."""
    spans = sorted(leases)
    return [
        work
        for work in works
        if not any(first <= work.start and (work.start if work.cut else work.end) <= last for first, last in spans)
    ]
