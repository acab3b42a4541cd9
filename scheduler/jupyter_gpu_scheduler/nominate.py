"""In which node's line a new pod waits that found no room.

It takes a ticket and stands in the line of exactly one node: the one with the best prospect. There it keeps back what
it could use from those behind it. It stays there while that node can serve it at all, unless another one can serve it
now and that one can't. Ticket and nomination are in the pod's own ``allocated``, without shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .decide import Decision
from .policy import Policy
from .snapshot import ClusterSnapshot, PodState


def nominate(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> Decision | None:
    """After no node fitted: the ``allocated`` that ``pod`` waits with, in line on one of ``names``; ``None``: no change.

    ``names`` are the nodes that kube-scheduler would have taken. Where none of them can ever serve it, it stands in
    no line and its ``allocated`` says why. The ticket is the next one of the cluster, or the one it has.
    """
    raise NotImplementedError


def review(snapshot: ClusterSnapshot, policy: Policy, changed: Iterable[str] | None = None) -> tuple[Decision, ...]:
    """Nominations that must change, next in line first: the node is gone or can't serve any more, or another can now.

    ``changed``: look for room only on these nodes; ``None``: on all. To be called after changes and before `decide`,
    so that what comes free goes to who waits longest, wherever it waits. Deciding again gives nothing.
    """
    raise NotImplementedError
