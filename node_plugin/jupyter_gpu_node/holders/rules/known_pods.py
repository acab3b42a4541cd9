"""Trusted pods, which may have any GPU open because they manage GPUs, such as the GPU operator's. Pure.

A pod is known by its namespace, in which only administrators make pods, or by a label wherever it is installed. Any
user may set a label. So it counts only on a pod that could take every guard away as well: a privileged one, or one with
``CAP_SYS_ADMIN``, in the node's own user namespace. A user who may make such a pod controls the node with any label
and with none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jupyter_gpu.kube.rules import objects

GPU_OPERATOR = (
    "app=nvidia-dcgm-exporter",
    "app=nvidia-dcgm",
    "app=nvidia-operator-validator",
    "app=nvidia-device-plugin-daemonset",
    "app=nvidia-mig-manager",
    "app=gpu-feature-discovery",
    "app=nvidia-container-toolkit-daemonset",
    "app=nvidia-driver-daemonset",
    "app.kubernetes.io/component=nvidia-driver",
)
"""Labels of the pods of NVIDIA's GPU operator that have GPUs open; each of them is privileged."""
_ADMIN = {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"}


def is_trusted(pod: Any, namespaces: Collection[str], labels: Collection[str]) -> bool:
    """Tell whether a pod may have any GPU open; ``labels`` are ``key=value``. A pod with a slot never may."""
    if objects.slots(pod):
        return False
    if objects.namespace(pod) in namespaces:
        return True
    named = any(f"{key}={value}" in labels for key, value in objects.labels(pod).items())
    return named and _is_privileged(pod)


def _is_privileged(pod: Any) -> bool:
    spec = pod.get("spec") if isinstance(pod, Mapping) else None
    own_users = isinstance(spec, Mapping) and spec.get("hostUsers") is False
    return not own_users and any(map(_powers, objects.containers(pod)))


def _powers(container: Mapping[str, Any]) -> bool:
    context = container.get("securityContext")
    if not isinstance(context, Mapping):
        return False
    capabilities = context.get("capabilities")
    added = capabilities.get("add") if isinstance(capabilities, Mapping) else None
    names = {name for name in added if isinstance(name, str)} if isinstance(added, list) else set()
    return context.get("privileged") is True or bool(names & _ADMIN)
