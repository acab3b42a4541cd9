"""Pure: the counters of what users held, waited and left idle, exact at each change and not sampled.

A series grows at a rate, which changes when a pod does. So its value at any moment is known without looking at the pods
again, and no time between two looks is lost. Amounts are whole numbers, so nothing is rounded before it is exported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jupyter_gpu.model import strict
from jupyter_gpu.model.feasible import named
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.use_class import idle_shares
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

Counted = Literal["held", "waiting", "idle"]
Names = Literal["names", "hashed", "none"]
"""The names of users in metrics."""

MOST_SERIES = 10_000
"""Series of all users together."""
RESTED = 3600 * 10**9
"""Nanoseconds after which a series that does not grow may be forgotten for another."""
OTHERS = "(others)"
"""The name of users for whom there is no room."""
_LONGEST = 128


class Series(NamedTuple):
    """One line of the metrics: what is counted, and its labels."""

    counted: Counted
    namespace: str
    username: str
    """Empty: the pod belongs to no user."""
    model: str
    """Model of the GPU, or the one that is waited for; empty: not known."""
    kind: Literal["owned", "share"]
    """Whole GPUs, or parts of GPUs."""


Rates = Mapping[Series, int]
"""Milli by series: 1000 is one second for each second."""


def rates(pod: PodState, models: Mapping[str, str], known: Collection[str], names: Names) -> dict[Series, int]:
    """Return the rates at which the series of a pod grow now.

    ``models`` are those of its node's GPUs, by uuid; ``known`` are those of all nodes. A wish's own words for a model
    are no label, as everybody could make any number of them: it is named where the wish leaves but one.
    """
    user = username(pod.owner, names)
    found: dict[Series, int] = {}

    def add(counted: Counted, model: str, milli: int, rate: int) -> None:
        kind: Literal["owned", "share"] = "owned" if milli >= MILLI_PER_GPU else "share"
        series = Series(counted, pod.namespace, user, strict.printable(model, _LONGEST) if model else "", kind)
        found[series] = found.get(series, 0) + rate

    for uuid, milli in pod.held.items():
        add("held", models.get(uuid, ""), milli, milli)
    for share in () if pod.gone else idle_shares(pod.allocated, pod.attached):
        add("idle", models.get(share.uuid, ""), share.milli, share.milli)
    if pod.requested and pod.ticket is not None and pod.waits:
        wish = pod.requested.wish
        able = [model for model in known if any(named(model, word) for word in wish.model)]
        add("waiting", able[0] if len(able) == 1 else "", max(wish.pieces, default=0), MILLI_PER_GPU)
    return found


def username(owner: Owner, names: Names) -> str:
    """Return the name of an owner as metrics show it; empty for a namespace."""
    if owner.kind != "User" or names == "none":
        return ""
    if names == "hashed":
        return hashlib.sha256(json.dumps([owner.hub, owner.name]).encode()).hexdigest()[:16]
    return owner.name


@dataclass(slots=True)
class _Counter:
    at: int
    """Nanoseconds until which it is counted."""
    total: int = 0
    """Milli-nanoseconds."""
    rate: int = 0
    changed: int = 0
    """Nanoseconds at which its rate changed last."""

    def value(self, at: int) -> int:
        return self.total + self.rate * max(0, at - self.at)


class Counters:
    """The series of all pods; times are nanoseconds of a clock that never goes back."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: dict[Series, _Counter] = {}
        self._pods: dict[str, Rates] = {}

    def put(self, uid: str, rates: Rates, at: int) -> None:
        """Have a pod's series grow at other rates from ``at`` on; none: it is not counted any more."""
        before = self._pods.pop(uid, {})
        after: dict[Series, int] = {}
        for series, rate in rates.items():
            known = series if series in self._series or self._has_room(at) else _of_others(series)
            after[known] = after.get(known, 0) + rate
            self._series.setdefault(known, _Counter(at))
        if after:
            self._pods[uid] = after
        for series in before.keys() | after.keys():
            if more := after.get(series, 0) - before.get(series, 0):
                counter = self._series[series]
                counter.total, counter.at = counter.value(at), max(counter.at, at)
                counter.rate += more
                counter.changed = counter.at

    def values(self, at: int) -> Iterator[tuple[Series, float]]:
        """Yield each series with its seconds, or GPU-seconds, until ``at``."""
        for series, counter in self._series.items():
            yield series, counter.value(at) / (MILLI_PER_GPU * 10**9)

    def _has_room(self, at: int) -> bool:
        """Tell whether there is room for another series; forget those that have rested, if need be."""
        if len(self._series) >= self._most:
            for series, counter in tuple(self._series.items()):
                if not counter.rate and at - counter.changed >= RESTED:
                    del self._series[series]
        return len(self._series) < self._most


def _of_others(series: Series) -> Series:
    return series._replace(namespace="", username=OTHERS)
