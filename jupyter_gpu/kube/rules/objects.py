"""Readers of the JSON of a Pod or Node; pure. Odd input gives the empty answer, never an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from jupyter_gpu.model.errors import InvalidAnnotation

T = TypeVar("T")

SLOT = "jupyter-gpu.io/slot"
"""The resource that a container must ask for so that its GPUs can be changed."""

Object = Mapping[str, Any]


def uid(o: Any) -> str:
    """Return the uid of an object; a new object with the same name has another."""
    return _text(_metadata(o), "uid")


def name(o: Any) -> str:
    """Return its name."""
    return _text(_metadata(o), "name")


def namespace(o: Any) -> str:
    """Return its namespace; empty for what has none."""
    return _text(_metadata(o), "namespace")


def resource_version(o: Any) -> str:
    """Return the resource version of an object or a list; `newer` compares two."""
    return _text(_metadata(o), "resourceVersion")


def generation(o: Any) -> int:
    """Return the number of an object's spec, which rises when the spec changes; 0 if it has none."""
    found = _metadata(o).get("generation")
    return found if isinstance(found, int) else 0


def newer(o: Any, known: Any) -> bool:
    """Tell whether ``o`` is a later state of the same object than ``known``."""
    return newer_version(resource_version(o), resource_version(known))


def newer_version(one: str, other: str) -> bool:
    """Tell whether resource version ``one`` is later than ``other``.

    Versions are rising numbers on all known API servers; Kubernetes guarantees it since 1.35. If they are no numbers,
    the one that came last counts.
    """
    if _counter(one) and _counter(other):
        return int(one) > int(other)
    return one != other


def created(o: Any) -> str:
    """Return the time of its creation, as the API writes times; they sort as text."""
    return _text(_metadata(o), "creationTimestamp")


def annotation(o: Any, key: str) -> str | None:
    """Return the text of an annotation; ``None`` where it is not there."""
    value = _map(_metadata(o), "annotations").get(key)
    return value if isinstance(value, str) else None


def decoded(o: Any, key: str, decode: Callable[[str], T]) -> tuple[T | None, str]:
    """Return the value of an annotation, and why it can't be read; ``None`` and an empty text where there is none."""
    text = annotation(o, key)
    if text is None:
        return None, ""
    try:
        return decode(text), ""
    except InvalidAnnotation as error:
        return None, error.message


def labels(o: Any) -> dict[str, str]:
    """Return all labels."""
    return {key: value for key, value in _map(_metadata(o), "labels").items() if isinstance(value, str)}


def deleting(o: Any) -> bool:
    """Tell whether it is being deleted."""
    return bool(_text(_metadata(o), "deletionTimestamp"))


def controller_reference(o: Any) -> Mapping[str, Any] | None:
    """Return the owner reference of the controller that made an object."""
    owners = _metadata(o).get("ownerReferences")
    found = [item for item in owners if isinstance(item, Mapping)] if isinstance(owners, list) else []
    return next((item for item in found if item.get("controller") is True), None)


def controller_kind(o: Any) -> str:
    """Return kind and group of an object's controller as Kubernetes writes them: ``Job.batch``; empty: none."""
    reference = controller_reference(o) or {}
    kind, version = _text(reference, "kind"), _text(reference, "apiVersion")
    group, slash, _ = version.rpartition("/")
    return f"{kind}.{group}" if kind and slash else kind


def node_name(pod: Any) -> str:
    """Return the node that the pod is bound to; empty before that."""
    return _text(_map(pod, "spec"), "nodeName")


def phase(pod: Any) -> str:
    """Return ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    return _text(_map(pod, "status"), "phase")


def finished(pod: Any) -> bool:
    """Tell whether no container of it will ever run again."""
    return phase(pod) in ("Succeeded", "Failed")


def slots(pod: Any) -> dict[str, int]:
    """Count the slots that each container asks for; containers that ask for none are left out."""
    found = {}
    for container in containers(pod):
        resources = _map(container, "resources")
        amount = _map(resources, "limits").get(SLOT) or _map(resources, "requests").get(SLOT)
        count = _count(amount)
        if count:
            found[_text(container, "name")] = count
    return found


def containers(pod: Any) -> Iterator[Object]:
    """Yield init containers and containers; not the ephemeral ones, which cannot ask for resources."""
    spec = _map(pod, "spec")
    for key in ("initContainers", "containers"):
        found = spec.get(key)
        yield from (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else ()


def _metadata(o: Any) -> Object:
    return _map(o, "metadata")


def _map(o: Any, key: str) -> Object:
    value = o.get(key) if isinstance(o, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _text(o: Object, key: str) -> str:
    value = o.get(key)
    return value if isinstance(value, str) else ""


def _counter(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


def _count(amount: Any) -> int:
    """Read an amount of an extended resource; the API server stores these as whole numbers."""
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
