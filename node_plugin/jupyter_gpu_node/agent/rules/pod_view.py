"""A view of the pods of a node as the API server reports them. Pure. Only ``allocated`` is trusted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    WORKER,
    Allocated,
    Attached,
    decode_allocated,
    decode_attached,
    decode_requested,
)
from jupyter_gpu_node.kubelet.rules.slots import PodRef


@dataclass(frozen=True, slots=True)
class PodView:
    """The relevant facts of a pod of this node."""

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
    worker: bool = False
    """Whether it is a worker of a notebook."""
    version: str = ""
    problem: str = ""
    """Reason why ``allocated`` cannot be read: then nothing is changed."""


def holds(attached: Attached | None) -> bool:
    """Tell whether anything is attached or draining."""
    return attached is not None and bool(attached.shares or attached.draining)


def uuids(attached: Attached | None) -> frozenset[str]:
    """Return the uuids of all GPUs that it names as attached or draining."""
    if attached is None:
        return frozenset()
    return frozenset({share.uuid for share in attached.shares} | {item.uuid for item in attached.draining})


def without(attached: Attached | None, foreign: Collection[str]) -> Attached | None:
    """Return the part of it that counts on a node that never had the ``foreign`` GPUs."""
    if attached is None or not foreign:
        return attached
    return replace(
        attached,
        shares=tuple(share for share in attached.shares if share.uuid not in foreign),
        draining=tuple(item for item in attached.draining if item.uuid not in foreign),
    )


def read(pod: Mapping[str, Any]) -> PodView:
    """Read a Pod's JSON; odd input counts as absent, except an ``allocated`` that cannot be read."""
    slots = frozenset(objects.slots(pod))
    allocated, problem = objects.decoded(pod, ALLOCATED, decode_allocated)
    attached, _ = objects.decoded(pod, ATTACHED, decode_attached)
    requested, _ = objects.decoded(pod, REQUESTED, decode_requested)
    return PodView(
        ref=PodRef(objects.uid(pod), objects.namespace(pod), objects.name(pod)),
        created=objects.created(pod),
        slots=slots,
        finished=objects.finished(pod),
        runs=_runs(pod, slots),
        allocated=allocated,
        attached=attached,
        memory=requested.wish.memory if requested else None,
        worker=objects.annotation(pod, WORKER) is not None,
        version=objects.resource_version(pod),
        problem=problem,
    )


def _runs(pod: Mapping[str, Any], slots: Collection[str]) -> bool:
    status = pod.get("status")
    if not isinstance(status, Mapping):
        return False
    found = [status.get(key) for key in ("initContainerStatuses", "containerStatuses")]
    items = [item for some in found if isinstance(some, list) for item in some if isinstance(item, Mapping)]
    states = [item.get("state") for item in items if item.get("name") in slots]
    return any(isinstance(state, Mapping) and "running" in state for state in states)
