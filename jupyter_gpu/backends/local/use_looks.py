"""Repeated looks at what a pod does with its GPUs: so a shrink takes idle ones, and others see which are idle.

The rule and its bounds are those of a node plugin (`UseScans`). What it publishes is written into the pod's record.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu_node.gpus.registry import Registry

from .records.own_record import OwnRecord
from .scans.pod_scanner import PodScanner
from .sharing.pod_client import PodClient

if TYPE_CHECKING:  # loaded with the first GPU, not when a server starts
    from jupyter_gpu_node.agent.rules.use_class import UseScans

    from .scans.used_gpus import UsedGpus

LEAST = 1.0
"""Seconds that a look must cover: a shrink that comes sooner after one relies on it."""


class UseLooks:
    """The looks at one pod's GPUs, ``every`` so many seconds. An open GPU rests after ``rest`` seconds without use."""

    def __init__(
        self, own: OwnRecord, registry: Registry, scanner: PodScanner, client: PodClient, *, every: float, rest: float
    ) -> None:
        self._own, self._registry, self._scanner, self._client = own, registry, scanner, client
        self._every, self._rest = every, rest
        self._scans: UseScans | None = None
        self._used: UsedGpus | None = None
        self._last = float("-inf")
        """Time of the last look, on the clock of `time.monotonic`."""

    @property
    def resting(self) -> frozenset[str]:
        """Uuids of the open GPUs that rest according to the last looks."""
        return self._scans.resting if self._scans else frozenset()

    def pause(self, now: float) -> float:
        """Return the seconds until the next look; the first one is taken some time after the grant, too."""
        return max(0.0, self._last + self._every - now) if self._scans else self._every

    def look(self, every: float | None = None) -> None:
        """Look at the attached GPUs, unless the last look is less than ``every`` seconds ago."""
        attached, now = self._own.record.attached, time.monotonic()
        if not attached or not attached.shares:  # what is granted later begins anew
            self._scans = self._used = None
            return
        if self._scans and now < self._last + (self._every if every is None else every):
            return
        from jupyter_gpu_node.agent.rules.use_class import UseScan, UseScans  # with the first GPU

        from .scans.used_gpus import UsedGpus

        self._scans = self._scans or UseScans()
        self._used = self._used or UsedGpus(self._registry, self._client.turns_so_far)
        opened = self._scanner.opened(share.uuid for share in attached.shares)
        used = self._used.read(opened, now - self._last)
        self._last = now
        self._scans.observe(UseScan(now, frozenset(opened), used), self._rest)

    def record_in(self, attached: Attached) -> Attached:
        """Return the record with the use as it was published last."""
        if self._scans is None or self._scans.open is None:
            return replace(attached, open=(), rests=())
        from jupyter_gpu_node.agent.rules.use_class import reported

        opened, rests = reported(attached.shares, self._scans.open, self._scans.rests)
        return replace(attached, open=opened, rests=rests)
