"""The state of our pod as the node plugin sends it over the pod's socket; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model import strict


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """One line of the stream."""

    pod: Mapping[str, Any] | None
    """Its uid, version and annotations as in the JSON of a Pod; ``None`` while the node plugin does not know it."""
    gone: bool
    """Whether the cluster said that there is no such pod any more."""
    trouble: str
    """Why the node plugin cannot reach the cluster; empty: it can."""


def read_pod_update(answer: Any) -> PodUpdate:
    """Checked; raises `FieldError`."""
    body = strict.an_object(answer, "pod")
    trouble = body.get("trouble")
    return PodUpdate(
        pod=_read_pod(body["pod"]) if body.get("pod") is not None else None,
        gone=strict.required(body, "gone", strict.boolean),
        trouble=strict.label(1024)(trouble, "trouble") if trouble != "" else "",
    )


def _read_pod(value: Any) -> Mapping[str, Any]:
    metadata = strict.an_object(strict.an_object(value, "pod").get("metadata"), "metadata")
    annotations = strict.an_object(metadata.get("annotations"), "annotations")
    for key, text in annotations.items():
        if not isinstance(text, str):
            raise strict.FieldError(f"The annotation {strict.printable(key, 64)!r} must be text.", "annotations")
    word = strict.text(253)
    found: dict[str, Any] = {
        key: strict.required(metadata, key, word) for key in ("namespace", "name", "uid", "resourceVersion")
    }
    ending = strict.optional(metadata, "deletionTimestamp", word)
    more = {"deletionTimestamp": ending} if ending else {}
    return {"metadata": {**found, **more, "annotations": dict(annotations)}}
