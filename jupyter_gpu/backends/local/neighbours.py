"""The other pods of the machine: what their records say, how far it is believed, and which of them are dead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.snapshot import PodState

from .look import Excuses, Family, Scope, Suspects, look
from .membership import Place
from .processes import alive, boot, namespace, users
from .record import Record
from .store import Entry

NODE = "local"
"""Name of the only node there is."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One other pod."""

    record: Record
    owner: int
    """User id of the record's owner."""
    dead: bool
    """Its server is gone; what it held is free once nothing of it is left."""

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return self.record.uid

    @property
    def place(self) -> Place:
        """Place of its processes. Only root makes groups, so only root is believed about them."""
        record = self.record
        return Place.at(self.uid, record.place) if self.owner == 0 and record.place else Place(self.uid)

    @property
    def held(self) -> Mapping[str, int]:
        """Milli by uuid: the most of allocated, attached and draining."""
        return PodState(self.uid, NODE, None, self.record.allocated, self.record.attached).held


def survey(entries: Mapping[str, Entry], own: str) -> tuple[Neighbour, ...]:
    """Return all other pods, by uid; without those of another boot, which hold nothing."""
    return tuple(
        Neighbour(entry.record, entry.owner, _dead(entry))
        for uid, entry in sorted(entries.items())
        if uid != own and not void(entry.record)
    )


def void(record: Record) -> bool:
    """Tell whether all of it ended with an earlier boot."""
    return record.boot != boot()


def _dead(entry: Entry) -> bool:
    record = entry.record
    if record.namespace != namespace():
        return False  # its pids mean nothing here: believe that it lives rather than take its GPUs
    return record.ended or not alive(record.server) or _forged(entry)


def _forged(entry: Entry) -> bool:
    """Tell whether it names a server of another user: no pod keeps GPUs with a process that is not its owner's."""
    found = users(entry.record.server.pid)
    return entry.owner != 0 and bool(found) and entry.owner not in found


def states(
    neighbours: Iterable[Neighbour], own: Mapping[str, int], overdue: Callable[[Allocated | None], bool]
) -> tuple[PodState, ...]:
    """Return the others as the scheduler sees them, beside a pod that holds ``own`` milli by uuid.

    What they were promised counts as in their hands already: a decision may take it away again, but only their own
    server can carry that out, and until that is written no other pod gets it. What is claimed beyond the whole of a
    GPU is not believed, so a false record cannot take a GPU from a pod that has it. ``overdue``: whether a pod with
    that place in line has waited for too long. Its word for it counts as much as its priority, which it chooses too.
    """
    left: dict[str, int] = {}
    return tuple(
        replace(_state(neighbour, own, left), overdue=overdue(neighbour.record.allocated)) for neighbour in neighbours
    )


def _state(neighbour: Neighbour, own: Mapping[str, int], left: dict[str, int]) -> PodState:
    record = neighbour.record
    believed: dict[str, int] = {}
    for uuid, milli in neighbour.held.items():
        room = left.setdefault(uuid, MILLI_PER_GPU - own.get(uuid, 0))
        if got := min(milli, room):
            believed[uuid] = got
            left[uuid] = room - got
    allocated = record.allocated
    if allocated:
        kept = (GpuShare(s.uuid, min(s.milli, believed[s.uuid])) for s in allocated.shares if s.uuid in believed)
        allocated = replace(allocated, shares=tuple(kept))
    return PodState(
        uid=neighbour.uid,
        node=NODE,
        requested=None if neighbour.dead else record.requested,
        allocated=None if neighbour.dead else allocated,
        # All that is held is named here, what was revoked just before too.
        attached=Attached(
            0,
            tuple(GpuShare(uuid, milli) for uuid, milli in believed.items()),
            revision=allocated.revision if allocated else 0,
        ),
        limit=record.limit,
        gone=neighbour.dead,
    )


def unknown(gpus: Iterable[Gpu], others: Iterable[PodState], own: Mapping[str, int]) -> PodState:
    """Return a stand-in for pods with damaged records: what they hold is unknown, so it is all that is left."""
    rest = {gpu.uuid: MILLI_PER_GPU - own.get(gpu.uuid, 0) for gpu in gpus}
    for other in others:
        for uuid, milli in other.held.items():
            if uuid in rest:
                rest[uuid] -= milli
    draining = tuple(DrainingShare(uuid, milli) for uuid, milli in rest.items() if milli > 0)
    return PodState("damaged", NODE, attached=Attached(0, draining=draining), gone=True)


def sharers(neighbours: Iterable[Neighbour]) -> dict[str, tuple[Place, ...]]:
    """Return by uuid the places of the pods that may rightfully have it open."""
    found: dict[str, tuple[Place, ...]] = {}
    for neighbour in neighbours:
        for uuid in neighbour.held:
            found[uuid] = (*found.get(uuid, ()), neighbour.place)
    return found


def families(neighbours: Iterable[Neighbour], gpus: Iterable[str], own: Record) -> dict[str, tuple[Family, ...]]:
    """Return by uuid of ``gpus`` the pods that may rightfully have it open: this one every one of them."""
    me = Family(own.server, os.geteuid())
    found: dict[str, tuple[Family, ...]] = dict.fromkeys(gpus, (me,))
    for neighbour in neighbours:
        for uuid in neighbour.held.keys() & found:
            found[uuid] = (*found[uuid], Family(neighbour.record.server, neighbour.owner))
    return found


def remains(
    dead: Neighbour, gpus: Mapping[str, Gpu], sharing: Mapping[str, Sequence[Place]], excuses: Excuses
) -> frozenset[int]:
    """Return the pids of what is left of a dead pod: its processes, and others that may have a GPU from it.

    ``gpus``: all that were ever seen. ``sharing``: by uuid, places of other pods that have it. ``excuses``: those of
    the machine; the record tells its own.
    """
    if left := dead.place.processes():
        return left
    scope = Scope(
        pod=dead.place,
        neighbours=sharing,
        excuses=replace(excuses, outside=frozenset(dead.record.outside)),
        suspects=_suspects(dead),
    )
    found = look((gpus[uuid] for uuid in dead.held if uuid in gpus), scope)
    return frozenset(holder.pid for holders in found.holders.values() for holder in holders)


def _suspects(dead: Neighbour) -> Suspects | None:
    if dead.place.group:
        return Suspects(dead.record.server)
    # Without a group every other program of the machine would be suspect: only its user's are, unless we see into them.
    return None if dead.owner in (0, os.geteuid()) else Suspects(dead.record.server, dead.owner)
