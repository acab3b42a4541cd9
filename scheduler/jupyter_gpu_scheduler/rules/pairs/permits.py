"""Pure: how much of a notebook's wish the limits of its owner permit on other nodes.

Limits of models and of memory count GPUs by their kind: where another node has larger GPUs, or ones of a limited model,
they permit another amount than on the own node. So each kind of node is asked for itself: what would a pod be permitted
there that stands in the owner's line where the notebook does, and wishes what is left? A worker stands before all
others in that line (`limits.claims`), so it gets at least as much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.division import Division, PodBound
from jupyter_gpu_scheduler.rules.limits.owner_limits import OwnerLimits
from jupyter_gpu_scheduler.rules.placement.models import ModelAllowances
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .amounts import most_here
from .workers import promise_uid

LimitsOf = Callable[[Owner], OwnerLimits | None]
"""Returns the limits of an owner; ``None``: they count no kinds of GPUs, so they permit the same on all nodes."""


class Permits:
    """The milli that limits permit on each node, where they permit the same on all."""

    def __init__(self, milli: int, models: ModelAllowances = ()) -> None:
        self._milli = milli
        self._models = models

    def on(self, _node: str) -> int:
        """Return the milli that are permitted on a node, beside what is there already."""
        return self._milli

    def amounts(self) -> Collection[int]:
        """Return the different amounts that are permitted, on some node or other."""
        return (self._milli,)

    def too_little(self, _milli: int) -> Collection[str]:
        """Return the nodes where less is permitted, if more is on others."""
        return ()

    @property
    def models(self) -> ModelAllowances:
        """The allowances for models on nodes that have other models, too."""
        return self._models


class PermitsByKind(Permits):
    """The same where limits count kinds of GPUs.

    ``pods`` are all pods of the owner, as they would be; ``asking`` wishes all that is left, whichever node it is on.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, limits: OwnerLimits, asking: PodState, pods: Sequence[PodState]
    ) -> None:
        super().__init__(0)
        self._snapshot = snapshot
        self._limits = limits
        self._asking = asking
        self._pods = pods
        self._known: dict[Hashable, tuple[int, ModelAllowances]] = {}

    def on(self, node: str) -> int:
        """Return the milli that are permitted on a node, beside what is there already."""
        return self._asked(node)[0]

    def amounts(self) -> Collection[int]:
        """Return the different amounts that are permitted, on some node or other."""
        return {self.on(node) for node in self._snapshot.nodes()}

    def too_little(self, milli: int) -> Collection[str]:
        """Return the nodes where less is permitted, if more is on others."""
        return {node for node in self._snapshot.nodes() if self.on(node) < milli}

    @property
    def models(self) -> ModelAllowances:
        """The allowances for models on nodes that have other models, too."""
        most: dict[str, int] = {}
        for node in self._snapshot.nodes():
            for word, milli in self._asked(node)[1]:  # it differs only where a node could not serve more anyway
                most[word] = max(milli, most.get(word, 0))
        return tuple(sorted(most.items()))

    def _asked(self, node: str) -> tuple[int, ModelAllowances]:
        kinds: dict[str, Hashable] = self._snapshot.gpu_memo("kinds")
        if node not in kinds:
            kinds[node] = (frozenset(self._snapshot.gpu_kinds(node)), len(self._snapshot.gpus(node) or ()))
        kind = kinds[node]
        if kind not in self._known:
            self._known[kind] = self._ask(node)
        return self._known[kind]

    def _ask(self, node: str) -> tuple[int, ModelAllowances]:
        """Ask for no more than the node could ever serve: a pod that asks for more would come last in the line."""
        there = replace(self._asking, node=node)
        assert there.requested
        most = most_here(self._snapshot, there)
        wish = with_amount(there.requested.wish, there.requested.milli if most is None else most)
        there = replace(there, requested=replace(there.requested, wish=wish))
        bound = bound_of(self._snapshot, self._limits, there, self._pods)
        milli = wish.milli if bound.allowance is None else min(wish.milli, bound.allowance)
        return milli, tuple(sorted(bound.models))


def permits_by_kind(
    snapshot: ClusterSnapshot, limits: OwnerLimits, notebook: PodState, wish: Wish, instead: Iterable[PodState]
) -> Permits:
    """Return what is permitted of ``wish``, which the notebook wishes of other nodes.

    ``instead``: pods of the owner as they would be, in place of those in the snapshot; the notebook is one of them.
    """
    if notebook.uid in limits.reclaimed:  # it gives GPUs back for others
        return Permits(0)
    changed = {pod.uid: pod for pod in instead}
    pods = [changed.get(pod.uid, pod) for pod in snapshot.owned(notebook.owner)]
    asking = PodState(
        uid=promise_uid(notebook.uid, ""),
        requested=Requested(0, with_amount(wish, wish.milli)),
        allocated=Allocated(0, ticket=notebook.ticket),
        created=notebook.created,
        cap=notebook.cap,
        overdue=notebook.overdue,
        owner=notebook.owner,
        standing=notebook.standing,
    )
    return PermitsByKind(snapshot, limits, asking, pods)


def bound_of(snapshot: ClusterSnapshot, limits: OwnerLimits, pod: PodState, others: Iterable[PodState]) -> PodBound:
    """Return what limits permit one pod beside ``others`` of its owner."""
    pods = [pod, *(each for each in others if each.uid != pod.uid)]
    return Division(snapshot, pods, limits).bounds(tolerated=True)[pod.uid]


def keeping(pod: PodState, shares: Iterable[GpuShare], milli: int | None = None) -> PodState:
    """Return a pod once it has closed all but ``shares``, and wishes ``milli``; ``None``: nothing more."""
    asked = pod.requested if milli is not None else None
    return replace(
        pod,
        requested=replace(asked, wish=with_amount(asked.wish, milli or 0)) if asked else None,
        allocated=replace(pod.allocated or Allocated(0), shares=tuple(shares), revoked=()),
        attached=None,
    )


def oldest(shares: Iterable[GpuShare], milli: int) -> tuple[GpuShare, ...]:
    """Return the oldest shares that have ``milli`` together; of the last one a part."""
    found: list[GpuShare] = []
    for share in shares:
        found.append(share._replace(milli=min(milli, share.milli)))
        milli -= found[-1].milli
    return tuple(share for share in found if share.milli)
