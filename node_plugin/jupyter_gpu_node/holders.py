"""Looks at who has GPUs open, told by pod. One runs at a time; whoever asks meanwhile shares the next."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu import faults
from jupyter_gpu.model.gpu import Gpu

from . import cgroup, proc
from .audit_rules import Suspect
from .guarded_pod import Stillness, frozen
from .places import pod_of

KTHREADD = 2
"""The parent of the kernel's threads is in the machine's first namespaces, and may always be looked at."""
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look found."""

    holders: Mapping[str, tuple[Suspect, ...]] = field(default_factory=dict)
    """By uuid."""
    hidden: tuple[Suspect, ...] = ()
    """Processes that could not be looked into: each may have any of them."""
    looked: frozenset[str] = frozenset()
    """Uuids that were looked for: of any other nothing is proven."""
    moving: frozenset[str] = frozenset()
    """Uids of pods that were to stand still for the look, and did not in time."""


@dataclass(slots=True)
class _Batch:
    """Those who wait for the next look."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    pods: dict[str, Path] = field(default_factory=dict)
    mappings: bool = False
    task: asyncio.Task[Sight] | None = None


class Eyes:
    """The only one that walks ``/proc``. ``helpers`` tells pids of our own processes that ask the driver."""

    def __init__(self, helpers: Callable[[], Collection[int]] = tuple) -> None:
        self._helpers = helpers
        self.groups: Mapping[str, Path] = {}
        """Groups of the managed pods by uid: whose namespaces an escaped process gives itself away by."""
        self._next: _Batch | None = None
        self._one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="look")

    async def look(
        self, gpus: Mapping[str, Gpu], pods: Mapping[str, Path] | None = None, *, mappings: bool = True
    ) -> Sight:
        """A look that begins after this call. ``pods`` are searched for hidden descriptors, and held still for it."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            batch.task = asyncio.create_task(self._run(batch))
        batch.gpus.update(gpus)
        batch.pods.update(pods or {})
        batch.mappings |= mappings
        assert batch.task is not None
        return await asyncio.shield(batch.task)

    async def _run(self, batch: _Batch) -> Sight:
        async with self._one:
            self._next = None
            work = functools.partial(self._look, batch, self.groups)
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _look(self, batch: _Batch, groups: Mapping[str, Path]) -> Sight:
        return look(batch.gpus.values(), batch.pods, groups, self._helpers(), batch.mappings)

    def close(self) -> None:
        """No more looks."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def look(
    gpus: Iterable[Gpu],
    pods: Mapping[str, Path],
    groups: Mapping[str, Path],
    helpers: Collection[int] = (),
    mappings: bool = True,
) -> Sight:
    """Who has which of ``gpus`` open, on this machine.

    Each of ``pods`` is looked at three times: as it runs; if nothing is found, while it stands still, so that no
    descriptor is passed around behind our back; and with all others, for what it passed on before.
    """
    asked = tuple(gpus)
    wanted = proc.targets(asked)
    looked = frozenset(gpu.uuid for gpu in asked)
    if not wanted:
        return Sight(looked=looked)
    found: dict[str, set[proc.Process]] = {uuid: set() for uuid in wanted}
    moving = set()
    for uid, group in pods.items():
        within, stillness = _within(wanted, group)
        _add(found, within)
        if stillness is Stillness.MOVING:
            moving.add(uid)
    inside = [pid for group in pods.values() for pid in cgroup.processes(group)]
    seen = proc.scan(wanted, mappings=mappings, pod=frozenset(inside))
    _add(found, seen.holders)
    describe = functools.cache(functools.partial(_suspect, groups=groups, helpers=helpers))
    return Sight(
        {uuid: tuple(describe(process) for process in sorted(some)) for uuid, some in found.items()},
        tuple(describe(process) for process in seen.uninspectable),
        looked,
        frozenset(moving),
    )


def _within(wanted: Mapping[str, proc.Target], group: Path) -> tuple[Mapping[str, tuple[proc.Process, ...]], Stillness]:
    """Who in the pod has what, and whether nobody moved when nothing was found."""
    pids = cgroup.processes(group)
    first = proc.scan(wanted, pids, pod=pids).holders
    if any(first.values()) or not pids:
        return first, Stillness.STILL
    with frozen(group) as stillness:
        faults.point("agent:frozen")
        if stillness is Stillness.IMPOSSIBLE:
            return first, stillness
        pids = cgroup.processes(group)
        return proc.scan(wanted, pids, pod=pids).holders, stillness


def _add(found: dict[str, set[proc.Process]], more: Mapping[str, Iterable[proc.Process]]) -> None:
    for uuid, processes in more.items():
        found[uuid].update(processes)


def _suspect(process: proc.Process, *, groups: Mapping[str, Path], helpers: Collection[int]) -> Suspect:
    pod = pod_of(process.pid)
    ours = process.pid == os.getpid() or (process.pid in helpers and _beside_us(process.pid))
    escaped = pod is None and not ours and _escaped(process.pid, groups)
    return Suspect(process.pid, process.start, process.command, pod, ours, escaped)


def _beside_us(pid: int) -> bool:
    """In our own group, where nobody can pose as a helper of ours."""
    try:
        return cgroup.membership(pid).get("") == cgroup.membership().get("")
    except OSError:
        return False


def _escaped(pid: int, groups: Mapping[str, Path]) -> bool:
    """Whether it has a namespace of a managed pod's container that the machine itself has not."""
    machine = namespaces(KTHREADD) | namespaces(1)
    own = namespaces(pid) - machine
    if not own or not machine:
        return False
    return any(own & namespaces(member) for group in groups.values() for member in cgroup.processes(group))


def namespaces(pid: int) -> frozenset[int]:
    """Numbers of the namespaces of a process; empty for one that is gone."""
    try:
        return frozenset(os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in _NAMESPACES)  # noqa: PTH116
    except OSError:
        return frozenset()


def inner_pid(pid: int) -> int:
    """Number of the process in its pod's pid namespace; 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return int(numbers[1] if len(numbers) > 1 else numbers[0])
    except OSError:
        return 0
    return 0
