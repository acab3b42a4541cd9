"""The record of this server's pod, and those of the others as they were read last. All of it under the store's lock."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.model.annotations import held
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.limits import hub_user
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from . import notify
from .record import Record
from .repair import OtherPods, tidy
from .store import Session, StateStore

_log = logging.getLogger(__name__)


class OwnRecord:
    """The record of one pod, as its server knows it; the server is its only writer."""

    def __init__(self, store: StateStore, limit: int | None) -> None:
        server = identify(os.getpid())
        assert server is not None
        self._store = store
        self._written = False
        uid = uuid.uuid4().hex
        proof = hub_user.prove(os.environ.get(hub_user.VARIABLE, ""), uid)
        self.record = Record(uid, server, boot(), namespace(), limit=limit, hub_user=proof)
        self.others = OtherPods((), frozenset(), ())
        """The other pods, at the last `join`."""
        self.socket: socket.socket | None = None
        """Socket on which other servers notify this pod."""
        self.repairs: tuple[str, ...] = ()
        """Repairs since the last wish, in words."""

    @property
    def uid(self) -> str:
        """Identity of the pod; a new one at each start of the server."""
        return self.record.uid

    @property
    def milli_by_gpu(self) -> Mapping[str, int]:
        """Milli by uuid: the most of allocated, attached and draining."""
        return held(self.record.allocated, self.record.attached)

    @property
    def held(self) -> frozenset[str]:
        """Uuids of the GPUs that the pod has or has not closed yet."""
        return frozenset(self.milli_by_gpu)

    @property
    def milli(self) -> int:
        """Allocated milli."""
        return total(self.record.allocated.shares) if self.record.allocated else 0

    @property
    def owed(self) -> bool:
        """Whether it waits in line."""
        return self.record.allocated is not None and self.record.allocated.ticket is not None

    @property
    def draining(self) -> frozenset[str]:
        """Uuids of the GPUs that it gave back and has not closed yet."""
        return frozenset(item.uuid for item in self.record.attached.draining) if self.record.attached else frozenset()

    def join(self, session: Session) -> None:
        """Read the other pods, and write our own record again if it is missing or differs."""
        found = session.read()
        self.others = tidy(self._store, session, found, self.uid)
        self.repairs += self.others.repairs
        mine = found.entries.get(self.uid)
        if mine is None or mine.record != self.record or mine.owner != os.geteuid():
            if self._written:
                self._drop_granted_elsewhere(found.damaged.get(self.uid) or "somebody removed or changed it")
            session.write(self.record)
            self._written = True
        if self.uid not in found.sockets or self.socket is None:
            self.socket = notify.listen(self._store.pods, f"{self.uid}.sock")

    def _drop_granted_elsewhere(self, why: str) -> None:
        """Give up what other pods were granted while our record was gone."""
        self.repairs += (f"This server's record was damaged and was written again: {why}.",)
        _log.warning("%s", self.repairs[-1])
        allocated = self.record.allocated
        if allocated is None:
            return
        taken: dict[str, int] = {}
        for other in self.others.pods:
            for gpu, milli in other.held.items():
                taken[gpu] = taken.get(gpu, 0) + milli
        kept = tuple(s for s in allocated.shares if taken.get(s.uuid, 0) + s.milli <= MILLI_PER_GPU)
        self.record = self.record._replace(allocated=replace(allocated, shares=kept))

    def enter(self, place: str | None) -> None:
        """Note where the pod's processes are; it is written with the next `join`."""
        self.record = self.record._replace(place=place)
        self._written = False

    def save(self, session: Session, **changes: Any) -> None:
        """Change the record: the file first, so that after a failure the record here is what the file says."""
        after = self.record._replace(**changes)
        if after != self.record:
            session.write(after)
            self.record = after

    def notify_self(self) -> None:
        """Have this server reconcile. Any thread may call it."""
        with contextlib.suppress(OSError):
            notify.send(self._store.pods, [f"{self.uid}.sock"])

    def notify_others(self) -> None:
        """Have the other servers reconcile."""
        notify.send(self._store.pods, (f"{pod.uid}.sock" for pod in self.others.pods if not pod.dead))
