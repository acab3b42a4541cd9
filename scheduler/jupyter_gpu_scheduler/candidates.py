"""Which nodes can take a new pod now, and in plain words why the others can't.

A pod gets all the GPUs of its wish when it starts, or it does not start. Who stands in a node's line before it takes
first: the same order as among resizes, so nobody overtakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .policy import Policy
from .snapshot import ClusterSnapshot, PodState


@dataclass(frozen=True, slots=True)
class Filtered:
    """Which nodes can take a pod, in the order asked. The reasons name no node, so that equal ones can be counted."""

    fitting: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why not now, by node; it may come free."""
    never: Mapping[str, str] = field(default_factory=dict)
    """Why never, by node, whatever comes free."""


def filter_nodes(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> Filtered:
    """Sort the nodes ``names`` into those that can take ``pod`` now, those that may later, and those that never can.

    ``pod`` need not be in the snapshot; if it is, ``pod`` is what counts. Repeated wishes cost little.
    """
    raise NotImplementedError
