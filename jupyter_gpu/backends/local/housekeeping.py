"""Putting the state directory right: damaged records, records of earlier boots, pods whose server was killed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu import faults
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node import cgroup

from . import poke
from .look import Excuses
from .membership import Place
from .neighbours import Neighbour, remains, survey, void
from .store import Contents, Session, Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class World:
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
    deaf = poke.poke(store.pods, (f"{uid}.sock" for uid in suspects))
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


def reap(
    store: Store,
    dead: Iterable[Neighbour],
    gpus: Mapping[str, Gpu],
    sharing: Mapping[str, Sequence[Place]],
    excuses: Excuses,
    groups: Path | None,
) -> tuple[frozenset[str], frozenset[int]]:
    """Bury the dead pods of which nothing is left, with their files where that is allowed.

    Returns their uids, and what is left: pids of the others, see :func:`~.neighbours.remains`, whose end is a reason to
    try again. ``groups``: where the group of a pod is that was killed before it could tell; beside our own.
    """
    gone = []
    left: frozenset[int] = frozenset()
    for pod in dead:
        if pids := remains(pod, gpus, sharing, excuses):
            left |= pids
        elif _remove_group(pod, groups):
            gone.append(pod)
    if gone:
        faults.point("reap:emptied")
        with store.locked() as session:
            for pod in gone:
                session.remove(pod.uid)
                _log.info("Pod %s ended without a word; what it had is free.", pod.uid)
    return frozenset(pod.uid for pod in gone), left


def _remove_group(pod: Neighbour, groups: Path | None) -> bool:
    group = pod.place.group
    if group is None and pod.owner == 0 and groups is not None:
        group = groups / cgroup.group_name(pod.uid)
    if group is None or os.geteuid() != 0:
        return True
    try:
        return cgroup.remove(group)
    except OSError as error:
        _log.warning("The control group %s of a dead pod can't be removed: %s", group, error)
        return False
