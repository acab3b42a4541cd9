"""Pure: the Events that tell users and administrators that GPUs above a lowered limit will be taken back.

Each has a name that follows from what it tells, so a scheduler that starts meanwhile makes none twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from jupyter_gpu.model import strict
from jupyter_gpu.model.limit_words import lowered, moment
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import count_gpus
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

REMEMBERED = 3000.0
"""Seconds after which an Event may be forgotten by the cluster, so that it must not be made again."""
_NAMED = 5
"""Most owners that one Event names."""


class Notice(NamedTuple):
    """One Event."""

    name: str
    message: str


class PodNotice(NamedTuple):
    """The Event of a pod from which GPUs will be taken back."""

    name: str
    message: str
    limit: str = ""
    """Name of the limit; empty: they are reclaimed for others."""
    over: int = 0
    """Milli that all pods of the owner have above it."""
    give_back_at: float = 0.0


def pod_notice(pod: PodState, job_grace: int | None = None) -> PodNotice | None:
    """Return the notice of a pod; ``None``: its record does not say that something will be taken back.

    ``job_grace``: seconds that its programs have to end; ``None``: it is of no Job, and never ended.
    """
    limit = pod.allocated.limit if pod.allocated else None
    text = lowered(limit, pod.has) if limit else ""
    if limit is None or not text:
        return None
    if limit.reclaimed and pod.preemptible and job_grace is not None:
        text += f" This is one: it gets SIGTERM up to {job_grace} s before, unless it has closed them."
    times = [limit.give_back_at or 0.0, *(item.at for item in limit.reclaimed)]
    name = _name(pod.name, pod.uid, *times)
    if limit.milli is None or limit.give_back_at is None or pod.has <= limit.milli:
        return PodNotice(name, text)
    return PodNotice(name, text, limit.source.object, pod.has - limit.milli, limit.give_back_at)


def limit_notice(name: str, uid: str, over: Mapping[Owner, int], give_back_at: float) -> Notice:
    """Return the notice of a limit: the owners, with the milli that each has above it."""
    owners = sorted(over)
    shown = [f"{count_gpus(over[owner])} of {_owner(owner)}" for owner in owners[:_NAMED]]
    if rest := owners[_NAMED:]:
        shown.append(f"{count_gpus(sum(over[owner] for owner in rest))} of {len(rest)} others")
    text = f"GPUs above this limit will be taken back at {moment(give_back_at)}: {', '.join(shown)}."
    return Notice(_name(name, uid, give_back_at), text)


def _owner(owner: Owner) -> str:
    hub = f" of hub {strict.printable(owner.hub, 64)}" if owner.hub else ""
    return f"{owner.kind.lower()} {strict.printable(owner.name, 64)}{hub}"


def _name(name: str, uid: str, *times: float) -> str:
    """Return the name of an Event. Whole seconds: the beginning of a grace is stored in them."""
    exact = hashlib.sha256(json.dumps([uid, *map(int, times)]).encode()).hexdigest()
    return f"{name[:200]}.{exact[:16]}"
