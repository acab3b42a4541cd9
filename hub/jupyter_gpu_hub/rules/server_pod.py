"""The pod of a hub's server: which pod it is, what its server is told, which request may be written into it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    SERVICE,
    WORKER_STATUS,
    Requested,
    decode_allocated,
    decode_requested,
    encode,
)
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.message import Message, gettext
from jupyter_gpu.model.refusal import refusal

from . import usage
from .refusals import Refusal

MAX_REQUEST = 4096
"""Bytes of a request as it is written into a pod."""
MAX_VERSION = 64
"""Letters of the version of a pod."""
MAX_PODS = 4
"""Pods that are looked at; a user with more that have the name of one server is refused without a look."""

Pod = Mapping[str, Any]

_SHOWN = (REQUESTED, ALLOCATED, ATTACHED, SERVICE, WORKER_STATUS)
_read_version = strict.text(MAX_VERSION)


@dataclass(frozen=True, slots=True)
class HubServer:
    """One server of a hub's user, as its token names it."""

    owner: Owner
    name: str
    """Empty for the unnamed one."""

    def in_words(self) -> Message:
        """Return the server's name, to stand in a sentence."""
        user, hub = repr(self.owner.name), repr(self.owner.hub)
        if not self.name:
            return gettext("the server of %1 (hub %2)", user, hub)
        return gettext("server %1 of %2 (hub %3)", repr(self.name), user, hub)


@dataclass(frozen=True, slots=True)
class PodChange:
    """A request for one version of a pod."""

    requested: Requested
    version: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PodChange:
        """Read a body; raises `FieldError`, and `OversizeError` for a request that is too long."""
        strict.no_unknown(body, ("requested", "version"))
        value = strict.an_object(strict.required(body, "requested", lambda value, _: value), "requested")
        # Read as the annotation is read later, so that what is written can be read.
        requested = strict.loads(strict.dumps(value), MAX_REQUEST)
        return cls(Requested.from_json(requested), strict.required(body, "version", _read_version))

    def patch(self, pod: Pod) -> dict[str, Any]:
        """Return the patch of this very pod in this very version."""
        identity = {"uid": objects.uid(pod), "resourceVersion": self.version}
        return {"metadata": {**identity, "annotations": {REQUESTED: encode(self.requested)}}}


def is_pod_of(pod: Pod, server: HubServer) -> bool:
    """Tell whether ``pod`` is that server, has a slot, and goes on."""
    if objects.deleting(pod) or objects.finished(pod):
        return False
    use = usage.read_pod(pod)
    return use is not None and use.owner == server.owner and use.server == server.name


def the_one(pods: Iterable[Pod], server: HubServer) -> Pod:
    """Return the pod that is the server; raises `Refusal` if there is none, or more than one."""
    found = [pod for pod in pods if is_pod_of(pod, server)]
    if len(found) > 1:
        raise several([f"{objects.namespace(pod)}/{objects.name(pod)}" for pod in found], server)
    if not found:
        raise Refusal(
            404,
            gettext(
                "No pod with a GPU slot is %1. While it is being created, ask again in a moment; otherwise its "
                "annotations hub.jupyter.org/username and jupyter-gpu.io/hub say something else.",
                server.in_words(),
            ),
        )
    return found[0]


def several(names: Iterable[str], server: HubServer) -> Refusal:
    """Return the refusal for more than one pod; ``details.pods`` has the names of the first ones."""
    pods = sorted(names)
    shown = pods[:MAX_PODS]
    names = ", ".join(shown) + (", …" if len(pods) > MAX_PODS else "")
    text = gettext(
        "%1 pods say that they are %2: %3. Nothing was changed. Delete all but one.",
        len(pods),
        server.in_words(),
        names,
    )
    return Refusal(409, text, pods=shown)


def check(pod: Pod, requested: Requested) -> None:
    """Raise `Refusal` for a request that the server itself would refuse; ``details.error`` is its error as JSON.

    A priority above the limit counts as the highest that is allowed, so it is no reason to refuse.
    """
    current, _ = objects.decoded(pod, REQUESTED, decode_requested)
    wish = replace(requested.wish, priority=current.wish.priority if current else None)
    allocated, _ = objects.decoded(pod, ALLOCATED, decode_allocated)
    of_user = allocated.limit.together() if allocated and allocated.limit else None
    if error := refusal(wish, current, limit=None, of_user=of_user, gpus=None):
        raise Refusal(422, error.message, error=error.to_json())


def to_json(pod: Pod) -> dict[str, Any]:
    """Return what a server may know of its pod: its identity, its version, and our annotations."""
    texts = {key: objects.annotation(pod, key) for key in _SHOWN}
    return {
        "namespace": objects.namespace(pod),
        "name": objects.name(pod),
        "uid": objects.uid(pod),
        "version": objects.resource_version(pod),
        "annotations": strict.without_none(texts),
    }
