"""Scans for the processes that have GPUs open, by pod. One scan runs at a time; callers meanwhile share the next.

A scan reads only a limited amount of each pod (`scan_budget`); a pod with more is searched by itself, beside the scans.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu.common import faults
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.freeze import FreezeResult, frozen
from jupyter_gpu_node.devices.pod_cgroups import pod_of
from jupyter_gpu_node.holders.rules.rights import Suspect
from jupyter_gpu_node.processes import device_scan, proc
from jupyter_gpu_node.processes.rules.scan_budget import EACH, HIDDEN, MOST, Budgets, ScanBudget

KTHREADD = 2
"""The parent of the kernel's threads is in the machine's first namespaces, and may always be inspected."""
SIDE_BY_SIDE = 4
"""Pods that are scanned by themselves at one time."""
MEMBERS = 2000
"""Processes of each pod whose namespaces are read."""
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")


@dataclass(frozen=True, slots=True)
class HolderScan:
    """The result of a scan."""

    holders: Mapping[str, tuple[Suspect, ...]] = field(default_factory=dict)
    """Holders by uuid."""
    hidden: tuple[Suspect, ...] = ()
    """Processes that could not be inspected: each may have any of the GPUs open."""
    scanned: frozenset[str] = frozenset()
    """UUIDs that were scanned for: nothing is proven of any other."""
    moving: frozenset[str] = frozenset()
    """UIDs of pods that were to be frozen for the scan, and were not in time."""
    over: Mapping[str, tuple[Suspect, ...]] = field(default_factory=dict)
    """Pods, by uid, that were not scanned wholly, with the processes at which the budget ended: nothing is proven of
    them."""
    evidence: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """A descriptor that shows it, by uuid and pid (`still_shows`)."""


Recorded = Callable[[Collection[str]], Mapping[str, Collection[int]]]
"""Returns, by uuid, pids for which the driver keeps the named GPUs."""


def _no_record(_uuids: Collection[str]) -> Mapping[str, Collection[int]]:
    return {}


@dataclass(slots=True)
class _Batch:
    """The callers that wait for the next scan."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    pods: dict[str, Path] = field(default_factory=dict)
    mappings: bool = False
    task: asyncio.Task[HolderScan] | None = None


class HolderScanner:
    """The only part that walks ``/proc``. ``helpers`` returns pids of our own processes that ask the driver.

    ``recorded`` returns, by uuid, pids for which a driver keeps a GPU though they may have closed its device.
    """

    def __init__(self, helpers: Callable[[], Collection[int]] = tuple, recorded: Recorded = _no_record) -> None:
        self._helpers = helpers
        self._recorded = recorded
        self.groups: Mapping[str, Path] = {}
        """Groups of the managed pods by uid: an escaped process is recognised by their namespaces."""
        self._next: _Batch | None = None
        self._one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scan")
        self._searching = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="search")

    async def scan(
        self, gpus: Mapping[str, Gpu], pods: Mapping[str, Path] | None = None, *, mappings: bool = True
    ) -> HolderScan:
        """Run a scan that begins after this call. ``pods`` are frozen for it and searched for hidden descriptors."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            batch.task = asyncio.create_task(self._run(batch))
        batch.gpus.update(gpus)
        batch.pods.update(pods or {})
        batch.mappings |= mappings
        assert batch.task is not None
        return await asyncio.shield(batch.task)

    async def search(self, uid: str, gpus: Mapping[str, Gpu], group: Path | None) -> HolderScan:
        """Search one pod alone, for as long as it takes; ``group``: its own, if it is to be frozen for it."""
        work = functools.partial(
            search_pod, uid, gpus.values(), group, self.groups, self._helpers(), recorded=self._recorded
        )
        return await asyncio.get_running_loop().run_in_executor(self._searching, work)

    async def _run(self, batch: _Batch) -> HolderScan:
        async with self._one:
            self._next = None
            work = functools.partial(self._scan, batch, self.groups)
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _scan(self, batch: _Batch, groups: Mapping[str, Path]) -> HolderScan:
        return scan_holders(
            batch.gpus.values(), batch.pods, groups, self._helpers(), batch.mappings, recorded=self._recorded
        )

    def close(self) -> None:
        """Stop scanning."""
        for threads in (self._thread, self._searching):
            threads.shutdown(wait=False, cancel_futures=True)


def scan_holders(
    gpus: Iterable[Gpu],
    pods: Mapping[str, Path],
    groups: Mapping[str, Path],
    helpers: Collection[int] = (),
    mappings: bool = True,
    recorded: Recorded = _no_record,
) -> HolderScan:
    """Find the processes that have any of ``gpus`` open, on this machine.

    Each of ``pods`` is scanned three times: as it runs; if nothing is found, while it is frozen, so that no descriptor
    is passed around meanwhile; and with all others, for what it passed on before. No more of a pod is read than
    `scan_budget` allows.
    """
    builder = _ScanBuilder.of(gpus, groups, helpers)
    if not builder.wanted:
        return HolderScan(scanned=builder.scanned)
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(pods)) or 1) as threads:
        each = threads.map(lambda group: _scan_pod(builder.wanted, group, EACH * HIDDEN), pods.values())
        for uid, within in zip(pods, each, strict=True):
            builder.add_within(uid, within)
    inside = frozenset(pid for group in pods.values() for pid in cgroup.processes(group))
    budgets = Budgets()

    def budget(pid: int) -> ScanBudget | None:
        uid = pod_of(pid)
        return budgets.of(uid) if uid else None

    builder.add(device_scan.scan(builder.wanted, mappings=mappings, pod=inside, budgets=budget))
    builder.over |= {uid: builder.over.get(uid, set()) for uid, one in budgets.by_pod.items() if one.over}
    builder.add_recorded(recorded)
    return builder.result()


def search_pod(
    uid: str,
    gpus: Iterable[Gpu],
    group: Path | None,
    groups: Mapping[str, Path],
    helpers: Collection[int] = (),
    recorded: Recorded = _no_record,
) -> HolderScan:
    """Search all processes of one pod that has too many for a scan: what is beyond `MOST` is over."""
    builder = _ScanBuilder.of(gpus, groups, helpers)
    builder.add_recorded(recorded)
    if group is not None:
        builder.add_within(uid, _scan_pod(builder.wanted, group, MOST * HIDDEN))
        return builder.result()
    budget, others = ScanBudget(MOST), ScanBudget(-1)
    seen = device_scan.scan(builder.wanted, budgets=lambda pid: budget if pod_of(pid) == uid else others)
    builder.add_within(uid, _PodScan(seen, budget.over))
    return builder.result()


@dataclass(frozen=True, slots=True)
class _PodScan:
    """The result for one pod: what its processes hold, whether it is over its budget, and whether it was frozen."""

    seen: device_scan.Scan[str]
    over: bool
    stillness: FreezeResult = FreezeResult.STILL


def _scan_pod(wanted: Mapping[str, device_scan.Target], group: Path, most: float) -> _PodScan:
    """Scan a pod as it runs, and if nothing is found, while it is frozen: each scan may cost ``most``."""
    budget, again = ScanBudget(most), ScanBudget(most)
    pids = cgroup.processes(group)
    first = device_scan.scan(wanted, pids, pod=pids, budgets=lambda _: budget)
    if any(first.holders.values()) or budget.over or not pids:
        return _PodScan(first, budget.over)
    with frozen(group) as stillness:
        faults.point("agent:frozen")
        if stillness is FreezeResult.IMPOSSIBLE:
            return _PodScan(first, over=False, stillness=stillness)
        pids = cgroup.processes(group)
        seen = device_scan.scan(wanted, pids, pod=pids, budgets=lambda _: again)
        return _PodScan(seen, again.over, stillness)


@dataclass(slots=True)
class _ScanBuilder:
    """The findings of a scan so far."""

    wanted: Mapping[str, device_scan.Target]
    scanned: frozenset[str]
    describe: Callable[[proc.ProcessInfo], Suspect]
    found: dict[str, set[proc.ProcessInfo]]
    hidden: set[proc.ProcessInfo] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    over: dict[str, set[proc.ProcessInfo]] = field(default_factory=dict)
    evidence: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, gpus: Iterable[Gpu], groups: Mapping[str, Path], helpers: Collection[int]) -> _ScanBuilder:
        asked = tuple(gpus)
        wanted = device_scan.targets(asked)
        describe = functools.cache(functools.partial(_suspect, namespaces=_Namespaces(groups), helpers=helpers))
        return cls(wanted, frozenset(gpu.uuid for gpu in asked), describe, {uuid: set() for uuid in wanted})

    def add(self, seen: device_scan.Scan[str]) -> None:
        """Add the result of one scan of all processes."""
        self._add(seen)
        self.hidden.update(seen.uninspectable)
        for process in seen.over:
            if uid := pod_of(process.pid):
                self.over.setdefault(uid, set()).add(process)

    def add_within(self, uid: str, within: _PodScan) -> None:
        """Add the result for one pod."""
        self._add(within.seen)
        if within.over:
            self.over.setdefault(uid, set()).update(within.seen.over)
        if within.stillness is FreezeResult.MOVING:
            self.moving.add(uid)

    def add_recorded(self, recorded: Recorded) -> None:
        """Add the processes for which a driver keeps the GPUs."""
        for uuid, pids in recorded(self.found.keys()).items():
            self.found[uuid].update(process for pid in sorted(pids) if (process := proc.describe(pid)))

    def _add(self, seen: device_scan.Scan[str]) -> None:
        for uuid, processes in seen.holders.items():
            self.found[uuid].update(processes)
        self.evidence.update(seen.evidence)

    def result(self) -> HolderScan:
        """Return all findings."""
        return HolderScan(
            {uuid: self._described(some) for uuid, some in self.found.items()},
            self._described(self.hidden),
            self.scanned,
            frozenset(self.moving),
            {uid: self._described(some) for uid, some in self.over.items()},
            self.evidence,
        )

    def _described(self, processes: Iterable[proc.ProcessInfo]) -> tuple[Suspect, ...]:
        return tuple(self.describe(process) for process in sorted(processes))


class _Namespaces:
    """The namespaces of the managed pods' containers, found when first needed: a pod may have many processes."""

    def __init__(self, groups: Mapping[str, Path]) -> None:
        self._groups = groups

    @functools.cached_property
    def machine(self) -> frozenset[int]:
        """Namespaces of the machine itself."""
        return namespaces(KTHREADD) | namespaces(1)

    @functools.cached_property
    def pods(self) -> frozenset[int]:
        """Namespaces of some processes of each pod: all of one container have most of theirs in common."""
        return frozenset(
            number
            for group in self._groups.values()
            for member in cgroup.processes(group)[:MEMBERS]
            for number in namespaces(member)
        )


def _suspect(process: proc.ProcessInfo, *, namespaces: _Namespaces, helpers: Collection[int]) -> Suspect:
    pod = pod_of(process.pid)
    exempt = process.pid == os.getpid() or (process.pid in helpers and _beside_us(process.pid))
    escaped = pod is None and not exempt and _escaped(process.pid, namespaces)
    return Suspect(process.pid, process.start, process.command, pod, exempt, escaped)


def _beside_us(pid: int) -> bool:
    """Tell whether it is in our own group, where no other process can pose as a helper of ours."""
    try:
        return cgroup.membership(pid).get("") == cgroup.membership().get("")
    except OSError:
        return False


def _escaped(pid: int, known: _Namespaces) -> bool:
    """Tell whether it has a namespace of a managed pod's container that the machine itself has not."""
    own = namespaces(pid) - known.machine
    return bool(own and known.machine and own & known.pods)


def namespaces(pid: int) -> frozenset[int]:
    """Return the numbers of the namespaces of a process; empty for one that is gone."""
    try:
        return frozenset(os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in _NAMESPACES)  # noqa: PTH116
    except OSError:
        return frozenset()


def inner_pid(pid: int) -> int:
    """Return the pid of the process in its pod's pid namespace; 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return int(numbers[1] if len(numbers) > 1 else numbers[0])
    except OSError:
        return 0
    return 0
