"""The ends of lease owners.

A process is watched by its pidfd, in this pid namespace or in one inside it; a kernel that is not visible here, by its
manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.lease import LeaseOwner
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.process_ends import ProcessEnds
from jupyter_gpu_node.processes.rules.process_id import ProcessId

_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
_ENDS = ("shutdown", "restart")


class LeaseOwners(Protocol):
    """A source of the ends of owners."""

    async def check(self, owner: LeaseOwner) -> None:
        """Raise `InvalidRequest` if its end would not be noticed, or if it has ended already."""

    def watch(self, owners: Iterable[LeaseOwner], ended: Callable[[LeaseOwner], None]) -> None:
        """Report the ends of exactly these from now on."""

    def pid_of(self, owner: LeaseOwner) -> int | None:
        """Return its pid as seen by this server; ``None`` if it is not visible here."""


class ProcessOwners:
    """The `LeaseOwners` for processes visible to this server, and for its kernels.

    ``kernels``: the server's kernel manager; ``events``: its event logger.
    """

    def __init__(self, kernels: Any, events: Any) -> None:
        self._kernels, self._events = kernels, events
        self._processes: dict[LeaseOwner, ProcessId] = {}
        self._watched: frozenset[LeaseOwner] = frozenset()
        self._ended: Callable[[LeaseOwner], None] = lambda _: None
        self._endings: ProcessEnds[ProcessId] = ProcessEnds(self._check_all, _alive)
        self._followed: set[str] = set()

    async def check(self, owner: LeaseOwner) -> None:
        """See `LeaseOwners`."""
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

    def watch(self, owners: Iterable[LeaseOwner], ended: Callable[[LeaseOwner], None]) -> None:
        """See `LeaseOwners`."""
        self._watched, self._ended = frozenset(owners), ended
        self._processes = {owner: found for owner, found in self._processes.items() if owner in self._watched}
        self._endings.set(self._processes.values())

    def pid_of(self, owner: LeaseOwner) -> int | None:
        """See `LeaseOwners`."""
        process = self._processes.get(owner)
        return process.pid if process else None

    def _check_all(self) -> None:
        for owner, process in tuple(self._processes.items()):
            if not _alive(process):
                self._ended(owner)

    def _follow(self, kernel: str | None) -> None:
        """Watch for the end of a kernel whose process is not visible here, whatever ends it."""
        assert kernel is not None
        if kernel in self._followed:
            return
        if not self._followed:
            self._events.add_listener(schema_id=_ACTIONS, listener=self._acted)
        self._followed.add(kernel)
        for event in ("restart", "dead"):
            with contextlib.suppress(Exception):  # a manager of another package may have no restarter
                self._kernels.add_restart_callback(kernel, lambda: self._over(kernel), event)

    async def _acted(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:  # noqa: ARG002 - as it is called
        if data.get("action") in _ENDS:
            self._over(str(data.get("kernel_id")))

    def _over(self, kernel: str) -> None:
        for owner in self._watched - self._processes.keys():
            if owner.kernel == kernel:
                self._ended(owner)


def find(owner: LeaseOwner) -> ProcessId | None:
    """Return the process of an owner as seen by this process; None if it has ended or is not visible."""
    if owner.namespace == _namespace("self"):
        return _same(owner.pid, owner.started)
    for pid in proc.all_pids():
        if _inner(pid) == owner.pid and _namespace(str(pid)) == owner.namespace:
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


def _inner(pid: int) -> int | None:
    """Return its number in its own pid namespace."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None
