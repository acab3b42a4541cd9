"""Load that programs report on simulated GPUs: one small file for each process and GPU.

A load says which process it belongs to, and counts only as long as that process lives; a stale one is removed by any
reader. The directory is open to all users (mode 1777), so a record is believed only if it belongs to the user that the
process runs as, or to root.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_gpu.model import strict
from jupyter_gpu_node.processes import proc, trusted_file

MAX_BYTES = 512
MAX_MEMORY = 2**53 - 1
_NAME = re.compile(r"(?P<pid>[1-9]\d{0,9})\.(?P<uuid>GPU-[0-9a-f-]{36})")


class ProgramLoad(NamedTuple):
    """The load of one process on one simulated GPU."""

    pid: int
    uuid: str
    busy: float
    """0–1."""
    memory: int
    """Bytes."""


def write(directory: Path, uuid: str, busy: float, memory: int, pid: int | None = None) -> None:
    """Record what this process (or ``pid``) does on ``uuid`` from now on; replaces its earlier record."""
    if not 0 <= busy <= 1 or not 0 <= memory <= MAX_MEMORY:
        raise ValueError(f"A load is 0 to 1 busy and has 0 bytes or more, not {busy!r} and {memory!r}.")
    pid = pid or os.getpid()
    start = proc.process_start_time(pid)
    if start is None:
        raise ProcessLookupError(f"There is no process {pid} that could use a GPU.")
    path = _path(directory, pid, uuid)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    body = json.dumps({"start": start, "busy": busy, "memory": memory}).encode()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, body)
    finally:
        os.close(descriptor)
    draft.replace(path)


def clear(directory: Path, uuid: str, pid: int | None = None) -> None:
    """Remove the record of this process (or ``pid``) on ``uuid``."""
    _path(directory, pid or os.getpid(), uuid).unlink(missing_ok=True)


def read(directory: Path) -> tuple[ProgramLoad, ...]:
    """Return the loads of all living processes."""
    return tuple(sorted(_read_all(directory), key=lambda load: (load.pid, load.uuid)))


def _path(directory: Path, pid: int, uuid: str) -> Path:
    name = f"{pid}.{uuid}"
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{uuid!r} is not the uuid of a simulated GPU.")
    return directory / name


def _read_all(directory: Path) -> Iterator[ProgramLoad]:
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        match = _NAME.fullmatch(name.removeprefix(".").rpartition(".")[0] if name.startswith(".") else name)
        if match is None:
            continue
        load = None if name.startswith(".") else _read(path, int(match["pid"]), match["uuid"])
        if load:
            yield load
        elif not proc.describe(int(match["pid"])) or not name.startswith("."):
            with contextlib.suppress(OSError):  # another user's: its owner or root removes it
                path.unlink()


def _read(path: Path, pid: int, uuid: str) -> ProgramLoad | None:
    found = trusted_file.read(path, MAX_BYTES + 1)
    process = proc.describe(pid)
    if found is None or process is None or found[0] not in (0, process.user):
        return None
    try:
        body = strict.an_object(strict.loads(found[1], MAX_BYTES), "load")
        if strict.required(body, "start", strict.integer(0, strict.MAX_GENERATION)) != process.start:
            return None
        memory = strict.required(body, "memory", strict.integer(0, MAX_MEMORY))
        return ProgramLoad(pid, uuid, strict.required(body, "busy", _fraction), memory)
    except strict.FieldError:
        return None


def _fraction(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise strict.FieldError(f"{key!r} must be a number from 0 to 1.", key)
    return float(value)
