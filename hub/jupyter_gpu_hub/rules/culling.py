"""Pure: whether a server that the hub takes for inactive may be stopped, by what its pod does with GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ATTACHED, WORKER, decode_attached
from jupyter_gpu.model.limits.owner import USERNAME
from jupyter_gpu.model.service import decode_worker

from .usage import SERVER


def server_of(server: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of a server's user and of the server, from the hub's model of it; ``None``: it lacks them."""
    name, full = server.get("name"), server.get("full_name")
    if not isinstance(name, str) or not isinstance(full, str) or not full.endswith(f"/{name}"):
        return None
    user = full.removesuffix(f"/{name}")
    return (user, name) if user else None


def uses_gpus(pods: Collection[Mapping[str, Any]], user: str, name: str) -> bool | None:
    """Tell whether a process of a server's pods, or of their workers, has a GPU open; ``None``: that can't be read.

    A server without a pod here, or whose pods have no GPUs, has none open.
    """
    running = [pod for pod in pods if not objects.finished(pod)]
    own = {objects.uid(pod) for pod in running if _is_of(pod, user, name)}
    found: bool | None = False
    for pod in running:
        if not (_is_of(pod, user, name) or _notebook(pod) in own):
            continue
        attached, problem = objects.decoded(pod, ATTACHED, decode_attached)
        if attached and (attached.open or attached.draining):
            return True
        if problem:
            found = None
    return found


def _is_of(pod: Mapping[str, Any], user: str, name: str) -> bool:
    return objects.annotation(pod, USERNAME) == user and (objects.annotation(pod, SERVER) or "") == name


def _notebook(pod: Mapping[str, Any]) -> str | None:
    """Return the uid of the pod whose worker a pod is: it has the GPUs of another node for it."""
    identity, _ = objects.decoded(pod, WORKER, decode_worker)
    return identity.notebook if identity else None


def may_stop(inactive: float, limit: float, most: float, uses: bool | None) -> bool:
    """Tell whether a server that has been inactive for so many seconds may be stopped.

    ``limit``: seconds after which the culler would stop it; ``most``: after which it is stopped though it uses GPUs.
    What is not known (``None``) counts as use.
    """
    return inactive >= limit and (uses is False or inactive >= most)
