"""In which node's line a new pod waits that found no room.

It takes a ticket and stands in the line of exactly one node: the one with the best prospect. There it keeps back what
it could use from those behind it. It stays there while that node can serve it at all, unless another one can serve it
now and that one can't. Ticket and nomination are in the pod's own ``allocated``, without shares.

It is nominated only to nodes that kube-scheduler offered for it last: it would be put onto no other. Where its node
will not do any more and no other that was offered will, it keeps its ticket and stands in no line until kube-scheduler
asks again; that write has it ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.errors import GpuError, Infeasible
from jupyter_gpu.model.quantity import count_gpus

from .candidates import acceptable, filter_nodes, has_resources, selected, unacceptable
from .decide import Decision, outlook
from .policy import Policy
from .score import rate
from .shape import shape_of
from .snapshot import NOMINATED, ClusterSnapshot, PodState
from .verdict import has_room, standings, verdict, wanted


def nominate(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> Decision | None:
    """After no node fitted: the ``allocated`` that ``pod`` waits with, in line on one of ``names``.

    ``None``: no change. ``names`` are the nodes that kube-scheduler would have taken. Where none of them will do now,
    it stands in no line and keeps its ticket; where none ever will, it loses that and its ``allocated`` says why. The
    ticket is the next one of the cluster, or the one it has.
    """
    if wanted(pod) is None and not pod.fault:
        return _step(pod, None)  # it waits for something else
    error = unacceptable(pod)
    if error is not None:
        return _step(pod, _refused(pod, error))
    node = _best(snapshot, pod, names, policy)
    if node is None and not _later(snapshot, pod, names):
        return _step(pod, _refused(pod, Infeasible(_nowhere(snapshot, pod, names), have=0)))
    return _step(pod, _in_line(snapshot, pod, node))


def review(snapshot: ClusterSnapshot, policy: Policy, changed: Iterable[str] | None = None) -> tuple[Decision, ...]:
    """Nominations that must change, next in line first: the node is gone or can't serve any more, or another can now.

    ``changed``: the nodes where anything changed, also in the pods nominated to them; ``None``: all. To be called after
    changes and before `decide`, so that what comes free goes to who waits longest, wherever it waits. Deciding again
    gives nothing.
    """
    dirty = set(snapshot.nodes() if changed is None else changed)
    with_room = sorted(name for name in dirty if any(cell.free for cell in shape_of(snapshot, name) or ()))
    decisions = []
    before: list[PodState] = []
    try:
        for pod in snapshot.pending():
            if pod.ticket is None or pod.gone or _untouched(pod, dirty, with_room, everything=changed is None):
                continue
            found = _moved(snapshot, pod, dirty, with_room, policy)
            if found is not None:
                decisions.append(found)
                before.append(pod)
                snapshot.put_pod(replace(pod, allocated=found.allocated))  # the next one sees it in its new line
    finally:
        for pod in before:
            snapshot.put_pod(pod)
    return tuple(decisions)


def _untouched(pod: PodState, dirty: set[str], with_room: Sequence[str], *, everything: bool) -> bool:
    """Whether nothing can have changed for a pod: neither where it waits, nor is there room elsewhere."""
    return not everything and not with_room and bool(pod.nominated) and pod.nominated not in dirty


def _moved(
    snapshot: ClusterSnapshot, pod: PodState, dirty: set[str], with_room: Sequence[str], policy: Policy
) -> Decision | None:
    if wanted(pod) is None or unacceptable(pod) is not None:
        return nominate(snapshot, pod, (), policy)
    here = pod.nominated
    known = standings(snapshot, pod)
    now, _ = verdict(snapshot, pod, here, known)
    lost = snapshot.gpus(here) is None or now.never
    offered = pod.offered or ()
    if lost or not acceptable(pod, snapshot.facts(here)):
        news = offered if here else sorted(name for name in dirty if name in offered)  # the others were looked at
        able = [name for name in news if _open(snapshot, pod, name)]
        able = [name for name in able if not verdict(snapshot, pod, name, known)[0].never]
        return nominate(snapshot, pod, able, policy) if able else _step(pod, _in_line(snapshot, pod, None))
    if now.fits:
        return None
    able = [name for name in with_room if name != here and name in offered and _open(snapshot, pod, name)]
    able = [name for name in able if verdict(snapshot, pod, name, known)[0].fits]
    return nominate(snapshot, pod, able, policy) if able else None


def _open(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    facts = snapshot.facts(name)
    return acceptable(pod, facts) and has_resources(pod, facts)


def _best(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str], policy: Policy) -> str | None:
    """Where ``pod`` waits best: where it fits, else where it lacks least, in the shortest line, by score.

    Where it is nominated it stays, unless it fits elsewhere and not there.
    """
    known = standings(snapshot, pod)
    prospects: dict[tuple[bool, bool, int, int], list[str]] = {}
    for name in names:
        found, place = verdict(snapshot, pod, name, known)
        if not found.never and snapshot.gpus(name) is not None and acceptable(pod, snapshot.facts(name)):
            rank = (not found.fits, name != pod.nominated, found.owed, place)
            prospects.setdefault(rank, []).append(name)
    if not prospects:
        return None
    return min(prospects[min(prospects)], key=lambda name: (-rate(snapshot, pod, name, policy), name))


def _later(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str]) -> bool:
    """Whether some node may serve it one day, offered now or not: it may be cordoned, tainted or not known yet."""
    known = standings(snapshot, pod)
    others = (name for name in snapshot.nodes() if selected(pod, snapshot.facts(name)))
    return any(not verdict(snapshot, pod, name, known)[0].never for name in (*names, *others))


def _in_line(snapshot: ClusterSnapshot, pod: PodState, node: str | None) -> Allocated:
    """With its ticket, in the line of ``node``; in none until kube-scheduler asks again, or a node comes back."""
    assert pod.requested is not None
    before = pod.allocated or Allocated(0)
    after = replace(
        before,
        observed_generation=pod.requested.generation,
        shares=(),
        reason=Reason.DEFERRED,
        ticket=before.ticket if before.ticket is not None else snapshot.last_ticket + 1,
        extra={**_without_node(before), **({NOMINATED: node} if node else {})},
    )
    if not node:
        wants = count_gpus(pod.requested.milli)
        return replace(
            after, message=f"Waiting for {wants}; no node that could serve it takes the pod now.", position=None
        )
    me = replace(pod, allocated=after)
    ahead = sum(other.rank < me.rank for other in snapshot.line(node) if other.uid != pod.uid)
    return replace(after, message=outlook(me, room=has_room(snapshot, me)), position=ahead + 1)


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
        extra=_without_node(before),
    )


def _without_node(before: Allocated) -> dict[str, object]:
    return {key: value for key, value in before.extra.items() if key != NOMINATED}


def _nowhere(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str]) -> str:
    """Why none of the nodes can ever serve the pod: what most of them lack first."""
    filtered = filter_nodes(snapshot, pod, names)
    reasons = Counter((*filtered.never.values(), *filtered.failed.values()))
    text = "; ".join(f"{count}: {why}" for why, count in reasons.most_common(5))
    return f"None of {len(names)} nodes can serve this ({text})." if text else "No node can serve this."


def _step(pod: PodState, after: Allocated | None) -> Decision | None:
    """The decision; without ``after`` the pod leaves the line."""
    if after is None:
        if pod.allocated is None or pod.ticket is None:
            return None
        cleared = replace(pod.allocated, reason=None, message="", ticket=None, position=None)
        after = replace(cleared, shares=(), extra=_without_node(cleared))
    return None if after == pod.allocated else Decision.between(pod, after)
