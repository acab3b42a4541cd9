"""Implementations of `Backend`: for one machine, and for a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Kind = Literal["local", "kubernetes"]


def choose(wanted: str, environ: Mapping[str, str]) -> Kind:
    """Return the backend for ``wanted``; ``auto``: the cluster's in a pod that the node plugin serves, else the local
    one.

    A pod with a slot can open only GPUs that the cluster granted, so the local backend is useless there, even if the
    pod has no token for requests: then an error says so. A pod without a slot can open its GPUs without the cluster.
    """
    if wanted in ("local", "kubernetes"):
        return "local" if wanted == "local" else "kubernetes"
    return "kubernetes" if environ.get("JUPYTER_GPU_NODE_SOCKET") else "local"
