"""Pods of the tests, as the API wants them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import REQUESTED

Files = Mapping[str, Any]
"""Folder in the container → ConfigMap: its name, or a volume's ``configMap``."""

SCHEDULER = "jupyter-gpu-scheduler"
BUSYBOX = "busybox:1"
HOST = "kubernetes.io/hostname"
CONFINED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 100,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""As in the example of a notebook."""
QUIET: Mapping[str, str] = {"JUPYTERLAB_SETTINGS_DIR": "/settings"}
IDLE = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done")
"""Ends as soon as it is asked to."""
PROGRAMS = "/programs"
LOGS = "/logs"
TOKEN = "letmein"


def pod(
    name: str,
    command: Sequence[str] = IDLE,
    *,
    image: str = BUSYBOX,
    wants: object = None,
    node: str = "",
    selector: Mapping[str, str] | None = None,
    slot: bool = True,
    security: Mapping[str, Any] | None = CONFINED,
    files: Files | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod of one container. ``wants``: the wish that it begins with."""
    chosen = {**({HOST: node} if node else {}), **(selector or {})}
    sources = [{"name": of} if isinstance(of, str) else of for of in (files or {}).values()]
    volumes = [{"name": f"files-{number}", "configMap": source} for number, source in enumerate(sources)]
    mounts = [{"name": f"files-{number}", "mountPath": path} for number, path in enumerate(files or {})]
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "resources": {"requests": {"cpu": "10m"}, **({"limits": {SLOT: 1}} if slot else {})},
        "securityContext": dict(security or {}),
        "volumeMounts": [*mounts, {"name": "logs", "mountPath": LOGS}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {} if wants is None else {REQUESTED: wish(wants)}},
        "spec": {
            "schedulerName": SCHEDULER if slot else "default-scheduler",
            "terminationGracePeriodSeconds": 3,
            "enableServiceLinks": False,
            "nodeSelector": chosen,
            "containers": [container],
            "volumes": [*volumes, {"name": "logs", "emptyDir": {}}],
        },
    }


def notebook(
    name: str,
    image: str,
    *,
    wants: object = None,
    node: str = "",
    files: Files | None = None,
    probe: Sequence[str] = (),
) -> dict[str, Any]:
    """JupyterLab, as the deployment's example has it. ``probe``: devices that a prober tries beside it."""
    options = ["--ip=0.0.0.0", "--no-browser", f"--IdentityProvider.token={TOKEN}"]
    lab = ["jupyter", "lab", *options, "--LabApp.expose_app_in_browser=True"]
    command = probing(probe, " ".join(lab)) if probe else tuple(lab)
    made = pod(name, command, image=image, wants=wants, node=node, files=files, environment=QUIET)
    (container,) = made["spec"]["containers"]
    own = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
    container["env"] += [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in own.items()]
    container["readinessProbe"] = {"tcpSocket": {"port": 8888}, "periodSeconds": 1}
    return made


def wish(wants: object) -> str:
    """Text of the annotation: a bare quantity, or JSON of more."""
    return json.dumps(wants) if isinstance(wants, Mapping) else str(wants)


def config_map(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Files by name."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(files)}


def probing(devices: Sequence[str], then: str = "") -> tuple[str, ...]:
    """Command of a container whose first process starts the prober before anything else."""
    words = f"nice -n 19 python3 {PROGRAMS}/prober.py {LOGS}/probe {' '.join(devices)}"
    return ("sh", "-c", f"{words} & exec {then}" if then else f"exec {words}")
