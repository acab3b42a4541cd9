"""Putting the state directory right: damaged records, records of earlier boots, pods whose server was killed."""

from __future__ import annotations

import logging
from typing import NamedTuple

from . import notify
from .other_pods import Neighbour, survey, void
from .pod_processes import Place
from .store import Contents, Session, Store

_log = logging.getLogger(__name__)


class World(NamedTuple):
    """Everything outside of the own pod, under the lock."""

    neighbours: tuple[Neighbour, ...]
    unreadable: frozenset[str]
    """Uids of pods that live and whose records cannot be read."""
    repairs: tuple[str, ...]
    """Repairs that were made, in plain words."""

    @property
    def dead(self) -> tuple[Neighbour, ...]:
        """Pods whose server is gone."""
        return tuple(neighbour for neighbour in self.neighbours if neighbour.dead)


def tidy(store: Store, session: Session, found: Contents, own: str) -> World:
    """Remove what certainly means nothing, move damaged records aside, tell their owners to write them again."""
    for name in found.leftovers:
        session.discard(name)
    for uid, entry in found.entries.items():
        if uid != own and void(entry.record):
            session.remove(uid)
    unreadable, repairs = _damaged(store, session, found, own)
    return World(survey(found.entries, own), unreadable, repairs)


def _damaged(store: Store, session: Session, found: Contents, own: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Find pods that have a socket but no readable record, or a record that is none."""
    suspects = (found.damaged.keys() | found.sockets - found.entries.keys()) - {own}
    if not suspects:
        return frozenset(), ()
    deaf = notify.send(store.pods, (f"{uid}.sock" for uid in suspects))
    unreadable = set()
    repairs = []
    for uid in sorted(suspects):
        if f"{uid}.sock" not in deaf or Place(uid).processes():
            unreadable.add(uid)  # its server writes the record again, or its last process ends
        elif session.set_aside(uid) and uid in found.damaged:
            repairs.append(f"A damaged record was moved aside ({uid}.bad): {found.damaged[uid]}")
            _log.warning("%s", repairs[-1])
        if f"{uid}.sock" in deaf:
            session.discard(f"{uid}.sock")
    return frozenset(unreadable), tuple(repairs)
