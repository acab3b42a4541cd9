"""A look at who has GPUs open, told for one pod: its own processes and those that it must have given them to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu_node import proc

from .membership import Place, members
from .processes import Process

MAX_COMMAND = 256


@dataclass(frozen=True, slots=True)
class Excuses:
    """Processes of no pod that may have GPUs open for ever."""

    names: frozenset[str] = frozenset()
    """Of programs, as the administrator listed them."""
    outside: frozenset[Process] = frozenset()
    """Those that had a GPU open before it was granted."""
    helpers: frozenset[int] = frozenset()
    """Pids of processes that ask the driver about GPUs, for all servers: they use none."""

    def __contains__(self, process: proc.Process) -> bool:
        listed = process.command in self.names or process.pid in self.helpers
        return listed or Process.of(process) in self.outside


@dataclass(frozen=True, slots=True)
class Suspects:
    """Which processes that may not be inspected could hold a GPU of a pod: those that are younger than its server.

    Older ones are part of the machine (the first process of a container, say): they would keep every GPU for ever.
    """

    server: Process
    user: int | None = None
    """Only this user's; ``None``: any user's."""

    def __contains__(self, process: proc.Process) -> bool:
        return process.start >= self.server.started and self.user in (None, process.user)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose processes count as holders."""

    pod: Place
    neighbours: Mapping[str, Sequence[Place]] = field(default_factory=dict)
    """By uuid, the other pods that rightfully have it open: they share the GPU."""
    excuses: Excuses = Excuses()
    suspects: Suspects | None = None
    """Processes that cannot be inspected and count all the same; ``None``: none of them."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look found."""

    holders: Mapping[str, tuple[Holder, ...]] = field(default_factory=dict)
    """By uuid."""
    processes: frozenset[Process] = frozenset()
    """The same, so that their end can be watched."""
    looked: frozenset[str] = frozenset()
    """The uuids that were looked for: of any other nothing is proven."""

    @property
    def busy(self) -> frozenset[str]:
        """The uuids that somebody holds."""
        return frozenset(uuid for uuid, holders in self.holders.items() if holders)


def look(gpus: Iterable[Gpu], scope: Scope, *, proof: bool = True) -> Sight:
    """Search `/proc` for holders of ``gpus``. Without ``proof`` memory mappings are left out: good to show, no more."""
    wanted = proc.targets(gpus)
    if not wanted:
        return Sight()
    # A program of the pod can hide a descriptor in a socket or in io_uring: for a proof these are searched too.
    seen = proc.scan(wanted, mappings=proof, pod=scope.pod.processes() if proof else ())
    pids = {process.pid for processes in seen.holders.values() for process in processes}
    own = scope.pod.among(pids) if pids else frozenset()
    others = members({place for places in scope.neighbours.values() for place in places}, pids - own)
    # Whoever cannot be looked into may have every one of them.
    suspects = scope.suspects or ()
    hidden = tuple(found for found in seen.uninspectable if found in suspects and found not in scope.excuses)
    holders: dict[str, tuple[Holder, ...]] = {}
    counted: set[Process] = set()
    for uuid, processes in seen.holders.items():
        rightful = frozenset[int]().union(*(others[place.uid] for place in scope.neighbours.get(uuid, ())))
        guilty = [
            process
            for process in processes
            if process.pid in own or not (process.pid in rightful or process in scope.excuses)
        ]
        holders[uuid] = tuple(_holder(process, process.pid not in own) for process in (*guilty, *hidden))
        counted.update(map(Process.of, guilty))
    return Sight(holders, frozenset(counted))


def strangers(gpus: Iterable[Gpu], places: Iterable[Place]) -> frozenset[Process]:
    """Processes of no pod that have one of ``gpus`` open now."""
    wanted = proc.targets(gpus)
    if not wanted:
        return frozenset()
    found = {process for processes in proc.scan(wanted).holders.values() for process in processes}
    known = frozenset[int]().union(*members(places, (process.pid for process in found)).values())
    return frozenset(Process.of(process) for process in found if process.pid not in known)


def _holder(process: proc.Process, foreign: bool) -> Holder:
    # Any program chooses its own name, control characters included.
    return Holder(process.pid, strict.printable(process.command, MAX_COMMAND), foreign)
