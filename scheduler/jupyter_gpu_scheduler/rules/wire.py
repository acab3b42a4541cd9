"""Requests of kube-scheduler, our responses, and the bodies of our writes. Pure.

The extender's types have no JSON names: fields travel as in Go (``NodeNames``) and are read in any case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import ALLOCATED, SERVICE, Allocated, encode
from jupyter_gpu.model.service import Service, WorkerService
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

MAX_NODES = 50_000
MAX_VICTIMS = 10_000
"""On one node."""
_MAX_NAME = 253
_MOST_DETAILS = 1024
NAMED = 8
"""Up to so many nodes that do not fit are named in their reasons; of more, kube-scheduler counts equal reasons."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """The request of filter and prioritize: a pod and the nodes that it may go to."""

    pod: Mapping[str, Any]
    """Its JSON."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """The request to bind a pod to a node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """The request of preemption: a pod, and the pods that may be ended for it."""

    pod: Mapping[str, Any]
    """Its JSON."""
    victims: Mapping[str, tuple[str, ...]]
    """UIDs of the pods that kube-scheduler would end, by node."""
    violations: Mapping[str, int]
    """Number of disruption budgets that this would violate, by node; repeated in the answer."""


def read_extender_args(body: bytes, most: int) -> ExtenderArgs:
    """Read an ``ExtenderArgs``; raises `FieldError`."""
    fields = _fields(body, most)
    pod = _pod(fields)
    names = fields.get("nodenames")
    if names is None:
        raise strict.FieldError("NodeNames are missing: set nodeCacheCapable: true for this extender.", "NodeNames")
    if not isinstance(names, list) or len(names) > MAX_NODES or not all(isinstance(name, str) for name in names):
        raise strict.FieldError(f"NodeNames must be a list of at most {MAX_NODES:,} names.", "NodeNames")
    return ExtenderArgs(pod, tuple(names))


def read_binding_args(body: bytes, most: int) -> BindingArgs:
    """Read an ``ExtenderBindingArgs``; raises `FieldError`."""
    fields = _fields(body, most)
    read = strict.text(_MAX_NAME)
    return BindingArgs(
        namespace=read(fields.get("podnamespace"), "PodNamespace"),
        name=read(fields.get("podname"), "PodName"),
        uid=read(fields.get("poduid"), "PodUID"),
        node=read(fields.get("node"), "Node"),
    )


def read_preemption_args(body: bytes, most: int) -> PreemptionArgs:
    """Read an ``ExtenderPreemptionArgs``; maps and lists may be empty or missing. Raises `FieldError`."""
    fields = _fields(body, most)
    found = fields.get("nodenametometavictims") or {}
    if not found and fields.get("nodenametovictims"):
        raise strict.FieldError(
            "NodeNameToMetaVictims are missing: set nodeCacheCapable: true for this extender.", "NodeNameToMetaVictims"
        )
    nodes = strict.an_object(found, "NodeNameToMetaVictims")
    if len(nodes) > MAX_NODES:
        raise strict.FieldError(f"NodeNameToMetaVictims names more than {MAX_NODES:,} nodes.", "NodeNameToMetaVictims")
    chosen = {name: _lower(victims) for name, victims in nodes.items()}
    violations = {name: victims.get("numpdbviolations") or 0 for name, victims in chosen.items()}
    if not all(isinstance(count, int) and 0 <= count < 2**31 for count in violations.values()):
        raise strict.FieldError("NumPDBViolations must be a number that is not negative.", "NumPDBViolations")
    return PreemptionArgs(
        _pod(fields), {name: _uids(victims.get("pods")) for name, victims in chosen.items()}, violations
    )


def _lower(found: Any) -> dict[str, Any]:
    """Return an object that may be missing, by lower-case name."""
    return {key.lower(): value for key, value in strict.an_object(found or {}, "NodeNameToMetaVictims").items()}


def _uids(pods: Any) -> tuple[str, ...]:
    if pods is None:
        return ()
    if not isinstance(pods, list) or len(pods) > MAX_VICTIMS:
        raise strict.FieldError(f"Pods must be a list of at most {MAX_VICTIMS:,} victims.", "Pods")
    return tuple(strict.text(_MAX_NAME)(_lower(pod).get("uid"), "UID") for pod in pods)


def _pod(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    pod = strict.an_object(fields.get("pod"), "Pod")
    if not objects.uid(pod) or not objects.name(pod):
        raise strict.FieldError("The Pod has no name or no uid.", "Pod")
    return pod


def preemption_result(question: PreemptionArgs, nodes: Iterable[str]) -> dict[str, Any]:
    """Return an ``ExtenderPreemptionResult``: kube-scheduler's choice on these nodes, and nothing on the others."""
    return {
        "NodeNameToMetaVictims": {
            node: {
                "Pods": [{"UID": uid} for uid in question.victims[node]],
                "NumPDBViolations": question.violations[node],
            }
            for node in nodes
        }
    }


def filter_result(
    fitting: Iterable[str], failed: Mapping[str, str] | None = None, never: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return an ``ExtenderFilterResult``: each node that does not fit has its reason, which the pod's Event shows."""
    named = len(failed or {}) + len(never or {}) <= NAMED
    return {
        "NodeNames": list(fitting),
        "FailedNodes": _short(failed or {}, named),
        "FailedAndUnresolvableNodes": _short(never or {}, named),
        "Error": "",
    }


def filter_error(message: str) -> dict[str, Any]:
    """Return an ``ExtenderFilterResult`` that fails the attempt, to be repeated: it takes and rejects no node."""
    return {"NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": message}


def host_priorities(scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a ``HostPriorityList``."""
    return [{"Host": name, "Score": score} for name, score in scores.items()]


def bind_result(error: str) -> dict[str, Any]:
    """Return an ``ExtenderBindingResult``; an empty text: it is bound."""
    return {"Error": error}


def binding(
    pod: PodState,
    node: str,
    resource_version: str,
    allocated: Allocated,
    service: Service | WorkerService | None = None,
) -> dict[str, Any]:
    """Return a Binding with node and GPUs in one transaction, done only if the pod is unchanged since the decision.

    ``service``: where other nodes give it GPUs, or ``None``.
    """
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": resource_version,
            "annotations": _annotations(allocated, service),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def allocated_patch(
    uid: str, resource_version: str, allocated: Allocated, service: Service | WorkerService | None = None
) -> dict[str, Any]:
    """Return a merge patch of ``pods/<name>/status``, done only if the pod is unchanged since the decision.

    ``service``: the pod's new one; ``None``: it stays as it is.
    """
    annotations = _annotations(allocated, service)
    return {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}}


def _annotations(allocated: Allocated, service: Service | WorkerService | None) -> dict[str, str]:
    return {ALLOCATED: encode(allocated), **({SERVICE: encode(service)} if service else {})}


def pod_reference(state: PodState, resource_version: str = "") -> dict[str, Any]:
    """Return a pod's reference for Events."""
    metadata = {"namespace": state.namespace, "name": state.name, "uid": state.uid}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def node_reference(name: str, uid: str) -> dict[str, Any]:
    """Return a node's reference for Events."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}


def _fields(body: bytes, most: int) -> dict[str, Any]:
    """Parse an object, by lower-case name. Not by `strict.loads`, as a pod's JSON may be nested deeply."""
    return {key.lower(): value for key, value in strict.an_object(_loads(body, most), "The question").items()}


def _loads(body: bytes, most: int) -> Any:
    if len(body) > most:
        raise strict.OversizeError(f"The question has {len(body):,} bytes; at most {most:,} are accepted.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise strict.FieldError(f"The question is not valid JSON: {strict.printable(str(error), 200)}.") from None


def _short(reasons: Mapping[str, str], named: bool) -> dict[str, str]:
    return {
        name: strict.printable(f"{name}: {text or 'not suitable'}" if named else text or "not suitable", _MOST_DETAILS)
        for name, text in reasons.items()
    }
