"""What a policy makes of a stream of new pods: the decisions of the cluster, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .policy import Policy
from .snapshot import ClusterSnapshot, PodState


@dataclass(frozen=True, slots=True)
class Job:
    """A pod that comes, and perhaps ends before the ``until``-th job comes."""

    pod: PodState
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the jobs; amounts in milli."""

    capacity: int
    """All GPUs of the nodes."""
    arrived: tuple[int, ...]
    """Wished by the first n jobs together, without those that ended."""
    allocated: tuple[int, ...]
    """Allocated when n jobs had come."""
    fragmented: int
    """Free at the end, but of no use for the typical wish (FGD's measure)."""
    refused: int
    """How many jobs found no place."""


def replay(snapshot: ClusterSnapshot, jobs: Iterable[Job], names: Sequence[str], policy: Policy) -> Outcome:
    """Bring the jobs one after the other onto the best node that has room; who finds none is refused."""
    raise NotImplementedError
