"""Instances (MIG) and the GPUs that they are cut from, as the driver has reported. Pure.

NVIDIA's device plugin names an instance by a uuid of its own. Only the driver knows of which GPU it is, and it
may be silent, or show instances only to programs with ``CAP_SYS_ADMIN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MOST = 4096
"""Number of instances that are remembered after the driver reported them."""
MIG_MODE = (
    "It is in MIG mode: it cannot be given as a whole, and its instances are not managed by jupyter-gpu. "
    "Switch MIG off on it to use it here."
)

InstancesByGpu = Mapping[str, frozenset[str] | None]
"""Uuids of the instances, by uuid of their GPU; None: not in MIG mode. Nothing is known of a GPU that is missing."""


class Instances(NamedTuple):
    """The known instances and their GPUs."""

    gpus: Mapping[str, str] = MappingProxyType({})
    """Uuid of the GPU, by uuid of an instance. It never moves to another, so an old report stays true."""
    whole: frozenset[str] = frozenset()
    """Uuids of GPUs that were not in MIG mode when the driver was asked last: no instance can be theirs."""
    divided: frozenset[str] = frozenset()
    """Uuids of GPUs that were in MIG mode at their last answer, perhaps long ago."""

    def learn(self, told: InstancesByGpu) -> Instances:
        """Return the knowledge after an answer of the driver."""
        now = {name: gpu for gpu, names in told.items() for name in sorted(names or ())}
        before = [(name, gpu) for name, gpu in self.gpus.items() if name not in now]
        room = max(0, MOST - len(now))
        kept = dict(before[len(before) - room :]) if room < len(before) else dict(before)
        whole = frozenset(gpu for gpu, names in told.items() if names is None)
        return Instances({**kept, **now}, whole, (self.divided | told.keys()) - whole)
