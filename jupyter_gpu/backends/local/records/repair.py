"""Repairs of the state directory: damaged records, records of earlier boots, pods whose server was killed."""

from __future__ import annotations

import logging
from typing import NamedTuple

from jupyter_gpu.backends.local.processes.pod_processes import PodProcesses

from . import notify
from .other_pods import OtherPod, is_of_another_boot, read_others
from .store import Contents, Session, StateStore

_log = logging.getLogger(__name__)


class OtherPods(NamedTuple):
    """The other pods as the state directory has them, read under the lock."""

    pods: tuple[OtherPod, ...]
    unreadable: frozenset[str]
    """Uids of pods that live and whose records cannot be read."""
    repairs: tuple[str, ...]
    """Repairs that were made, in plain words."""

    @property
    def dead(self) -> tuple[OtherPod, ...]:
        """Pods whose server is gone."""
        return tuple(other_pod for other_pod in self.pods if other_pod.dead)


def tidy(store: StateStore, session: Session, found: Contents, own: str) -> OtherPods:
    """Remove void records, set damaged ones aside, and notify their servers to write them again."""
    for name in found.leftovers:
        session.discard(name)
    for uid, entry in found.entries.items():
        if uid != own and is_of_another_boot(entry.record):
            session.remove(uid)
    unreadable, repairs = _damaged(store, session, found, own)
    return OtherPods(read_others(found.entries, own), unreadable, repairs)


def _damaged(store: StateStore, session: Session, found: Contents, own: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Find pods that have a socket but no record, or a damaged one."""
    suspects = (found.damaged.keys() | found.sockets - found.entries.keys()) - {own}
    if not suspects:
        return frozenset(), ()
    deaf = notify.send(store.pods, (f"{uid}.sock" for uid in suspects))
    unreadable = set()
    repairs = []
    for uid in sorted(suspects):
        if f"{uid}.sock" not in deaf or PodProcesses(uid).pids():
            unreadable.add(uid)  # its server writes the record again, or its last process ends
        elif session.set_aside(uid) and uid in found.damaged:
            repairs.append(f"A damaged record was moved aside ({uid}.bad): {found.damaged[uid]}")
            _log.warning("%s", repairs[-1])
        if f"{uid}.sock" in deaf:
            session.discard(f"{uid}.sock")
    return frozenset(unreadable), tuple(repairs)
