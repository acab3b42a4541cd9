"""The limits of one owner that are in force, as plain amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpu.model.limits.source import UNSET, Source


@dataclass(frozen=True, slots=True)
class Maximum:
    """One maximum in force, and the limit that sets it."""

    amount: int
    """Milli, or bytes of memory."""
    source: Source = UNSET


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """The limits of one owner that are in force now. The defaults limit nothing.

    The highest priority is not among them: it goes into `PodState.cap`, with that of the namespace.
    """

    gpus: Maximum | None = None
    """Milli."""
    models: Mapping[str, Maximum] = field(default_factory=dict, hash=False)
    """Milli by words of a GPU's model."""
    memory: Maximum | None = None
    """Bytes of GPU memory."""
    grace: float = 0.0
    """Seconds for which more is tolerated."""
    source: Source = UNSET
    """The limit that says that GPUs are unlimited, where one does."""
    guaranteed: int = 0
    """Milli that the owner gets before others get more than theirs, where the line is fair."""
    weight: int = 1
    """The owner's weight in a fair line."""
    reclaimed: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Milli that pods give back for others that come before them (`reclaim`), by uid; together on all nodes."""
