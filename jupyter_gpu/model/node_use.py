"""The use of a node's CPU, memory and disk: the ``use`` annotation of its Node. Pure.

``{"cpu": 3, "memory": 5, "disk": 1}``: how many eighths of each are in use, by whatever runs there. It is written only
when one of them is another for minutes. One that is missing is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import strict
from .annotations import PREFIX, decode

USE = PREFIX + "use"
"""Annotation of a Node; its node plugin writes it."""
EIGHTHS = 8
"""A resource of which all is in use."""

_read_eighths = strict.integer(0, EIGHTHS)


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Eighths in use; ``None``: not known."""

    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None
    """The file system on which ephemeral storage lies."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields of a newer version, kept as they are."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"cpu"?, "memory"?, "disk"?}``."""
        return {**strict.without_none({"cpu": self.cpu, "memory": self.memory, "disk": self.disk}), **self.extra}

    @classmethod
    def from_json(cls, value: Any, key: str = "use") -> NodeUse:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            cpu=strict.optional(body, "cpu", _read_eighths),
            memory=strict.optional(body, "memory", _read_eighths),
            disk=strict.optional(body, "disk", _read_eighths),
            extra=strict.unknown(body, ("cpu", "memory", "disk")),
        )


def decode_use(text: str | bytes) -> NodeUse:
    """Decode the ``use`` annotation; raises `InvalidAnnotation`."""
    return decode(USE, text, NodeUse.from_json)
