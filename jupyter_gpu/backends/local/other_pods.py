"""The other pods of the machine: what their records say, how far it is believed, and which of them are dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jupyter_gpu.model.annotations import held

from .pod_processes import Place
from .process_id import alive, boot, namespace, users
from .record import Record
from .store import Entry

NODE = "local"
"""Name of the only node there is."""


class Neighbour(NamedTuple):
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
        return held(self.record.allocated, self.record.attached)


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


def sharers(neighbours: Iterable[Neighbour]) -> dict[str, tuple[Place, ...]]:
    """Return by uuid the places of the pods that may rightfully have it open."""
    found: dict[str, tuple[Place, ...]] = {}
    for neighbour in neighbours:
        for uuid in neighbour.held:
            found[uuid] = (*found.get(uuid, ()), neighbour.place)
    return found
