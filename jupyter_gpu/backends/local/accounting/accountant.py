"""Counts the GPU time of a machine's users from the records of its pods, at each change of one of them."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.backends.local.limits.rules.meters import Meters, Moment, accounts_of, counted, resumed
from jupyter_gpu.backends.local.processes.identity import boot, namespace, since_boot
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.backends.local.records.other_pods import OtherPod, read_others
from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.common import faults
from jupyter_gpu.common.hub_users import HubUsers
from jupyter_gpu.common.machine_users import Users
from jupyter_gpu.common.machine_zone import machine_zone
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.limits.machine_use import MachinePod, MachineUse
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_node.processes import inotify

from .account_files import AccountFiles, Unusable
from .ended_pods import ended
from .machine_gpus import MachineGpus

HEARTBEAT = 60.0
"""Seconds between two writes, even if nothing changes: servers see by it that GPU-hours are being counted."""
LOOK = 5.0
"""Seconds between two looks while GPUs are held, beside those that a change causes."""
RETRY = 1.0
"""Seconds until something is tried again, or looked at that causes no event."""
LEAST = 0.02
"""Seconds between two looks, however often records change."""
_EVENTS = inotify.MOVED_TO | inotify.DELETE | inotify.DELETE_SELF | inotify.MOVE_SELF
_log = logging.getLogger(__name__)


class HubUserNames(NamedTuple):
    """The users of a hub."""

    pods: Mapping[str, str] = MappingProxyType({})
    """Names by uid of the pod."""
    groups: Mapping[str, frozenset[str]] = MappingProxyType({})
    """By name."""


class Accountant:
    """The accounts of the users of one state directory.

    Raises `Unusable` for stored ones that can't be read, `OSError` and `FieldError` for the hub's key. ``gpus``: those
    of the machine, for the service of a hub; ``None``: it is told nothing.
    """

    def __init__(self, store: StateStore, files: AccountFiles, hub: HubUsers, gpus: MachineGpus | None = None) -> None:
        self._store, self._files, self._gpus = store, files, gpus
        self._hub, self._key = hub, hub.key()
        self._users = Users()
        self._zone = machine_zone()
        self._queue = inotify.open_queue()
        self._held: dict[str, tuple[Owner, int]] = {}
        """Owner and milli by uid of the pod."""
        self._hub_users = HubUserNames()
        self._servers: frozenset[int] = frozenset()
        """Pids of the servers that hold GPUs."""
        self._written = -HEARTBEAT  # seconds since boot
        self._pods: dict[str, MachinePod] = {}
        self._use: MachineUse | None = None
        stored, moment = files.read(), self._moment()
        self._meters: Meters = resumed(stored, moment) if stored else {}

    def run(self) -> None:
        """Count until the process ends."""
        while True:
            self._watch()
            self._wait(self.look())

    def look(self) -> float:
        """Count until now, and write what changed; return the seconds until the next look that no event causes."""
        try:
            with self._store.locked() as session:
                found, moment = session.read(), self._moment()
        except BackendUnavailable as error:
            _log.warning("%s", error)
            return RETRY
        others = self._without_ended(read_others(found.entries, own=""))
        self._users.learn(other.owner for other in others)
        before = self._holds(), self._hub_users
        self._hub_users = self._proven(others)
        self._held = {
            # A record that can't be read now is written again soon: until then what it said last counts.
            **{uid: held for uid, held in self._held.items() if uid in found.damaged},
            **self._held_by(others),
        }
        after = self._holds()
        self._meters = counted(self._meters, after, moment)
        faults.point("accounts:counted")
        due, use = moment.at >= self._written + HEARTBEAT, self._machine_use(others, found.damaged)
        try:
            if due or (after, self._hub_users) != before:
                self._files.write(accounts_of(self._meters, moment, *self._hub_users))
                self._written = moment.at
            if use and (due or use != self._use):
                self._files.write_use(use.encode(moment.boot, moment.at))
                self._use = use
        except Unusable as error:
            _log.error("%s", error)
            self._written, self._use = -HEARTBEAT, None
            return RETRY
        remains = any(other.dead and other.uid in self._held for other in others)
        return RETRY if remains else LOOK if self._held else HEARTBEAT / 2

    def _held_by(self, others: tuple[OtherPod, ...]) -> dict[str, tuple[Owner, int]]:
        """Return what pods hold. A server that was killed has ended with the last process of its pod."""
        # All that a record claims counts: a false one can only add to the use of its own writer.
        held = {
            other.uid: (self._owner(other), sum(other.held.values()))
            for other in others
            if other.held and not (other.dead and not other.processes.pids())
        }
        here = (other for other in others if other.uid in held and not other.dead)
        self._servers = frozenset(other.record.server.pid for other in here if other.record.namespace == namespace())
        return held

    def _machine_use(self, others: Iterable[OtherPod], damaged: Collection[str]) -> MachineUse | None:
        """Return the machine's GPUs and pods for the service of a hub; ``None``: not known yet, or not wanted."""
        known = self._gpus.read() if self._gpus else None
        # A pod that has ended is there until its last process has; of a damaged record what it said last counts.
        self._pods = {
            **{uid: pod for uid, pod in self._pods.items() if uid in damaged},
            **{other.uid: self._pod(other) for other in others if not other.dead or other.uid in self._held},
        }
        return MachineUse(*known, tuple(self._pods[uid] for uid in sorted(self._pods))) if known else None

    def _pod(self, other: OtherPod) -> MachinePod:
        record = other.record
        states = record.requested, record.allocated, record.attached
        return MachinePod(other.uid, self._owner(other).name, record.server.pid, other.dead, *states)

    def _without_ended(self, others: tuple[OtherPod, ...]) -> tuple[OtherPod, ...]:
        """Remove the pods of containers that have ended, and tell the other servers; return the rest."""
        gone = {pod.uid for pod in ended(others)}
        if not gone:
            return others
        left = tuple(other for other in others if other.uid not in gone)
        with contextlib.suppress(BackendUnavailable):  # it is tried again
            with self._store.locked() as session:
                for uid in gone:
                    session.remove(uid)
                    _log.info("Pod %s ended with its container; what it had is free now.", uid)
            notify.send(self._store.pods, [f"{other.uid}.sock" for other in left if not other.dead])
        return left

    def _owner(self, other: OtherPod) -> Owner:
        name = self._hub_users.pods.get(other.uid) or self._users.get(other.owner).name
        return Owner("User", name, HUB)

    def _proven(self, others: Iterable[OtherPod]) -> HubUserNames:
        """Return the pods that have proven whose they are in the hub, and the groups of these users."""
        proofs = {other.uid: other.record.hub_user for other in others}
        pods = {uid: proof.name for uid, proof in proofs.items() if proof and proof.is_valid(self._key, uid)}
        return HubUserNames(pods, {name: self._hub.groups(name) for name in sorted(set(pods.values()))})

    def _holds(self) -> dict[Owner, int]:
        """Return the milli that each owner holds."""
        found: Counter[Owner] = Counter()
        for owner, milli in self._held.values():
            found[owner] += milli
        return dict(found)

    def _moment(self) -> Moment:
        return Moment(boot(), since_boot(), time.time(), self._zone)

    def _watch(self) -> None:
        if self._queue is not None:
            inotify.add_watch(self._queue, self._store.pods, _EVENTS)

    def _wait(self, seconds: float) -> None:
        """Wait for a change of a record or of the GPUs, the end of a server, or so many seconds."""
        waiting, ends = select.poll(), list(_ends(self._servers))
        others = [] if self._gpus is None else [self._gpus.fileno()]
        for descriptor in [*others, *ends] if self._queue is None else [self._queue, *others, *ends]:
            waiting.register(descriptor, select.POLLIN)
        try:
            waiting.poll(seconds * 1000)
        finally:
            for descriptor in ends:
                os.close(descriptor)
        time.sleep(LEAST)
        if self._queue is not None:
            inotify.drain(self._queue)


def _ends(pids: Iterable[int]) -> Iterable[int]:
    """Yield a descriptor for each process, which becomes readable when it ends."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or too many files are open: the next look finds it
            yield os.pidfd_open(pid)
