"""A scan for the processes that have a pod's GPUs open: its own, and others that must have got them from it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap

from jupyter_gpu.backends.local.processes.pod_processes import PodProcesses, by_pod
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu_node.holders.rules.rights import HolderKind, ReleasingPod, Rights, Suspect, classify, holders
from jupyter_gpu_node.processes import device_scan, proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .scan_result import ScanResult
from .strangers import MAX_COMMAND, quiet


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Processes of no pod that may have GPUs open for ever."""

    names: frozenset[str] = frozenset()
    """Program names that the administrator listed, as `commands` cut them off."""
    outside: frozenset[ProcessId] = frozenset()
    """Those that had a GPU open before it was granted."""
    helpers: frozenset[int] = frozenset()
    """Pids of processes that ask the driver about GPUs, for all servers: they use none."""

    def __contains__(self, process: proc.ProcessInfo) -> bool:
        """Tell whether a process is exempt by name or pid: it may have GPUs open, and uses none."""
        return process.command in self.names or process.pid in self.helpers


@dataclass(frozen=True, slots=True)
class Suspects:
    """The processes that may not be inspected and could hold a GPU of a pod: those younger than its server.

    Older ones are part of the machine (the first process of a container, say): they would keep every GPU for ever.
    """

    server: ProcessId
    user: int | None = None
    """User whose processes count; ``None``: those of all users."""

    def __contains__(self, process: proc.ProcessInfo) -> bool:
        return process.start >= self.server.start and self.user in (None, process.user)


@dataclass(frozen=True, slots=True)
class Family:
    """The properties of a pod's processes that every user can see."""

    server: ProcessId
    user: int

    def has(self, process: proc.ProcessInfo, *, hidden: bool) -> bool:
        """Tell whether a process descends from the server; for a ``hidden`` one, the same user is enough."""
        if hidden and process.user == self.user:
            return True
        return (self.server.pid, self.server.start) in proc.ancestry(process.pid, process.start)


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules by which processes count as holders."""

    pod: PodProcesses
    sharers: Mapping[str, Sequence[PodProcesses]] = field(default_factory=dict)
    """By uuid, the other pods that rightfully have it open: they share the GPU."""
    exemptions: Exemptions = Exemptions()
    suspects: Suspects | None = None
    """Processes that cannot be inspected and count all the same; ``None``: none of them."""
    families: Mapping[str, Sequence[Family]] = field(default_factory=dict)
    """By uuid, all pods that rightfully have it open, including this one, by what every user can see of them."""
    pods: Sequence[PodProcesses] = ()
    """All other pods."""
    driver_users: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By uuid, pids that the driver says use it: for processes that may not be inspected, and GPUs without a device."""
    kept: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By uuid, pids for which the driver keeps it, though they may have closed its device."""


def scan(gpus: Iterable[Gpu], scope: Scope, *, proof: bool = True, mappings: bool = True) -> ScanResult:
    """Search `/proc` for holders of ``gpus``.

    Without ``proof`` the result is only to show and to choose by, and memory ``mappings`` may be left out.
    """
    asked = tuple(gpus)
    wanted = device_scan.targets(asked)
    # A program of the pod can hide a descriptor in a socket or in io_uring: for a proof these are searched too.
    pod = scope.pod.pids() if proof and wanted else ()
    seen: device_scan.Scan[str] = (
        device_scan.scan(wanted, mappings=proof or mappings, pod=pod) if wanted else device_scan.Scan({}, ())
    )
    # Only the driver knows the users of a GPU that has no device.
    bare = {
        gpu.uuid: _described(scope.driver_users[gpu.uuid])
        for gpu in asked
        if gpu.uuid in scope.driver_users.keys() - wanted
    }
    found = {**seen.holders, **bare}
    for uuid in found.keys() & scope.kept.keys():
        found[uuid] = tuple(sorted({*found[uuid], *_described(scope.kept[uuid])}))
    if not found:
        return ScanResult()
    pods = _Pods.of(scope, {process.pid for processes in found.values() for process in processes})
    # A process that cannot be inspected may have every one of them open.
    suspects = scope.suspects or ()
    hidden = pods.blocking("", (one for one in seen.uninspectable if one in suspects), Rights())
    blocking = {uuid: pods.blocking(uuid, processes, pods.rights) for uuid, processes in found.items()}
    return ScanResult(
        holders={uuid: tuple(starmap(_holder, (*some, *hidden))) for uuid, some in blocking.items()},
        processes=frozenset(suspect.process for some in blocking.values() for suspect, _ in some),
        strangers={uuid: pods.strangers(uuid, some, seen.uninspectable) for uuid, some in found.items()},
        podless={uuid: pods.podless(uuid, some) for uuid, some in found.items()},
    )


def opened(
    gpus: Iterable[Gpu], pids: frozenset[int], driver_users: Mapping[str, frozenset[int]]
) -> dict[str, tuple[proc.ProcessInfo, ...]]:
    """Return, by uuid, which of ``pids`` have a GPU open, by descriptors and by what the driver says; never a proof."""
    asked = tuple(gpus)
    found = {uuid: set(processes) for uuid, processes in device_scan.open_descriptors(asked, pids).items()}
    for gpu in asked:
        found.setdefault(gpu.uuid, set()).update(_described(driver_users.get(gpu.uuid, frozenset()) & pids))
    return {uuid: tuple(sorted(processes)) for uuid, processes in found.items() if processes}


def families(other_pods: Iterable[OtherPod], gpus: Iterable[str], own: Record) -> dict[str, tuple[Family, ...]]:
    """Return by uuid of ``gpus`` the pods that may rightfully have it open: this one every one of them."""
    me = Family(own.server, os.geteuid())
    found: dict[str, tuple[Family, ...]] = dict.fromkeys(gpus, (me,))
    for other_pod in other_pods:
        for uuid in other_pod.held.keys() & found:
            found[uuid] = (*found[uuid], Family(other_pod.record.server, other_pod.owner))
    return found


@dataclass(frozen=True, slots=True)
class _Pods:
    """The pods to which the processes of a scan belong."""

    scope: Scope
    own: frozenset[int]
    others: Mapping[str, frozenset[int]]
    """By uid, pids of each other pod."""
    rights: Rights

    @classmethod
    def of(cls, scope: Scope, pids: Collection[int]) -> _Pods:
        own = scope.pod.among(pids) if pids else frozenset()
        others = {place for places in (*scope.sharers.values(), scope.pods) for place in places}
        shared: dict[str, set[str]] = {}
        for uuid, places in scope.sharers.items():
            for place in places:
                shared.setdefault(place.uid, set()).add(uuid)
        rights = Rights({**shared, scope.pod.uid: None})
        return cls(scope, own, by_pod(others, frozenset(pids) - own), rights)

    def suspect(self, uuid: str, process: proc.ProcessInfo) -> Suspect:
        """Describe a process that has the GPU open."""
        exempt = process in self.scope.exemptions
        return Suspect(process.pid, process.start, process.command, self._pod_of(uuid, process.pid), exempt)

    def _pod_of(self, uuid: str, pid: int) -> str | None:
        """Return the uid of a process's pod. Of several, one inside the other, one with a right to the GPU counts."""
        if pid in self.own:
            return self.scope.pod.uid
        pods = (uid for uid, pids in self.others.items() if pid in pids)
        return max(pods, key=lambda uid: uuid in (self.rights.pods.get(uid) or ()), default=None)

    def blocking(
        self, uuid: str, processes: Iterable[proc.ProcessInfo], rights: Rights
    ) -> tuple[tuple[Suspect, bool], ...]:
        """Return the processes that keep the GPU from being free, each with whether it is foreign to the pod."""
        pod = ReleasingPod(self.scope.pod.uid, outside=self.scope.exemptions.outside)
        return holders((self.suspect(uuid, process) for process in processes), uuid, pod, rights)

    def podless(self, uuid: str, processes: Iterable[proc.ProcessInfo]) -> tuple[proc.ProcessInfo, ...]:
        """Return the processes that belong to no pod."""
        return tuple(process for process in processes if self.suspect(uuid, process).pod is None)

    def strangers(
        self, uuid: str, processes: Iterable[proc.ProcessInfo], hidden: Iterable[proc.ProcessInfo]
    ) -> tuple[proc.ProcessInfo, ...]:
        """Return the processes that use the GPU without a grant; of ``hidden`` ones, those that the driver names."""
        reported = self.scope.driver_users.get(uuid, frozenset())
        families = self.scope.families.get(uuid, ())
        seen = [
            one for one in processes if classify(self.suspect(uuid, one), uuid, self.rights) is not HolderKind.RIGHTFUL
        ]
        unseen = [one for one in hidden if one.pid in reported and one not in self.scope.exemptions]
        return tuple(
            process
            for process in (*seen, *unseen)
            if not quiet(process) and not any(family.has(process, hidden=process in unseen) for family in families)
        )


def _described(pids: Iterable[int]) -> tuple[proc.ProcessInfo, ...]:
    return tuple(process for pid in sorted(pids) if (process := proc.describe(pid)))


def _holder(suspect: Suspect, foreign: bool) -> Holder:
    # Any program chooses its own name, control characters included.
    return Holder(suspect.pid, strict.printable(suspect.command, MAX_COMMAND), foreign)
