"""Pure: what a worker pod learns from its node plugin: whose key it accepts, whether its own is recorded, loads, GPUs.

In doubt nobody is accepted: while `service` cannot be read, or names another notebook than the one whose worker the
pod was created as.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import ATTACHED, SERVICE, WORKER, decode_attached
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import MAX_GPUS, Gpu
from jupyter_gpu.model.service import Peer, decode_worker, decode_worker_service
from jupyter_gpu.remote.rules import control

MAX_LINE = 2**20
"""Bytes of one line of the node plugin."""
_read_gpus = strict.list_of(Gpu.from_json, MAX_GPUS)


def read_taken(line: bytes) -> str:
    """Return why the node plugin does not take a pod's key; empty if it does. Raises `FieldError`."""
    body = strict.an_object(strict.loads(line, MAX_LINE), "answer")
    if "error" in body:
        return strict.printable(str(body["error"]), 300) or "it does not say why"
    strict.required(body, "put", strict.one_of("peer"))
    return ""


def read_sample(line: bytes) -> control.Loads:
    """Return the loads and kinds of the pod's GPUs; of very many the first ones. Raises `FieldError`."""
    body = strict.an_object(strict.loads(line, MAX_LINE), "answer")
    loads = strict.required(body, "loads", _first)
    kinds = strict.optional(body, "kinds", _first) or {}  # older plugins do not tell them
    return control.Loads(control.read_loads(loads, "loads"), control.read_kinds(kinds, "kinds"))


def read_gpus(line: bytes) -> tuple[Gpu, ...]:
    """Return the GPUs of the pod's node. Raises `FieldError`."""
    body = strict.an_object(strict.loads(line, MAX_LINE), "answer")
    return strict.required(body, "gpus", _read_gpus)


def _first(value: Any, key: str) -> dict[str, Any]:
    return dict(islice(strict.an_object(value, key).items(), control.MAX_LOADS))


def read_annotations(line: bytes) -> Mapping[str, str] | None:
    """Return the annotations of the pod; none once it is gone. None: a plugin that just started knows no pods yet.

    Raises `FieldError`.
    """
    body = strict.an_object(strict.loads(line, MAX_LINE), "state")
    gone = strict.required(body, "gone", strict.boolean)
    if gone:
        return {}
    if body.get("pod") is None:
        return None
    metadata = strict.required(strict.an_object(body["pod"], "pod"), "metadata", strict.an_object)
    annotations = strict.required(metadata, "annotations", strict.an_object)
    return {key: value for key, value in annotations.items() if isinstance(value, str)}


def accepted(annotations: Mapping[str, str]) -> str:
    """Return the public key of the one notebook that a worker accepts; empty: nobody."""
    try:
        service = decode_worker_service(annotations[SERVICE])
        identity = decode_worker(annotations[WORKER])
    except (KeyError, InvalidAnnotation):
        return ""
    return service.key if service.uid == identity.notebook else ""


def recorded(annotations: Mapping[str, str]) -> Peer | None:
    """Return the keys that the node plugin has recorded as the pod's own."""
    try:
        return decode_attached(annotations[ATTACHED]).peer
    except (KeyError, InvalidAnnotation):
        return None
