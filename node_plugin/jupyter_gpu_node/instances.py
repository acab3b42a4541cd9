"""Which GPU an instance (MIG) is cut from, as the driver has told. Pure.

NVIDIA's device plugin names an instance by a uuid of its own. Only the driver knows of which GPU it is, and it
may be silent, or show instances to nobody but programs with ``CAP_SYS_ADMIN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 4096
"""Instances that are remembered after the driver told of them."""
MIG_MODE = (
    "It is in MIG mode: it cannot be given as a whole, and its instances are not managed by jupyter-gpu. "
    "Switch MIG off on it to use it here."
)

Told = Mapping[str, frozenset[str] | None]
"""By uuid of a GPU the uuids of its instances; None: it is not in MIG mode. Of one that is missing nothing is known."""


@dataclass(frozen=True, slots=True)
class Instances:
    """All that is known of them."""

    gpus: Mapping[str, str] = field(default_factory=dict)
    """By uuid of an instance, that of its GPU: it is never moved to another, so what was told once stays true."""
    whole: frozenset[str] = frozenset()
    """Uuids of GPUs that were not in MIG mode when the driver was asked last: no instance can be theirs."""
    divided: frozenset[str] = frozenset()
    """Uuids of those that were when they told last, maybe long ago."""

    def learn(self, told: Told) -> Instances:
        """What is known after the driver ``told`` this."""
        now = {name: gpu for gpu, names in told.items() for name in sorted(names or ())}
        before = [(name, gpu) for name, gpu in self.gpus.items() if name not in now]
        room = max(0, MOST - len(now))
        kept = dict(before[len(before) - room :]) if room < len(before) else dict(before)
        whole = frozenset(gpu for gpu, names in told.items() if names is None)
        return Instances({**kept, **now}, whole, (self.divided | told.keys()) - whole)
