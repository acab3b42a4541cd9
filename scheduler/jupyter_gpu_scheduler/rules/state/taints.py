"""Taints of nodes, and the tolerations by which pods may go there all the same. Pure.

kube-scheduler decides by them; here they say on which nodes workers of a pod could ever be. Odd ones count for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

_KEEPS_OUT = ("NoSchedule", "NoExecute")
_NODE_TROUBLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SECONDS = "NoExecute"


class Taint(NamedTuple):
    """A taint that keeps pods out."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration of some taints."""

    key: str = ""
    """Empty: of all keys."""
    value: str | None = None
    """``None``: of all values."""
    effect: str = ""
    """Empty: of all effects."""

    def covers(self, taint: Taint) -> bool:
        """Tell whether it is for this taint."""
        return self.key in ("", taint.key) and self.value in (None, taint.value) and self.effect in ("", taint.effect)


def tolerated(taints: Collection[Taint], tolerations: Collection[Toleration]) -> bool:
    """Tell whether a pod with these tolerations may go to a node with these taints."""
    return all(any(each.covers(taint) for each in tolerations) for taint in taints)


def read_taints(spec: Any) -> frozenset[Taint]:
    """Return the taints of a Node's ``spec`` that keep pods out."""
    found = (Taint(_text(item, "key"), _text(item, "value"), _text(item, "effect")) for item in _items(spec, "taints"))
    return frozenset(taint for taint in found if taint.key and taint.effect in _KEEPS_OUT)


def read_tolerations(spec: Any) -> frozenset[Toleration]:
    """Return the tolerations of a Pod's ``spec``, but for those that Kubernetes adds to each pod."""
    return frozenset(_toleration(item) for item in own_tolerations(spec))


def own_tolerations(spec: Any) -> list[Mapping[str, Any]]:
    """Return the tolerations in a Pod's ``spec``, but for those that Kubernetes adds to each pod."""
    return [item for item in _items(spec, "tolerations") if not _is_usual(item)]


def _toleration(item: Mapping[str, Any]) -> Toleration:
    exists = _text(item, "operator") == "Exists"
    key, effect = _text(item, "key"), _text(item, "effect")
    if not (key or exists):
        return Toleration("none", "", "none")  # the API server refuses it: it is for no taint
    return Toleration(key, None if exists else _text(item, "value"), effect)


def _is_usual(item: Mapping[str, Any]) -> bool:
    """Tell whether it lets a pod stay on a node that fails: it lets no new one go there."""
    return _text(item, "key") in _NODE_TROUBLE and _text(item, "effect") == _SECONDS


def _items(spec: Any, key: str) -> Iterator[Mapping[str, Any]]:
    found = spec.get(key) if isinstance(spec, Mapping) else None
    for item in found if isinstance(found, list) else ():
        if isinstance(item, Mapping):
            yield item


def _text(item: Mapping[str, Any], key: str) -> str:
    found = item.get(key)
    return found if isinstance(found, str) else ""
