"""The pods of a node as the API server tells of them, and which of their grants may be carried out now. Pure.

Only ``allocated`` is believed, and of it only GPUs of this node. A grant waits for as long as another pod still has,
or may have, that GPU: two pods never have it open at once, whatever the annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jupyter_gpu.kube import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    Allocated,
    Attached,
    decode_allocated,
    decode_attached,
    decode_requested,
)
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .slots import PodRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodView:
    """What counts of a pod of this node."""

    ref: PodRef
    created: str = ""
    slots: frozenset[str] = frozenset()
    """Containers that ask for a slot."""
    finished: bool = False
    runs: bool = False
    """Whether a container with a slot has started."""
    allocated: Allocated | None = None
    attached: Attached | None = None
    memory: int | None = None
    """Bytes of GPU memory that the user wants each share to have, and no more."""
    version: str = ""
    problem: str = ""
    """Why ``allocated`` cannot be read: then nothing is changed."""


def holds(attached: Attached | None) -> bool:
    """Whether anything is attached or draining."""
    return attached is not None and bool(attached.shares or attached.draining)


def read(pod: Mapping[str, Any]) -> PodView:
    """Of a Pod's JSON; odd input counts as absent, except an ``allocated`` that cannot be read."""
    slots = frozenset(objects.slots(pod))
    allocated, problem = _decoded(pod, ALLOCATED, decode_allocated)
    attached, _ = _decoded(pod, ATTACHED, decode_attached)
    requested, _ = _decoded(pod, REQUESTED, decode_requested)
    return PodView(
        ref=PodRef(objects.uid(pod), objects.namespace(pod), objects.name(pod)),
        created=objects.created(pod),
        slots=slots,
        finished=objects.finished(pod),
        runs=_runs(pod, slots),
        allocated=allocated,
        attached=attached,
        memory=requested.wish.memory if requested else None,
        version=objects.resource_version(pod),
        problem=problem,
    )


def _decoded(pod: Any, key: str, decode: Callable[[str], T]) -> tuple[T | None, str]:
    text = objects.annotation(pod, key)
    if text is None:
        return None, ""
    try:
        return decode(text), ""
    except InvalidAnnotation as error:
        return None, error.message


def _runs(pod: Mapping[str, Any], slots: Collection[str]) -> bool:
    status = pod.get("status")
    if not isinstance(status, Mapping):
        return False
    found = [status.get(key) for key in ("initContainerStatuses", "containerStatuses")]
    items = [item for some in found if isinstance(some, list) for item in some if isinstance(item, Mapping)]
    states = [item.get("state") for item in items if item.get("name") in slots]
    return any(isinstance(state, Mapping) and "running" in state for state in states)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod of this node has in its hands."""

    order: tuple[str, str]
    """Who keeps a GPU that two pods claim to have had before: the lower one. Creation time and uid."""
    has: Mapping[str, int] = field(default_factory=dict)
    """By uuid the milli that the pod may use now: its rules allow it, or it is recorded as attached."""
    drains: Mapping[str, int] = field(default_factory=dict)
    """By uuid the milli that were taken away and are not proven closed."""
    settled: bool = True
    """False: it may have anything, because an earlier process made its rules, or nobody did."""
    open: frozenset[str] = frozenset()
    """Uuids that the rules in force now allow."""

    def claim(self, uuid: str) -> int:
        """How much of that GPU is not free because of this pod."""
        return max(self.has.get(uuid, 0), self.drains.get(uuid, 0))


def permitted(
    shares: Sequence[GpuShare],
    own: Holding,
    others: Iterable[Holding],
    inventory: Collection[str],
    held_back: Collection[str] = (),
) -> tuple[GpuShare, ...]:
    """Those of the allocated ``shares`` that may be open now.

    ``held_back``: GPUs that somebody has open who should not.
    """
    rest = tuple(others)
    return tuple(
        share
        for share in shares
        if share.uuid in inventory
        and (_keeps(share, own, rest) or (share.uuid not in held_back and _may_have(share, rest)))
    )


def _keeps(share: GpuShare, own: Holding, others: Iterable[Holding]) -> bool:
    """Open now, and not for more than before: nothing is opened by that. Of several pods the first ones keep it.

    What is only recorded is no proof: who guarded this pod before may have taken it away and given it to another.
    """
    earlier = sum(other.has.get(share.uuid, 0) for other in others if other.order < own.order)
    had = own.has.get(share.uuid, 0) if share.uuid in own.open else 0
    return share.milli <= had and earlier + share.milli <= MILLI_PER_GPU


def _may_have(share: GpuShare, others: Sequence[Holding]) -> bool:
    taken = sum(other.claim(share.uuid) for other in others)
    return all(other.settled for other in others) and taken + share.milli <= MILLI_PER_GPU
