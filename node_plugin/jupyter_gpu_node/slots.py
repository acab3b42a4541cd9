"""Slots: what a pod asks the kubelet for so that the GPUs of one of its containers can be changed.

A slot is a name without any hardware behind it, one for each container. The kubelet never says which pod it gave a slot
to; three sources do: PodResources (namespace, name, container), the kubelet's checkpoint (uid, container) and the API
server (all of it). Here they are compared; what does not fit together is refused.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PodRef:
    """One pod, which no other pod of the same name can be taken for."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """Who has a slot."""

    slot: str
    pod: PodRef
    container: str


class Unresolved(Exception):
    """It is not sure who has a slot; the text says in plain words why, and what to do."""


def names(count: int) -> tuple[str, ...]:
    """The slots of a node; the same after every restart, and a higher count only adds some."""
    return tuple(f"slot-{number:04}" for number in range(count))
