"""The JSON of a worker pod: from the notebook's pod, the part that it serves, and the administrator's settings. Pure.

It takes of the notebook what its programs need to be the same (image, user, tolerations, runtime class) and nothing
that could have a secret: no volume, no token, and of the environment only plain values by name. The admission policy
``jupyter-gpu-workers`` allows exactly this form; what is changed here is changed there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import WORKER, encode
from jupyter_gpu.model.service import WorkerIdentity, WorkerPart
from jupyter_gpu_scheduler.rules.state.images import pulled_image
from jupyter_gpu_scheduler.rules.state.resources import QUANTITY, quantity

from .records import Notebook

CONTAINER = "worker"
MODULE = "jupyter_gpu.worker"
LABEL = WORKER
GRACE_SECONDS = 30
"""Seconds that a worker has to end, and that it stays on a node of which nothing is heard."""
_MOST_NAME = 63
_NODE_TROUBLE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _check_amount(key: str, text: str) -> None:
    if not QUANTITY.fullmatch(text):
        raise ValueError(f"{key!r} must be an amount such as 100m or 8Gi.")


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of CPU and memory, as Kubernetes writes them."""

    cpu: str
    memory: str

    def __post_init__(self) -> None:
        _check_amount("cpu", self.cpu)
        _check_amount("memory", self.memory)


@dataclass(frozen=True, slots=True)
class Template:
    """The administrator's part of each worker pod."""

    python: str = "python3"
    """The interpreter in the notebook's image, by name or path."""
    home: str = "/home/jovyan"
    """Home directory of the worker, empty at its start."""
    environment: tuple[str, ...] = ("LANG", "LC_ALL", "TZ")
    """Names of the notebook's variables that the worker gets, where their values stand in the pod."""
    requests: Amounts = Amounts("100m", "256Mi")
    limits: Amounts = Amounts("4", "8Gi")
    home_size: str = "10Gi"
    """Most that a worker may store in its home directory."""
    temporary_size: str = "10Gi"
    """Most that a worker may store in ``/tmp``."""
    shared_memory: str = "2Gi"
    """Most that a worker may have in ``/dev/shm``, through which processes hand each other arrays; it is of its memory.
    """
    scheduler_name: str = "jupyter-gpu-scheduler"
    priority_class: str = ""
    """Priority class of workers; empty: none."""

    def __post_init__(self) -> None:
        _check_amount("homeSize", self.home_size)
        _check_amount("temporarySize", self.temporary_size)
        _check_amount("sharedMemory", self.shared_memory)
        if not quantity(self.shared_memory):
            raise ValueError("'sharedMemory' must be more than 0, which Kubernetes takes for no limit.")
        if not self.home.startswith("/") or ".." in self.home.split("/"):
            raise ValueError("'home' must be a path that begins with a slash, without '..'.")
        if wrong := [name for name in self.environment if not _VARIABLE.fullmatch(name) or name == "HOME"]:
            raise ValueError(
                f"'environment' has {wrong[0][:60]!r}, which is no name of a variable that can be taken over."
            )


class Unfit(Exception):
    """The notebook's pod is one for which no worker can be made; the text says why."""


def worker_name(notebook: str, uid: str, worker: str) -> str:
    """Return the name of a worker's pod: always the same, so that it can't be created twice."""
    end = f"-gpu-{worker}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"
    return notebook[: _MOST_NAME - len(end)].replace(".", "-").rstrip("-") + end


def worker_pod(notebook: Notebook, part: WorkerPart, template: Template) -> dict[str, Any]:
    """Return the pod that serves this part of the notebook's wish; raises `Unfit`."""
    identity = encode(WorkerIdentity(notebook.uid, part.id))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": notebook.name, "uid": notebook.uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": worker_name(notebook.name, notebook.uid, part.id),
            "namespace": notebook.namespace,
            "labels": {LABEL: part.id},
            "annotations": {WORKER: identity},
            "ownerReferences": [owner],
        },
        "spec": _spec(notebook.pod, part.node, template),
    }


def _spec(pod: Mapping[str, Any], node: str, template: Template) -> dict[str, Any]:
    spec = pod.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    container = slot_container(pod)
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    made: dict[str, Any] = {
        "containers": [_container(container, image_of(pod), template)],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "schedulerName": template.scheduler_name,
        "securityContext": _security(spec, container),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": _tolerations(spec),
        "volumes": [
            {"name": "home", "emptyDir": {"sizeLimit": template.home_size}},
            {"name": "tmp", "emptyDir": {"sizeLimit": template.temporary_size}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": template.shared_memory}},
        ],
    }
    if template.priority_class:
        made["priorityClassName"] = template.priority_class
    # A sandbox around the notebook is one around its workers, too.
    copied = ("imagePullSecrets", "runtimeClassName", "hostUsers")
    return made | {key: spec[key] for key in copied if spec.get(key) is not None}


def slot_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the notebook's container: the first one that has a slot. Raises `Unfit`."""
    slots = objects.slots(pod)
    for container in objects.containers(pod):
        if container.get("name") in slots:
            return container
    raise Unfit("No container of the notebook's pod has a slot.")


def image_of(pod: Mapping[str, Any]) -> str:
    """Return the image of a notebook's container: by its digest, where the node says which it got. Raises `Unfit`."""
    container = slot_container(pod)
    image = pulled_image(pod, container)
    if not image:
        raise Unfit("The image of the notebook's container is not known.")
    return image


def _container(notebook: Mapping[str, Any], image: str, template: Template) -> dict[str, Any]:
    def amounts(given: Amounts) -> dict[str, str]:
        return {"cpu": given.cpu, "memory": given.memory, objects.SLOT: "1"}

    places = {"home": template.home, "tmp": "/tmp", "shm": "/dev/shm"}  # noqa: S108
    made: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "command": [template.python, "-m", MODULE],
        "env": _environment(notebook, template),
        "workingDir": template.home,
        "resources": {"requests": amounts(template.requests), "limits": amounts(template.limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in places.items()],
    }
    policy = notebook.get("imagePullPolicy")
    return made | ({"imagePullPolicy": policy} if policy else {})


def _environment(container: Mapping[str, Any], template: Template) -> list[dict[str, str]]:
    given = container.get("env")
    plain = {
        item["name"]: item["value"]
        for item in (given if isinstance(given, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("name"), str) and isinstance(item.get("value"), str)
    }
    taken = [{"name": name, "value": plain[name]} for name in template.environment if name in plain]
    return [{"name": "HOME", "value": template.home}, *taken]


def _security(spec: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod's user and groups; what the container says of them counts. Raises `Unfit` for root."""
    given = (spec.get("securityContext"), container.get("securityContext"))
    of_pod, of_container = (item if isinstance(item, Mapping) else {} for item in given)
    whole = {**of_pod, **of_container}
    taken = {key: whole[key] for key in ("runAsUser", "runAsGroup", "fsGroup") if whole.get(key) is not None}
    if taken.get("runAsUser") == 0:
        raise Unfit("The notebook runs as root, and a worker may not.")
    return {"runAsNonRoot": True, **taken, "seccompProfile": {"type": "RuntimeDefault"}}


def _tolerations(spec: Mapping[str, Any]) -> list[Any]:
    """Return ours first, as the first one that fits a taint counts."""
    ours = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": GRACE_SECONDS}
        for key in _NODE_TROUBLE
    ]
    given = spec.get("tolerations")
    others = [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []
    return [*ours, *(item for item in others if item.get("key") not in _NODE_TROUBLE)]
