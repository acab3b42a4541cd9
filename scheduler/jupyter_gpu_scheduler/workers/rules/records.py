"""Notebooks and worker pods, as the worker controller reads them from Pods; pure, and odd input never raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import SERVICE, WORKER, WORKER_STATUS
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner, owner_of
from jupyter_gpu.model.service import (
    Service,
    WorkerIdentity,
    WorkerPart,
    WorkerStatus,
    WorkerStatuses,
    decode_service,
    decode_worker,
    decode_worker_status,
)

from .status import PodCondition, condition_of

_KEPT = (SERVICE, WORKER, WORKER_STATUS, USERNAME, HUB)
_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Notebook:
    """A pod that has workers, or had some."""

    namespace: str
    name: str
    uid: str
    owner: Owner
    parts: tuple[WorkerPart, ...] | None
    """Workers that it should have; ``None``: ``service`` can't be read, so nothing is created or removed."""
    statuses: Mapping[str, WorkerStatus] = field(default_factory=dict)
    """Their ``worker-status``."""
    told: bool = False
    """Whether ``worker-status`` is there, readable or not."""
    ended: bool = False
    """Whether it has ended, or is being removed."""
    problem: str = ""
    """Reason why ``service`` can't be read; empty: it can."""
    pod: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod that this controller created."""

    namespace: str
    name: str
    uid: str
    identity: WorkerIdentity
    node: str
    """The node that it is for, whether it has come there or not."""
    condition: PodCondition
    removing: bool = False
    """Whether it is being removed."""


def read_notebook(pod: Mapping[str, Any]) -> Notebook | None:
    """Read a notebook; ``None``: the pod has no workers, and nothing is told about any."""
    told = objects.annotation(pod, WORKER_STATUS) is not None
    if objects.annotation(pod, WORKER) is not None or not (told or objects.annotation(pod, SERVICE) is not None):
        return None
    service, problem = objects.decoded(pod, SERVICE, decode_service)
    statuses, _ = objects.decoded(pod, WORKER_STATUS, decode_worker_status)
    namespace = objects.namespace(pod)
    owners = {key: text for key in (USERNAME, HUB) if (text := objects.annotation(pod, key)) is not None}
    return Notebook(
        namespace,
        objects.name(pod),
        objects.uid(pod),
        owner_of(owners, namespace),
        None if problem else (service or Service(0)).workers,
        (statuses or WorkerStatuses()).by_worker,
        told,
        objects.finished(pod) or objects.deleting(pod),
        problem,
        pod,
    )


def read_worker(pod: Mapping[str, Any]) -> WorkerPod | None:
    """Read a worker pod; ``None``: the pod is none."""
    identity, _ = objects.decoded(pod, WORKER, decode_worker)
    if identity is None:
        return None
    return WorkerPod(
        objects.namespace(pod),
        objects.name(pod),
        objects.uid(pod),
        identity,
        _wanted_node(pod),
        condition_of(pod),
        objects.deleting(pod),
    )


def trim(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod with only what is read here: of most pods their names."""
    metadata = pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = {key: annotations[key] for key in _KEPT if key in annotations}
    whole = {**{key: metadata[key] for key in _METADATA if key in metadata}, "annotations": kept}
    if not {SERVICE, WORKER, WORKER_STATUS} & kept.keys():
        return {"metadata": whole}
    return {"metadata": whole, "spec": pod.get("spec"), "status": pod.get("status")}


def _wanted_node(pod: Mapping[str, Any]) -> str:
    """Return the node that the pod's required affinity names; empty: none."""
    try:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    except (KeyError, IndexError, TypeError):
        return ""
    return node if isinstance(node, str) else ""
