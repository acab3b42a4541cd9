"""Pure: the changes between two lists of objects, as a watch reports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_gpu.kube.rules import objects

Objects = Mapping[str, dict[str, Any]]
"""Objects by name."""


def changes(before: Objects, after: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield type and object of each change, those that are gone first: another one may have their name."""
    for name, item in before.items():
        if name not in after or objects.uid(after[name]) != objects.uid(item):
            yield "DELETED", item
    for name, item in after.items():
        old = before.get(name)
        if old is None or objects.uid(old) != objects.uid(item):
            yield "ADDED", item
        elif objects.resource_version(old) != objects.resource_version(item):
            yield "MODIFIED", item
