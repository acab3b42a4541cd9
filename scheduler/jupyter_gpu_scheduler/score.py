"""How good each place is for a pod. A place is a pair: the pod's node and the node of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .policy import Policy
from .snapshot import ClusterSnapshot, PodState

BEST = 10
"""The highest score that kube-scheduler takes from an extender."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A place for a pod."""

    pod_node: str
    gpu_node: str


def score(snapshot: ClusterSnapshot, pod: PodState, pair: Pair, policy: Policy) -> float:
    """How good ``pair`` is, 0 to 1; 0 where the GPUs of the wish are not free there."""
    raise NotImplementedError


def prioritize(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> dict[str, int]:
    """0 to 10 for each of ``names``, GPUs on the pod's own node: 10 for the best alone, 0 for the worst."""
    raise NotImplementedError
