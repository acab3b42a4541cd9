"""Owners of reservations: detects their ends.

A process is watched through its pidfd, in this pid namespace or in one inside it. A kernel that is not visible here is
watched through its manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.process_ends import ProcessEnds
from jupyter_gpu_node.processes.rules.process_id import ProcessId

_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
_ENDS = ("shutdown", "restart")


class OwnerWatcher(Protocol):
    """A detector of the ends of owners."""

    async def check(self, owner: ReservationOwner) -> None:
        """Raise `InvalidRequest` if ``owner`` has ended, or its end could not be detected."""

    def watch(self, owners: Iterable[ReservationOwner], ended: Callable[[ReservationOwner], None]) -> None:
        """Call ``ended`` with each of ``owners`` that ends, instead of those given before."""

    def pid_of(self, owner: ReservationOwner) -> int | None:
        """Return the owner's pid as this server sees it; ``None`` if it is not visible here."""


class ProcessOwners:
    """The `OwnerWatcher` for processes that this server can see, and for its kernels.

    ``kernels``: the server's kernel manager; ``events``: its event logger.
    """

    def __init__(self, kernels: Any, events: Any) -> None:
        self._kernels, self._events = kernels, events
        self._processes: dict[ReservationOwner, ProcessId] = {}
        self._watched: frozenset[ReservationOwner] = frozenset()
        self._ended: Callable[[ReservationOwner], None] = lambda _: None
        self._endings: ProcessEnds[ProcessId] = ProcessEnds(self._check_all, _alive)
        self._followed: set[str] = set()

    async def check(self, owner: ReservationOwner) -> None:
        """See `OwnerWatcher`."""
        process = await asyncio.to_thread(find, owner)
        if process is not None:
            self._processes[owner] = process
        elif owner.namespace == _namespace("self") or owner.kernel not in self._kernels.list_kernel_ids():
            raise InvalidRequest(
                f"Process {owner.pid} has ended, or cannot be seen from the Jupyter server: it would not be noticed "
                "when it ends. Use gpu.resize(), and gpu.release() at the end.",
                field="owner",
            )
        else:
            self._follow(owner.kernel)

    def watch(self, owners: Iterable[ReservationOwner], ended: Callable[[ReservationOwner], None]) -> None:
        """See `OwnerWatcher`."""
        self._watched, self._ended = frozenset(owners), ended
        self._processes = {owner: found for owner, found in self._processes.items() if owner in self._watched}
        self._endings.set(self._processes.values())

    def pid_of(self, owner: ReservationOwner) -> int | None:
        """See `OwnerWatcher`."""
        process = self._processes.get(owner)
        return process.pid if process else None

    def _check_all(self) -> None:
        for owner, process in tuple(self._processes.items()):
            if not _alive(process):
                self._ended(owner)

    def _follow(self, kernel: str | None) -> None:
        """Watch for the end of a kernel whose process is not visible here."""
        assert kernel is not None
        if kernel in self._followed:
            return
        if not self._followed:
            self._events.add_listener(schema_id=_ACTIONS, listener=self._on_action)
        self._followed.add(kernel)
        for event in ("restart", "dead"):
            with contextlib.suppress(Exception):  # a manager of another package may have no restarter
                self._kernels.add_restart_callback(kernel, lambda: self._on_kernel_end(kernel), event)

    async def _on_action(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:  # noqa: ARG002 - as it is called
        if data.get("action") in _ENDS:
            self._on_kernel_end(str(data.get("kernel_id")))

    def _on_kernel_end(self, kernel: str) -> None:
        for owner in self._watched - self._processes.keys():
            if owner.kernel == kernel:
                self._ended(owner)


def find(owner: ReservationOwner) -> ProcessId | None:
    """Return the process of ``owner`` as this process sees it; None if it has ended or is not visible."""
    if owner.namespace == _namespace("self"):
        return _same(owner.pid, owner.started)
    for pid in proc.all_pids():
        if _inner_pid(pid) == owner.pid and _namespace(str(pid)) == owner.namespace:
            return _same(pid, owner.started)
    return None


def _same(pid: int, start: int) -> ProcessId | None:
    process = ProcessId(pid, start)
    return process if _alive(process) else None


def _alive(process: ProcessId) -> bool:
    return proc.alive(process.pid, process.start)


def _namespace(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino  # noqa: PTH116 - no path
    except OSError:
        return None


def _inner_pid(pid: int) -> int | None:
    """Return the pid that process ``pid`` has in its own namespace; None if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None
