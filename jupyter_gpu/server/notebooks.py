"""The notebook behind a process: from a pid up its parents to a kernel or a terminal of this server.

A view names holders by pid; users know notebooks. Everything that reads `/proc` runs in a worker thread, and
results are kept as long as the pid is in the view.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_core.utils import ensure_async

from jupyter_gpu.common.rules import proc_stat
from jupyter_gpu.model.titles import Title, titles
from jupyter_gpu.model.view import GpuUser, PodGpu, View

NAMES_KEPT = 2.0
"""Seconds for which the list of sessions is kept; a renamed notebook shows after that."""

_DEEPEST = 64
"""The most parents to follow: more than any process tree has, so that a loop through a reused pid ends."""


class Origin(NamedTuple):
    """The kernel (by id) or the terminal (by name) that a process comes from; neither: it is unrelated."""

    kernel: str | None = None
    terminal: str | None = None


def parent_of(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the parent's pid; ``None`` if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = proc_stat.parse(text).fields
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def origin_of(pid: int, roots: Mapping[int, Origin], parent: Callable[[int], int | None] = parent_of) -> Origin:
    """Find the nearest of ``roots`` among ``pid`` and its parents."""
    current: int | None = pid
    for _ in range(_DEEPEST):
        if not current:
            break
        if current in roots:
            return roots[current]
        current = parent(current)
    return Origin()


class Names(NamedTuple):
    """The notebooks and terminals that some processes belong to."""

    origins: Mapping[int, Origin]
    titles: Mapping[str, Title | None]
    """By kernel id."""

    def label(self, pid: int | None, kernel: str | None = None) -> str | None:
        """Return the name of the origin of ``pid``, or of ``kernel`` if that is not visible; ``None`` without one."""
        origin = self.origins.get(pid, Origin()) if pid else Origin(kernel)
        title = self.titles.get(origin.kernel or "")
        return title.label if title else f"terminal {origin.terminal}" if origin.terminal else None


def named(view: View, names: Names) -> View:
    """Return ``view`` with the kernel and the notebook of each holder."""

    def name(user: GpuUser) -> GpuUser:
        origin = names.origins.get(user.pid, Origin())
        if origin.kernel:
            title = names.titles.get(origin.kernel)
            path, label = (title.path, title.label) if title else (None, None)
            return user._replace(kernel=origin.kernel, notebook=path, label=label)
        return user._replace(notebook=f"terminal {origin.terminal}") if origin.terminal else user

    gpus = tuple(gpu._replace(users=tuple(map(name, gpu.users))) if gpu.users else gpu for gpu in view.gpus)
    return replace(view, gpus=gpus) if gpus != view.gpus else view


class Notebooks:
    """The notebooks of one server, added to its views.

    ``kernels`` and ``sessions`` are the server's kernel and session manager, ``terminals`` returns its terminal
    manager, if there is one.
    """

    def __init__(self, kernels: Any, sessions: Any, terminals: Callable[[], Any], log: logging.Logger) -> None:
        self._kernels, self._sessions, self._terminals, self._log = kernels, sessions, terminals, log
        self._origins: dict[int, Origin] = {}
        self._titles: dict[str, Title | None] = {}
        self._titles_at = -NAMES_KEPT

    async def names(self, view: View, pids: Iterable[int] = (), kernels: Iterable[str] = ()) -> Names:
        """Return names for the holders in ``view``, for ``pids`` and ``kernels``; without any, do not wait."""
        pids = {*pids, *(user.pid for user in _users(view.gpus) if user.pid)}
        origins = {pid: self._origins[pid] for pid in pids & self._origins.keys()}
        if unknown := pids - origins.keys():
            found = await asyncio.to_thread(_origins_of, unknown, self._roots())
            origins |= {pid: origin for pid, origin in found.items() if origin != Origin()}
        self._origins = origins
        wanted = {*kernels, *(origin.kernel for origin in origins.values() if origin.kernel)}
        return Names(origins, await self._titles_of(wanted))

    def _roots(self) -> dict[int, Origin]:
        """Return the processes that kernels and terminals started with. A remote kernel has none here."""
        roots: dict[int, Origin] = {}
        for kernel_id in self._kernels.list_kernel_ids():
            try:
                manager = self._kernels.get_kernel(kernel_id)
            except KeyError:  # it ended since the list was made
                continue
            if pid := getattr(getattr(manager, "provisioner", None), "pid", None):
                roots[pid] = Origin(kernel=kernel_id)
        for name, terminal in getattr(self._terminals(), "terminals", {}).items():
            if pid := getattr(getattr(terminal, "ptyproc", None), "pid", None):
                roots[pid] = Origin(terminal=name)
        return roots

    async def _titles_of(self, kernel_ids: set[str]) -> Mapping[str, Title | None]:
        now = time.monotonic()
        if kernel_ids and (now - self._titles_at >= NAMES_KEPT or not kernel_ids <= self._titles.keys()):
            try:
                found = titles(await ensure_async(self._sessions.list_sessions()))
            except Exception as error:  # a session store of another package may fail in its own ways
                self._log.debug("The sessions cannot be listed, notebooks stay without names: %r", error)
            else:
                # A kernel without a session is remembered as such, so that it costs no list for each view.
                self._titles = {**dict.fromkeys(kernel_ids), **found}
                self._titles_at = now
        return self._titles


def _users(gpus: Iterable[PodGpu]) -> Iterable[GpuUser]:
    return (user for gpu in gpus for user in gpu.users)


def _origins_of(pids: Iterable[int], roots: Mapping[int, Origin]) -> dict[int, Origin]:
    return {pid: origin_of(pid, roots) for pid in pids}
