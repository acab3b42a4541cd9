"""Implementations of :class:`~jupyter_gpu.backend.Backend`, one for each place where GPUs can be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["local", "kubernetes"]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def choose(wanted: str, environ: Mapping[str, str], service_account: Path = _SERVICE_ACCOUNT) -> Kind:
    """The backend for ``wanted``; ``auto``: that of a pod where the node plugin serves it and it can ask the cluster.

    It is a pod's only if both are so: a server in a pod without a slot has no GPUs but those that it can open itself.
    """
    if wanted in ("local", "kubernetes"):
        return "local" if wanted == "local" else "kubernetes"
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST")) and (service_account / "token").is_file()
    return "kubernetes" if environ.get("JUPYTER_GPU_NODE_SOCKET") and in_pod else "local"
