"""The use of the cluster's GPUs, by owner and in all, from Pods and Nodes. Pure; odd input never raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    WORKER,
    Allocated,
    decode_allocated,
    decode_attached,
    decode_inventory,
    decode_requested,
    held,
)
from jupyter_gpu.model.gpu import Gpu, total
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner, owner_of
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.service import decode_worker
from jupyter_gpu.model.use_class import idle_shares

SERVER = "hub.jupyter.org/servername"
"""Annotation of KubeSpawner with the name of a server, and label with a short form of it, empty for the unnamed one."""


@dataclass(frozen=True, slots=True)
class PodUse:
    """The GPUs of one pod."""

    owner: Owner
    namespace: str
    name: str
    server: str | None
    """Name of the hub's server that the pod is, empty for the unnamed one; ``None``: it is none."""
    held: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Milli by uuid: what was decided, is attached, or is not closed yet."""
    closing: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Milli by uuid of those that were taken back and may still be open."""
    idle: int = 0
    """Milli that the pod has and that do nothing: no process has them open, or they rest."""
    waiting: int = 0
    """Milli that it wants and has not."""
    position: int | None = None
    """Its place in line, 1 = next."""
    uid: str = ""
    notebook: str = ""
    """The uid of the pod whose worker it is; empty: it is none."""

    @property
    def milli(self) -> int:
        """Milli that it holds."""
        return sum(self.held.values())

    @property
    def draining(self) -> int:
        """Milli that were taken back and may still be open."""
        return sum(self.closing.values())


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """The GPUs of the cluster, in milli: ``total`` is the sum of the others, without ``waiting``."""

    total: int = 0
    owned: int = 0
    """Whole GPUs that a pod has for itself."""
    shares: int = 0
    """Parts of GPUs that pods have."""
    draining: int = 0
    """Taken back, and still open."""
    free: int = 0
    unhealthy: int = 0
    """Free, and not given to anyone."""
    waiting: int = 0
    """Wanted beyond what pods have."""

    def to_json(self) -> dict[str, int]:
        """Return the JSON object."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def read_pod(pod: Mapping[str, Any]) -> PodUse | None:
    """Read a Pod; ``None``: it has no GPUs, or never will have any again."""
    if not objects.slots(pod):
        return None
    allocated, _ = objects.decoded(pod, ALLOCATED, decode_allocated)
    attached, _ = objects.decoded(pod, ATTACHED, decode_attached)
    requested, _ = objects.decoded(pod, REQUESTED, decode_requested)
    finished = objects.finished(pod)
    holds = held(None if finished else allocated, attached)
    if finished and not holds:
        return None
    ends = finished or objects.deleting(pod)
    wanted = requested.milli if requested and not ends else 0
    has = sum(share.milli for share in allocated.shares) if allocated and not ends else 0
    notes = {key: text for key in (USERNAME, HUB) if (text := objects.annotation(pod, key)) is not None}
    return PodUse(
        owner=owner_of(notes, objects.namespace(pod)),
        namespace=objects.namespace(pod),
        name=objects.name(pod),
        server=_server(pod),
        held=holds,
        closing=holds if ends else _closing(holds, allocated),
        idle=0 if ends else total(idle_shares(allocated, attached)),
        waiting=max(0, wanted - has),
        position=allocated.position if allocated and not ends else None,
        uid=objects.uid(pod),
        notebook=_notebook(pod),
    )


def with_workers(pods: Iterable[PodUse]) -> list[PodUse]:
    """Return the pods: each worker is one of its notebook's owner, and the notebook waits for less by what it has.

    A worker has GPUs of another node for its notebook, and says of itself neither whose it is nor what is wished.
    """
    found = list(pods)
    workers = {pod.notebook for pod in found if pod.notebook}
    if not workers:
        return found
    notebooks = {pod.uid: pod for pod in found if pod.uid in workers}
    have: dict[str, int] = {}
    for pod in found:
        have[pod.notebook] = have.get(pod.notebook, 0) + pod.milli - pod.draining
    for at, pod in enumerate(found):
        if notebook := notebooks.get(pod.notebook):
            found[at] = replace(pod, owner=notebook.owner)
        elif pod.uid in notebooks:
            found[at] = replace(pod, waiting=max(0, pod.waiting - have[pod.uid]))
    return found


def read_node(node: Mapping[str, Any]) -> tuple[Gpu, ...]:
    """Return the GPUs of a Node; none where its inventory cannot be read."""
    return objects.decoded(node, INVENTORY, decode_inventory)[0] or ()


def cluster(nodes: Iterable[tuple[Gpu, ...]], pods: Iterable[PodUse]) -> ClusterUse:
    """Add up the GPUs of the cluster. A GPU that is held twice counts once, and one of no node does not count."""
    gpus = {gpu.uuid: gpu for of_node in nodes for gpu in of_node}
    left = dict.fromkeys(gpus, MILLI_PER_GPU)
    owned = shares = draining = waiting = 0
    for pod in pods:
        waiting += pod.waiting
        for uuid, milli in pod.held.items():
            taken = min(milli, left.get(uuid, 0))
            closing = min(taken, pod.closing.get(uuid, 0))
            draining += closing
            if milli == MILLI_PER_GPU:
                owned += taken - closing
            else:
                shares += taken - closing
            if taken:
                left[uuid] -= taken
    unhealthy = sum(milli for uuid, milli in left.items() if not gpus[uuid].healthy)
    return ClusterUse(
        total=len(gpus) * MILLI_PER_GPU,
        owned=owned,
        shares=shares,
        draining=draining,
        free=sum(left.values()) - unhealthy,
        unhealthy=unhealthy,
        waiting=waiting,
    )


def models_held(nodes: Iterable[tuple[Gpu, ...]], pods: Iterable[PodUse]) -> dict[Owner, dict[str, int]]:
    """Return the milli that each owner holds of each model of GPU."""
    models = {gpu.uuid: gpu.model for of_node in nodes for gpu in of_node}
    found: dict[Owner, dict[str, int]] = {}
    for pod in pods:
        mine = found.setdefault(pod.owner, {})
        for uuid, milli in pod.held.items():
            if uuid in models:
                mine[models[uuid]] = mine.get(models[uuid], 0) + milli
    return found


def _notebook(pod: Mapping[str, Any]) -> str:
    identity, _ = objects.decoded(pod, WORKER, decode_worker)
    return identity.notebook if identity else ""


def _server(pod: Mapping[str, Any]) -> str | None:
    """Return the name of the hub's server that a pod is. KubeSpawner annotates it only where it is not empty."""
    name = objects.annotation(pod, SERVER)
    return "" if name is None and objects.labels(pod).get(SERVER) == "" else name


def _closing(holds: Mapping[str, int], allocated: Allocated | None) -> dict[str, int]:
    now = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
    return {uuid: milli - now.get(uuid, 0) for uuid, milli in holds.items() if milli > now.get(uuid, 0)}
