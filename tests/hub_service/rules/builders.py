"""Objects and values in a line each, for tests of the rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, INVENTORY, REQUESTED
from jupyter_gpu.model.limits.changes import CHANGES
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, MANAGED_BY, Limit
from jupyter_gpu.model.limits.owner import USERNAME
from jupyter_gpu_hub.rules.known import KnownLimit

HUB = "jhub"
ANN = {"kind": "User", "name": "ann", "hub": HUB}
ML = {"kind": "Group", "name": "ml", "hub": HUB}


def limit_object(
    subject: Any,
    *,
    name: str = "x",
    version: str = "1",
    label: str = "",
    members: list[str] | None = None,
    changes: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a ``GpuLimit`` as the API server has it."""
    return {
        "apiVersion": "jupyter-gpu.io/v1alpha1",
        "kind": "GpuLimit",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "generation": 1,
            "labels": {MANAGED_BY: label} if label else {},
            "annotations": {CHANGES: json.dumps(changes)} if changes else {},
        },
        "spec": {"subject": subject, **spec},
        "status": {} if members is None else {"members": members},
    }


def known(subject: Any, **more: Any) -> KnownLimit:
    """Return the same, read."""
    return KnownLimit.of(limit_object(subject, **more))


def limit(subject: Any, **more: Any) -> Limit:
    """Return what it says."""
    return known(subject, **more).limit


def mirrored(**more: Any) -> KnownLimit:
    """Return the copy of the properties of group ml."""
    return known(ML, label=HUB_PROPERTIES, **more)


def pod(
    name: str = "p",
    *,
    user: str = "ann",
    wish: int | None = None,
    shares: Mapping[str, int] | None = None,
    attached: Mapping[str, int] | None = None,
    draining: Mapping[str, int] | None = None,
    opened: tuple[str, ...] = (),
    rests: tuple[str, ...] = (),
    position: int | None = None,
    phase: str = "Running",
    deleting: bool = False,
    slot: bool = True,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a Pod of a user in namespace jhub, with the three states as milli by uuid."""
    notes = {USERNAME: user} if user else {}
    if wish is not None:
        notes[REQUESTED] = json.dumps({"generation": 1, "milli": wish})
    if shares is not None:
        place = {} if position is None else {"position": position, "ticket": 7}
        notes[ALLOCATED] = json.dumps({"observedGeneration": 1, "shares": _shares(shares), **place})
    if attached is not None:
        body = {"observedGeneration": 1, "shares": _shares(attached), "draining": _shares(draining or {})}
        notes[ATTACHED] = json.dumps({**body, "open": list(opened), "rests": list(rests)})
    metadata = {"name": name, "namespace": HUB, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {"a": "b"}}
    return {
        "metadata": {
            **metadata,
            **({"deletionTimestamp": "2026-05-03T10:00:00Z"} if deleting else {}),
            "annotations": {**notes, "other": "x", **(annotations or {})},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"jupyter-gpu.io/slot": "1"} if slot else {}}}]},
        "status": {"phase": phase},
    }


def node(*uuids: str, sick: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a Node with these GPUs."""
    gpus = [
        {"uuid": uuid, "index": i, "model": "A100", "memory": 2**30, "healthy": uuid not in sick}
        for i, uuid in enumerate(uuids)
    ]
    return {
        "metadata": {"name": "n", "uid": "uid-n", "resourceVersion": "1", "annotations": {INVENTORY: json.dumps(gpus)}}
    }


def _shares(shares: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"uuid": uuid, "milli": milli} for uuid, milli in shares.items()]
