"""Facts about a process from ``/proc``: its identity, whether it still runs, its ancestors, its environment."""
# ruff: noqa: PTH116, PTH123, PTH208 - Path objects would cost more than the system calls

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu.common.rules import proc_stat
from jupyter_gpu.common.rules.proc_stat import ProcStat

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, linux/sched.h
_EXITING = 0x00000004  # PF_EXITING
_STOPS = sum(1 << number - 1 for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))
GONE = (FileNotFoundError, ProcessLookupError)
"""Errors of `/proc` for a process that ended."""


class ProcessInfo(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start: int
    """Clock ticks after boot at which it started."""
    command: str
    """Name of the program, at most 15 characters."""
    user: int = -1
    """User id that it runs as; -1 if it ended meanwhile."""


def names(directory: str | int) -> Iterator[str]:
    """Yield the names in a directory, some at a time: there may be a million."""
    with os.scandir(directory) as entries:
        for entry in entries:
            yield entry.name


def possible_holder(pid: int) -> ProcessInfo | None:
    """Return a process that we may not inspect; None if it can hold nothing: a thread of the kernel, or a zombie."""
    try:
        found = read_stat(pid)
    except OSError:
        return None
    if found.flags & _KERNEL_THREAD or (found.state in "ZX" and _threads(pid) <= 1):
        return None
    return describe(pid)


def all_pids() -> list[int]:
    """Return every process that ``/proc`` shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def describe(pid: int) -> ProcessInfo | None:
    """Return the process ``pid``; None if there is none."""
    try:
        found = read_stat(pid)
        user = os.stat(f"/proc/{pid}").st_uid
    except (*GONE, PermissionError):
        return None
    return ProcessInfo(pid, found.start, found.command or "?", user)


def read_stat(pid: int | str) -> ProcStat:
    """Read ``/proc/<pid>/stat`` of a process, or of a thread (``<pid>/task/<thread>``)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return proc_stat.parse(file.read())


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def process_start_time(pid: int) -> int | None:
    """Return the clock ticks after boot at which ``pid`` started; None if there is no such process."""
    try:
        return read_stat(pid).start
    except (*GONE, PermissionError):
        return None


def ancestry(pid: int, start: int, most: int = 32) -> tuple[tuple[int, int], ...]:
    """Return that process, its parent and so on, at most ``most``: pid and start of each that exists and is visible."""
    found = [(pid, start)]
    while len(found) < most:
        child, born = found[-1]
        try:
            seen = read_stat(child)
            parent = seen.parent
            began = process_start_time(parent) if parent and seen.start == born else None
        except (*GONE, PermissionError):
            break
        if began is None or began > born:  # it ended, and another one has its number
            break
        found.append((parent, began))
    return tuple(found)


def all_stopped(pid: int, start: int) -> bool:
    """Tell whether that process exists and none of its threads runs: each is stopped, traced, or about to end."""
    try:
        if read_stat(pid).start != start:
            return False
        for name in names(f"/proc/{pid}/task"):
            with suppress(*GONE):  # it ended meanwhile
                thread = read_stat(f"{pid}/task/{name}")
                if thread.state not in "TtZX" and not thread.flags & _EXITING:
                    return False
    except (*GONE, PermissionError):
        return False
    return True


def stop_pending(pid: int) -> bool:
    """Tell whether a stopped process has another stop signal pending: its sender wants it to stay stopped."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        waiting = int(fields[b"SigPnd"], 16) | int(fields[b"ShdPnd"], 16)
        return fields[b"State"].split()[0] == b"T" and bool(waiting & _STOPS)
    except (*GONE, PermissionError, KeyError, ValueError):
        return False


def boot_id() -> str:
    """Return the identity of this start of the machine (``random(4)``: ``boot_id``). No process outlives it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def alive(pid: int, start: int) -> bool:
    """Tell whether the very process that started then still runs. A zombie does not, unless threads of it do."""
    try:
        found = read_stat(pid)
    except (*GONE, PermissionError):
        return False
    return found.start == start and (found.state not in "ZX" or _threads(pid) > 1)


@contextmanager
def open_pidfd(pid: int, start: int) -> Iterator[int | None]:
    """Yield a pidfd of the very process that started then, None if that has ended. Raises `OSError`.

    The pid's owner is checked after the descriptor is open: a process that had it before and has it then is the one.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if alive(pid, start) else None
    finally:
        os.close(descriptor)


def with_environment(name: str, value: str, pids: Iterable[int] | None = None) -> tuple[ProcessInfo, ...]:
    """Return the processes that were started with ``name=value`` in their environment, as far as we may read it."""
    entry = b"\0" + f"{name}={value}".encode() + b"\0"
    return _select(lambda pid: entry in b"\0" + _environment(pid) + b"\0", pids)


def _environment(pid: int) -> bytes:
    """Read a process's environment.

    It is empty while the process replaces its program: then retried, for at most 10 ms.
    """
    for _ in range(20):
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read()
        if text or not _replaces_program(pid):
            break
        time.sleep(0.0005)
    return text


def _replaces_program(pid: int) -> bool:
    """Tell whether it is inside execve(2): alive, with a memory of its own, but no place for an environment yet."""
    found = read_stat(pid)
    return not found.has_environment and found.state not in "ZX" and not found.flags & _KERNEL_THREAD


def _select(condition: Callable[[int], bool], pids: Iterable[int] | None) -> tuple[ProcessInfo, ...]:
    found = []
    for pid in sorted(all_pids() if pids is None else set(pids)):
        try:
            if condition(pid) and (process := describe(pid)):
                found.append(process)
        except (*GONE, PermissionError):
            continue
    return tuple(found)
