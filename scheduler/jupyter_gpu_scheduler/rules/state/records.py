"""Records of Pods and Nodes for decisions, from their JSON. Pure; odd input never raises.

Anything unreadable fails closed, and never takes anything from a pod:

* ``requested``: the pod keeps what it has and gets nothing, until its user writes a wish that can be read.
* ``allocated``: the pod holds what its node says it holds; ``allocated`` is decided and written again.
* ``attached``: what the pod holds is not known, so nothing is given on its node until the node's plugin has written
  it again (`PodRecord.opaque`). A finished pod is an exception, as the plugin may never write to it again.
* ``use``: how much of the node's CPU, memory and disk is in use is not known.
* ``inventory``: the node is not known, and nothing is decided for it. If only ``network`` can't be read, the use of the
  network is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    SERVICE,
    WORKER,
    WORKER_STATUS,
    Attached,
    decode_allocated,
    decode_attached,
    decode_inventory,
    decode_requested,
)
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.owner import HUB, USERNAME, owner_of
from jupyter_gpu.model.network import network_of, speed_of
from jupyter_gpu.model.node_use import EIGHTHS, USE, NodeUse, decode_use
from jupyter_gpu.model.service import (
    Peer,
    Service,
    WorkerIdentity,
    WorkerService,
    WorkerState,
    WorkerStatuses,
    decode_service,
    decode_worker,
    decode_worker_service,
    decode_worker_status,
)

from .images import slot_images
from .pod_state import PodState
from .resources import amounts, pod_requests
from .snapshot import CPU, DISK, MEMORY, NodeFacts
from .taints import Taint, own_tolerations, read_taints, read_tolerations

OUR_ANNOTATIONS = (REQUESTED, ALLOCATED, ATTACHED)
OWNER_ANNOTATIONS = (USERNAME, HUB)
WORKER_ANNOTATIONS = (SERVICE, WORKER, WORKER_STATUS)
_OF_WORKERS = frozenset(WORKER_ANNOTATIONS)


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Resources that a pod takes of its node beside GPUs."""

    node: str
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """The part of a Pod that is about GPUs of other nodes: of a notebook that has workers, or of a worker."""

    service: Service | None = None
    """The workers of a notebook; ``None``: it has none, or they can't be read."""
    identity: WorkerIdentity | None = None
    """The notebook whose worker this is; ``None``: it is no worker."""
    accepts: WorkerService | None = None
    """The notebook that a worker accepts."""
    failed: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Ids of a notebook's workers whose pods could not run on their nodes, with the reason."""
    told: frozenset[str] = frozenset()
    """Ids of its workers of which the worker controller tells anything."""
    peer: Peer | None = None
    """The keys that the pod says are its own."""
    address: str = ""
    """The pod's IP address; empty: not known yet."""
    images: frozenset[str] = frozenset()
    """The image of its container with the slot, as it is written and as it was pulled."""


class Decoded(NamedTuple):
    """An annotation that was read."""

    text: str | None
    """``None``: there is none."""
    value: Any
    """``None``: there is none, or it can't be read."""
    problem: str
    """Reason why it can't be read; empty: it can."""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One Pod, as far as it matters here."""

    state: PodState
    resource_version: str
    matters: bool = True
    """Whether the pod has or could ever have GPUs; once it has finished, whether some are still open."""
    usage: PodUsage | None = None
    """Resources that it takes of its node; ``None`` while it has no node, and once it has finished."""
    problem: str = ""
    """A sentence for the pod's user about a problem with the annotations; empty: none."""
    chosen: str = ""
    """The node where kube-scheduler has ended other pods for it."""
    opaque: bool = False
    """Whether its holdings can't be read: then nothing may be granted on its node."""
    controller: str = ""
    """Kind and group of the controller that made it, such as ``Job.batch``; empty: none."""
    termination: int = 30
    """Seconds that its programs have to end once asked to."""
    remote: RemoteRecord | None = None
    """The part about GPUs of other nodes; ``None``: nothing does."""
    decoded: Mapping[str, Decoded] = field(default_factory=dict, repr=False, compare=False)
    """Its annotations, by key: most new versions of a pod have the same, which are then not read again."""

    def job_grace(self, kinds: Collection[str]) -> int | None:
        """Return the seconds that its programs have to end, if a controller of these ``kinds`` made it."""
        return self.termination if self.controller in kinds else None

    def is_decided(self, before: PodRecord) -> bool:
        """Tell whether this is a version of the pod in which nothing is new since ``before`` but what was decided."""
        return bool(_rest(self) == _rest(before) and _rest_of_state(self.state) == _rest_of_state(before.state))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One Node, as far as it matters here."""

    name: str
    uid: str
    gpus: tuple[Gpu, ...] | None
    """``None``: no inventory, or none that can be read."""
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    schedulable: bool
    network: float | None = None
    """Part of its uplink that is in use, 0 to 1; ``None``: not reported."""
    speed: int | None = None
    """Speed of its uplink in Mbit/s; ``None``: not reported."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Parts of its CPU, memory and ephemeral storage that are in use, 0 to 1; not in it: not reported."""
    ready: bool = True
    """Whether its kubelet reports that it is ready; also where nothing is reported."""
    taints: frozenset[Taint] = frozenset()
    """Taints that keep pods out."""
    problem: str = ""
    """Reason why its inventory can't be used; empty: it can."""

    def facts(self, used: Mapping[str, int]) -> NodeFacts:
        """Return the node's facts with what its pods use."""
        return NodeFacts(
            labels=self.labels,
            allocatable=self.allocatable,
            used=dict(used),
            schedulable=self.schedulable,
            network=self.network,
            speed=self.speed,
            busy=self.busy,
            ready=self.ready,
            taints=self.taints,
        )


_OWN = ("state", "resource_version")
_rest = attrgetter(*(each.name for each in fields(PodRecord) if each.compare and each.name not in _OWN))
_rest_of_state = attrgetter(*(each.name for each in fields(PodState) if each.compare and each.name != "allocated"))


def read_pod(pod: Mapping[str, Any], before: PodRecord | None = None) -> PodRecord:
    """Read a Pod, one that matters or any other.

    ``before``: another version of it; annotations that are the same there are taken from it.
    """
    decoded = {key: _decoded(pod, key, decode, before) for key, decode in _DECODERS.items()}
    requested, problem = decoded[REQUESTED].value, decoded[REQUESTED].problem
    allocated, attached = decoded[ALLOCATED].value, decoded[ATTACHED].value
    unreadable = decoded[ATTACHED].problem
    node, slots, finished = objects.node_name(pod), sum(objects.slots(pod).values()), objects.finished(pod)
    requests = pod_requests(pod)
    fault = problem
    if not slots:  # its grants could not be enforced; any that were written are taken back
        problem = f"No container of this pod asks for {objects.SLOT}, so it can have no GPUs." if requested else problem
        requested, fault = None, ""
    state = PodState(
        uid=objects.uid(pod),
        node=node,
        requested=requested,
        allocated=allocated,
        attached=attached,
        busy=frozenset(attached.open if attached else ()),
        resting=frozenset(attached.rests if attached else ()),
        lacks=frozenset(attached.lacks if attached else ()),
        gone=objects.deleting(pod) or finished,
        finished=finished,
        namespace=objects.namespace(pod),
        name=objects.name(pod),
        created=seconds(objects.created(pod)),
        slots=slots,
        asks={name: amount for name, amount in requests.items() if name != objects.SLOT},
        selector=_selector(pod),
        tolerations=read_tolerations(pod.get("spec")),
        fault=fault,
        owner=owner_of(_annotations(pod, OWNER_ANNOTATIONS), objects.namespace(pod)),
    )
    return PodRecord(
        state,
        resource_version=objects.resource_version(pod),
        matters=_holds(attached) if finished else bool(slots) or _is_annotated(pod),
        usage=PodUsage(node, requests) if node and not finished else None,
        problem=problem,
        chosen=_chosen(pod),
        opaque=bool(unreadable) and bool(node),
        controller=objects.controller_kind(pod),
        termination=_termination_grace(pod),
        remote=_remote(pod, attached),
        decoded=decoded,
    )


_DECODERS: Mapping[str, Callable[[str], Any]] = {
    REQUESTED: decode_requested,
    ALLOCATED: decode_allocated,
    ATTACHED: decode_attached,
}


def _decoded(pod: Mapping[str, Any], key: str, decode: Callable[[str], Any], before: PodRecord | None) -> Decoded:
    known, text = before.decoded.get(key) if before else None, objects.annotation(pod, key)
    if known and known.text == text:
        return known
    return Decoded(text, *objects.decoded(pod, key, decode))


def _remote(pod: Mapping[str, Any], attached: Attached | None) -> RemoteRecord | None:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(annotations, Mapping) or _OF_WORKERS.isdisjoint(annotations):
        return None
    identity, wrong = objects.decoded(pod, WORKER, decode_worker)
    is_worker = bool(identity or wrong)
    service = None if is_worker else objects.decoded(pod, SERVICE, decode_service)[0]
    accepts = objects.decoded(pod, SERVICE, decode_worker_service)[0] if is_worker else None
    statuses = (objects.decoded(pod, WORKER_STATUS, decode_worker_status)[0] or WorkerStatuses()).by_worker
    return RemoteRecord(
        service=service,
        identity=identity or (WorkerIdentity("", "") if wrong else None),
        accepts=accepts,
        failed={name: one.message for name, one in statuses.items() if one.state is WorkerState.FAILED},
        told=frozenset(statuses),
        peer=attached.peer if attached else None,
        address=_address(pod),
        images=slot_images(pod),
    )


def _address(pod: Mapping[str, Any]) -> str:
    """Return a pod's IP address, of several that of IPv4: a worker listens on IPv6 only where there is no other."""
    status = pod.get("status")
    found = status.get("podIPs") if isinstance(status, Mapping) else None
    addresses = [item.get("ip") for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
    texts = [text for text in addresses if isinstance(text, str)]
    return next((text for text in texts if ":" not in text), texts[0] if texts else "")


def _holds(attached: Attached | None) -> bool:
    return attached is not None and bool(attached.shares or attached.draining)


def _is_annotated(pod: Mapping[str, Any]) -> bool:
    return any(objects.annotation(pod, key) is not None for key in OUR_ANNOTATIONS)


def _chosen(pod: Mapping[str, Any]) -> str:
    status = pod.get("status")
    found = status.get("nominatedNodeName") if isinstance(status, Mapping) else None
    return found if isinstance(found, str) else ""


def _selector(pod: Mapping[str, Any]) -> dict[str, str]:
    spec = pod.get("spec")
    found = spec.get("nodeSelector") if isinstance(spec, Mapping) else None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}


def read_node(node: Mapping[str, Any]) -> NodeRecord:
    """Read a Node."""
    gpus, problem = objects.decoded(node, INVENTORY, decode_inventory)
    status, spec = node.get("status"), node.get("spec")
    return NodeRecord(
        name=objects.name(node),
        uid=objects.uid(node),
        gpus=gpus,
        labels=objects.labels(node),
        allocatable=amounts(status.get("allocatable")) if isinstance(status, Mapping) else {},
        schedulable=not (isinstance(spec, Mapping) and spec.get("unschedulable")),
        network=network_of(gpus or ()),
        speed=speed_of(gpus or ()),
        busy=_busy(objects.decoded(node, USE, decode_use)[0] or NodeUse()),
        ready=_is_ready(status),
        taints=read_taints(spec),
        problem=problem,
    )


def _busy(use: NodeUse) -> dict[str, float]:
    found = {CPU: use.cpu, MEMORY: use.memory, DISK: use.disk}
    return {name: eighths / EIGHTHS for name, eighths in found.items() if eighths is not None}


def _is_ready(status: Any) -> bool:
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    for item in conditions if isinstance(conditions, list) else ():
        if isinstance(item, Mapping) and item.get("type") == _READY:
            return item.get("status") == "True"
    return True


def seconds(time: str) -> float:
    """Return an API time as seconds since 1970; 0 where it is invalid."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _termination_grace(pod: Mapping[str, Any]) -> int:
    spec = pod.get("spec")
    found = spec.get(_GRACE) if isinstance(spec, Mapping) else None
    return found if isinstance(found, int) and found >= 0 else _DEFAULT_GRACE


def trim_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod with only the fields read here: some hundred bytes instead of ten thousand."""
    if objects.finished(pod) and not read_pod(pod).matters:
        return {"metadata": _trim_metadata(pod, ()), "status": {"phase": objects.phase(pod)}}
    spec, status = pod.get("spec"), pod.get("status")
    kept: dict[str, Any] = {
        "metadata": _trim_metadata(pod, (*OUR_ANNOTATIONS, *OWNER_ANNOTATIONS, *WORKER_ANNOTATIONS))
    }
    remote = any(key in kept["metadata"]["annotations"] for key in WORKER_ANNOTATIONS)
    if controller := objects.controller_reference(pod):
        kept["metadata"]["ownerReferences"] = [{key: controller.get(key) for key in _REFERENCE}]
    if isinstance(spec, Mapping):
        kept["spec"] = {key: spec[key] for key in _SPEC if key in spec}
        if own := own_tolerations(spec):
            kept["spec"]["tolerations"] = own
        for key in ("containers", "initContainers"):
            if isinstance(spec.get(key), list):
                kept["spec"][key] = [
                    _trim_container(item, image=remote) for item in spec[key] if isinstance(item, Mapping)
                ]
    if isinstance(status, Mapping):
        names = ("phase", "nominatedNodeName", *(("podIPs", "containerStatuses") if remote else ()))
        kept["status"] = {key: status[key] for key in names if key in status}
    return kept


def trim_node(node: dict[str, Any]) -> dict[str, Any]:
    """Return a Node without images, addresses and the annotations of others."""
    spec, status = node.get("spec"), node.get("status")
    kept: dict[str, Any] = {"metadata": {**_trim_metadata(node, (INVENTORY, USE)), "labels": objects.labels(node)}}
    if isinstance(spec, Mapping):
        kept["spec"] = {"unschedulable": spec.get("unschedulable"), "taints": spec.get("taints")}
    if isinstance(status, Mapping):
        conditions = status.get("conditions")
        such = conditions if isinstance(conditions, list) else ()
        ready = [each for each in such if isinstance(each, Mapping) and each.get("type") == _READY]
        kept["status"] = {
            "allocatable": status.get("allocatable"),
            "conditions": [{key: each.get(key) for key in ("type", "status")} for each in ready],
        }
    return kept


_GRACE = "terminationGracePeriodSeconds"
_DEFAULT_GRACE = 30
"""Seconds, where the API server has not filled in its own default."""
_READY = "Ready"
"""The condition of a node that its kubelet can be reached and works."""
_REFERENCE = ("apiVersion", "kind", "controller")
_SPEC = ("nodeName", "nodeSelector", "overhead", _GRACE)
_METADATA = ("uid", "name", "namespace", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def _trim_metadata(item: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    metadata = item.get("metadata")
    found = metadata if isinstance(metadata, Mapping) else {}
    return {**{key: found[key] for key in _METADATA if key in found}, "annotations": _annotations(item, keys)}


def _annotations(item: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: text for key in keys if (text := objects.annotation(item, key)) is not None}


def _trim_container(container: Mapping[str, Any], *, image: bool) -> dict[str, Any]:
    keys = ("name", "resources", "restartPolicy", *(("image",) if image else ()))
    return {key: container[key] for key in keys if key in container}
