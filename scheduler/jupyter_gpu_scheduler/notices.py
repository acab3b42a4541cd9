"""Publishes Events when GPUs will be taken back, above a limit or for others: of each pod concerned, and of the limit.

An Event is written only after the pod's record says so, so nothing is announced that is not decided. The names of the
Events follow from their content (`rules.limits.notices`): the next leader makes none again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jupyter_gpu.kube import Recorder
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.wire import pod_reference

from .cluster_cache import ClusterCache
from .limit_watch import LimitWatch
from .rules.limits.notices import REMEMBERED, PodNotice, limit_notice, pod_notice

LOOK_SECONDS = 0.5
GATHER_SECONDS = 3.0
"""Seconds in which the owners that are above one limit are gathered, for one Event of the limit."""
LOWERED, RECLAIMED = "GpuLimitLowered", "GpusReclaimed"
"""Reasons of Events."""

_LimitKey = tuple[str, int]
"""Name of a limit, and the second at which what is above it is taken back."""


@dataclass(slots=True)
class _LimitNotice:
    """The Event of one limit that is prepared, or was made."""

    due: float
    over: dict[Owner, int] = field(default_factory=dict)
    told: bool = False


class LimitNotices:
    """The notices of one process; `begin` and `keep` are for the leader."""

    def __init__(
        self,
        cache: ClusterCache,
        watch: LimitWatch,
        recorder: Recorder,
        job_kinds: Collection[str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._watch = watch
        self._recorder = recorder
        self._job_kinds = job_kinds
        self._now = now
        self._changed = cache.owners.follow()
        self._told: dict[Owner, set[str]] = {}
        """Names of the Events that were made, by owner."""
        self._limits: dict[_LimitKey, _LimitNotice] = {}

    def begin(self) -> None:
        """Have all owners looked at: the leader before may not have told them."""
        self._told.clear()
        self._limits.clear()
        for owner in self._cache.owners.known():
            self._changed.add(owner)

    async def keep(self) -> None:
        """Publish what comes, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Publish the notices of the owners that changed, and of limits whose owners were gathered."""
        for owner in self._changed.take():
            since = self._cache.owners.over_since(owner)
            if since is None or self._now() - since < REMEMBERED:
                self._tell(owner)
        for key, prepared in tuple(self._limits.items()):
            if not prepared.told and prepared.due <= self._now():
                self._tell_limit(key, prepared)
            elif prepared.told and key[1] <= self._now():
                del self._limits[key]

    def _tell(self, owner: Owner) -> None:
        """Publish the notices of an owner's pods, and note the limits behind them."""
        before, told = self._told.pop(owner, set()), set[str]()
        for state in self._cache.snapshot.owned(owner):
            record = self._cache.record(state.uid)
            notice = pod_notice(record.state, record.job_grace(self._job_kinds)) if record else None
            if record is None or notice is None:
                continue
            told.add(notice.name)
            if notice.name not in before:
                about = pod_reference(record.state, record.resource_version)
                reason = LOWERED if notice.limit else RECLAIMED
                self._recorder.event(about, "Warning", reason, notice.message, name=notice.name)
                if notice.limit:
                    self._gather(owner, notice)
        if told:
            self._told[owner] = told

    def _gather(self, owner: Owner, notice: PodNotice) -> None:
        key = (notice.limit, int(notice.give_back_at))
        prepared = self._limits.setdefault(key, _LimitNotice(self._now() + GATHER_SECONDS))
        prepared.over[owner] = max(notice.over, prepared.over.get(owner, 0))

    def _tell_limit(self, key: _LimitKey, prepared: _LimitNotice) -> None:
        prepared.told = True
        name, give_back_at = key
        if body := self._watch.known(name):
            notice = limit_notice(name, objects.uid(body), prepared.over, give_back_at)
            self._recorder.event(body, "Warning", LOWERED, notice.message, name=notice.name)
