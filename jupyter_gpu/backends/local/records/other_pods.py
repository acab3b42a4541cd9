"""The other pods of the machine: their records, how far these are trusted, and which pods are dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jupyter_gpu.backends.local.processes.identity import alive, boot, namespace, users
from jupyter_gpu.backends.local.processes.pod_processes import PodProcesses
from jupyter_gpu.model.annotations import held

from .record import Record
from .store import RecordEntry

NODE = "local"
"""Name of the only node there is."""


class OtherPod(NamedTuple):
    """One other pod."""

    record: Record
    owner: int
    """User id of the record's owner."""
    dead: bool
    """Whether its server is gone; what it held is free once no process of it is left."""

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return self.record.uid

    @property
    def processes(self) -> PodProcesses:
        """Its processes. Only root makes groups, so they are trusted only in a record of root."""
        record = self.record
        return PodProcesses.at(self.uid, record.place) if self.owner == 0 and record.place else PodProcesses(self.uid)

    @property
    def held(self) -> Mapping[str, int]:
        """Milli by uuid: the most of allocated, attached and draining."""
        return held(self.record.allocated, self.record.attached)


def read_others(entries: Mapping[str, RecordEntry], own: str) -> tuple[OtherPod, ...]:
    """Return all other pods, by uid; without those of another boot, which hold nothing."""
    return tuple(
        OtherPod(entry.record, entry.owner, _dead(entry))
        for uid, entry in sorted(entries.items())
        if uid != own and not is_of_another_boot(entry.record)
    )


def is_of_another_boot(record: Record) -> bool:
    """Tell whether all of it ended with an earlier boot."""
    return record.boot != boot()


def _dead(entry: RecordEntry) -> bool:
    record = entry.record
    if record.namespace != namespace():
        return False  # its pids mean nothing here: assume that it lives rather than take its GPUs
    return record.ended or not alive(record.server) or _forged(entry)


def _forged(entry: RecordEntry) -> bool:
    """Tell whether it names a server of another user: no pod keeps GPUs by naming another user's process."""
    found = users(entry.record.server.pid)
    return entry.owner != 0 and bool(found) and entry.owner not in found


def sharers(other_pods: Iterable[OtherPod]) -> dict[str, tuple[PodProcesses, ...]]:
    """Return by uuid the processes of the pods that may rightfully have it open."""
    found: dict[str, tuple[PodProcesses, ...]] = {}
    for other_pod in other_pods:
        for uuid in other_pod.held:
            found[uuid] = (*found.get(uuid, ()), other_pod.processes)
    return found
