"""Implementations of `Backend`, one for each place where GPUs can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Kind = Literal["local", "kubernetes"]


def choose(wanted: str, environ: Mapping[str, str]) -> Kind:
    """Choose the backend for ``wanted``; ``auto``: the cluster's in a pod that the node plugin serves.

    A pod with a slot can open what the cluster granted and nothing else, so it is never the local one's, even if it has
    no token to ask with: that is said then. A pod without a slot has no GPUs but those that it can open itself.
    """
    if wanted in ("local", "kubernetes"):
        return "local" if wanted == "local" else "kubernetes"
    return "kubernetes" if environ.get("JUPYTER_GPU_NODE_SOCKET") else "local"
