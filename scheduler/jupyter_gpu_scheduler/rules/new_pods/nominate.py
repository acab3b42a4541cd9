"""Nomination: the choice of the node in whose line a new pod without room waits.

The pod takes a ticket and stands in the line of exactly one node: the one with the best outlook. What it could use
there is kept back from the pods behind it. It stays there while that node can serve it at all. It moves only to a node
that can serve it now while its own can't, or that lacks less of what it wants with no more pods ahead: so a pod that
left while a node was gone returns. Each such move leaves less to wait for, so moves come to an end. Ticket and
nomination are in the pod's own ``allocated``, without shares.

A pod takes its ticket only once all that come before it on these nodes have theirs or need none: a running pod whose
newest wish is not decided yet has no ticket, and one that was taken now would come before it (`is_early`). The node is
chosen as for a pod with that ticket, so to nominate it again changes nothing.

A pod is nominated only to nodes that kube-scheduler offered for it last, as it is bound to no other. If its node can no
longer serve it and no other offered node can, it keeps its ticket and stands in no line until kube-scheduler asks
again; the write of that makes kube-scheduler ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.errors import GpuError, Infeasible
from jupyter_gpu.model.quantity import count_gpus
from jupyter_gpu_scheduler.rules.pairs.joint import could_be_joint
from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, filter_nodes, has_resources, selected, unacceptable
from jupyter_gpu_scheduler.rules.queue.decide import Decision, outlook, over_limit
from jupyter_gpu_scheduler.rules.queue.fit_cache import fit_on, has_room, known_fits, waiting_ranks, wanted
from jupyter_gpu_scheduler.rules.queue.positions import shown_position
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import node_score
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot


def nominate(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> Decision | None:
    """Put ``pod``, which fits on no node now, in line on one of ``names``; return the change of its ``allocated``.

    ``None``: no change, also as it is too early. ``names`` are the nodes that kube-scheduler would have taken. The
    ticket is the one that the pod has, or the next one of the cluster. If none of the nodes can serve it now, it keeps
    its ticket and stands in no line; if none ever can, it loses the ticket, and its ``allocated`` says why.
    """
    if wanted(pod) is None and not pod.fault:
        return _decision(pod, None)  # it waits for something else
    error = unacceptable(pod)
    if error is not None:
        return _decision(pod, _refused(pod, error))
    if is_early(snapshot, pod, names):
        return None
    node = _best_node(snapshot, _with_ticket(snapshot, pod), names, policy)
    if node is None and not _may_be_served_later(snapshot, pod, names):
        return _decision(pod, _refused(pod, Infeasible(_explain_refusal(snapshot, pod, names), have=0)))
    return _decision(pod, _in_line(snapshot, pod, node))


def is_early(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str]) -> bool:
    """Tell whether ``pod`` is to take no ticket yet, as one that comes before it on any of ``names`` has none.

    That lasts until the node of the other one is decided.
    """
    if pod.ticket is not None:
        return False
    ranks = (rank for name in names if snapshot.gpus(name) is not None for rank in waiting_ranks(snapshot, name))
    overtaken = (rank[-1] for rank in ranks if rank < pod.rank and rank[:4] == pod.rank[:4])
    return any((other := snapshot.pod(uid)) and other.undecided for uid in overtaken)


def is_void(pod: PodState) -> bool:
    """Tell whether no line can serve ``pod``: it no longer waits for anything, or its wish is unacceptable."""
    return wanted(pod) is None or unacceptable(pod) is not None


def must_leave(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Tell whether ``pod`` must leave its line: the node is gone, takes no such pod or can never serve it."""
    here = pod.nominated
    if is_void(pod) or not acceptable(pod, snapshot.facts(here)):
        return True
    return _is_impossible_here(snapshot, pod)


def leave(snapshot: ClusterSnapshot, pod: PodState, policy: Policy, changed: Iterable[str]) -> Decision | None:
    """Move ``pod`` out of its node's line into the best other one, or into none if no offered node can serve it.

    For a pod that is in no line already, only the ``changed`` nodes are examined: the others were examined before.
    """
    if is_void(pod):
        return nominate(snapshot, pod, (), policy)
    known = known_fits(snapshot, pod)
    names = (pod.offered or ()) if pod.nominated else sorted(changed)
    able = [name for name in names if may_go(snapshot, pod, name)]
    able = [name for name in able if not fit_on(snapshot, pod, name, known)[0].never]
    return nominate(snapshot, pod, able, policy) if able else _decision(pod, _in_line(snapshot, pod, None))


def _is_impossible_here(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    here = pod.nominated
    return snapshot.gpus(here) is None or fit_on(snapshot, pod, here, known_fits(snapshot, pod))[0].never


def fits_at(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    """Tell whether a node can serve ``pod`` now, as far as GPUs and slots go."""
    return fit_on(snapshot, pod, name, known_fits(snapshot, pod))[0].fits


def may_go(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    """Tell whether kube-scheduler offered a node for ``pod`` and nothing known here stands in the way."""
    facts = snapshot.facts(name)
    return name in (pod.offered or ()) and acceptable(pod, facts) and has_resources(pod, facts)


def _best_node(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str], policy: Policy) -> str | None:
    """Return the best node to wait on: where the pod fits, else where it lacks least, in the shortest line, by score.

    From its present node a pod moves only to one where it fits, or lacks less behind no more pods: otherwise all that
    wait would follow every GPU that comes free.
    """
    known = known_fits(snapshot, pod)
    found = {
        name: fit_on(snapshot, pod, name, known)
        for name in names
        if snapshot.gpus(name) is not None and acceptable(pod, snapshot.facts(name))
    }
    able = {name: (not one.fits, one.owed, ahead) for name, (one, ahead) in found.items() if not one.never}
    if not able:
        return None
    here = able.get(pod.nominated)
    better = {name: rank for name, rank in able.items() if here is None or _is_better(rank, here)}
    if here is not None and not better:
        return pod.nominated
    least = min(better.values())
    return min(
        (name for name, rank in better.items() if rank == least),
        key=lambda name: (-node_score(snapshot, pod, name, policy), name),
    )


def _is_better(there: tuple[bool, int, int], here: tuple[bool, int, int]) -> bool:
    """Tell whether a node is better than the present one; each is: does not fit, milli lacking, pods ahead."""
    (late, owed, before), (late_here, owed_here, before_here) = there, here
    return late < late_here or (late == late_here and owed < owed_here and before <= before_here)


def _may_be_served_later(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str]) -> bool:
    """Tell whether any node may serve the pod one day: nodes that are not offered now may be cordoned or tainted."""
    known = known_fits(snapshot, pod)
    others = (name for name in snapshot.nodes() if pod.anywhere or selected(pod, snapshot.facts(name)))
    if any(not fit_on(snapshot, pod, name, known)[0].never for name in (*names, *others)):
        return True
    return pod.anywhere and could_be_joint(snapshot, pod, tuple(snapshot.nodes()))


def _in_line(snapshot: ClusterSnapshot, pod: PodState, node: str | None) -> Allocated:
    """Return ``allocated`` with the ticket, in the line of ``node``; ``None``: in no line."""
    assert pod.requested is not None
    before = pod.allocated or Allocated(0)
    after = replace(
        before,
        observed_generation=pod.requested.generation,
        shares=(),
        reason=Reason.DEFERRED,
        ticket=_ticket(snapshot, pod),
        limit=pod.pod_limit,
        extra={**_without_node(before), **({NOMINATED: node} if node else {})},
    )
    if not node:
        wants = count_gpus(pod.wish.milli if pod.wish else 0)
        return replace(
            after, message=f"Waiting for {wants}; no node that could serve it takes the pod now.", position=None
        )
    waiting = replace(pod, allocated=after)
    ahead = sum(other.rank < waiting.rank for other in snapshot.line(node) if other.uid != pod.uid)
    return replace(
        after,
        message=outlook(waiting, room=has_room(snapshot, waiting)),
        position=shown_position(ahead + 1, before.position),
    )


def _ticket(snapshot: ClusterSnapshot, pod: PodState) -> int:
    return pod.ticket if pod.ticket is not None else snapshot.last_ticket + 1


def _with_ticket(snapshot: ClusterSnapshot, pod: PodState) -> PodState:
    """Return the pod as it will stand in line."""
    if pod.ticket is not None:
        return pod
    return replace(pod, allocated=replace(pod.allocated or Allocated(0), ticket=_ticket(snapshot, pod)))


def _refused(pod: PodState, error: GpuError) -> Allocated:
    before = pod.allocated or Allocated(0)
    return replace(
        before,
        observed_generation=pod.requested.generation if pod.requested else before.observed_generation,
        shares=(),
        reason=Reason(error.reason),
        message=error.message,
        ticket=None,
        position=None,
        limit=pod.pod_limit,
        extra=_without_node(before),
    )


def _without_node(before: Allocated) -> dict[str, object]:
    return {key: value for key, value in before.extra.items() if key != NOMINATED}


def _explain_refusal(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str]) -> str:
    """Explain why none of the nodes can ever serve the pod, the most frequent reason first."""
    filtered = filter_nodes(snapshot, pod, names)
    reasons = Counter((*filtered.never.values(), *filtered.failed.values()))
    text = "; ".join(f"{count}: {why}" for why, count in reasons.most_common(5))
    return f"None of {len(names)} nodes can serve this ({text})." if text else "No node can serve this."


def _decision(pod: PodState, after: Allocated | None) -> Decision | None:
    """Return the decision from the present ``allocated`` to ``after``; ``None``: the pod leaves the line."""
    if after is None:
        if pod.allocated is None or pod.ticket is None:
            return None
        reason, message = (Reason.LIMIT_EXCEEDED, over_limit(pod, 0)) if pod.cut else (None, "")
        cleared = replace(pod.allocated, reason=reason, message=message, ticket=None, position=None)
        after = replace(cleared, shares=(), limit=pod.pod_limit, extra=_without_node(cleared))
    return None if after == pod.allocated else Decision.between(pod, after)
