"""Review of waiting pods that belong in another node's line: their node can no longer serve them, or another one can.

It covers the pods of the nodes that changed, and those that could use room there, next in line first. Among pods of one
kind (`PodState.kind`) it stops at the first that does not fit: the pods behind it have no more room, whatever pods that
are reviewed later do. So the cost depends on what changed and on how many kinds wait, not on how many pods do.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.line import Line, Rank
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .nominate import fits_at, is_void, leave, may_go, must_leave, nominate


def review(snapshot: ClusterSnapshot, policy: Policy, changed: Iterable[str] | None = None) -> tuple[Decision, ...]:
    """Return all decisions of `review_in_steps`, each made as if those before it were carried out.

    The snapshot is unchanged. A review after these decisions makes no other.
    """
    decisions: list[Decision] = []
    before: list[PodState] = []
    try:
        for found in review_in_steps(snapshot, policy, changed):
            pod = found and snapshot.pod(found.uid)
            if found and pod:
                decisions.append(found)
                before.append(pod)
                snapshot.put_pod(replace(pod, allocated=found.allocated))
    finally:
        for pod in reversed(before):
            snapshot.put_pod(pod)
    return tuple(decisions)


def review_in_steps(
    snapshot: ClusterSnapshot, policy: Policy, changed: Iterable[str] | None = None
) -> Iterator[Decision | None]:
    """Yield nominations that must change, step by step, next in line first; ``None``: nothing in this step.

    ``changed``: the nodes where anything changed, also in the pods nominated to them; ``None``: all. Call this after
    changes and before `decide`, so that what comes free goes to the pod that waits longest, wherever it waits. The
    snapshot may change between two steps, by a decision that was carried out or otherwise.
    """
    return _Review(snapshot, policy, changed).steps()


@dataclass(eq=False, slots=True)
class _Candidates:
    """Pending pods of one kind, and the nodes that may have room for them."""

    line: Line
    rooms: set[str]
    """Nodes with room where they may go, and where it is not known yet that the next one does not fit."""


class _Review:
    """One review, and its state between two steps."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy, changed: Iterable[str] | None) -> None:
        self._snapshot = snapshot
        self._policy = policy
        everywhere = (*snapshot.nodes(), *(pod.nominated for pod in snapshot.pending())) if changed is None else changed
        self._changed = tuple(dict.fromkeys(("", *everywhere)))  # "": in line, and on no node's
        self._with_room = sorted(name for name in self._changed if self._has_room(name))
        self._queue: list[tuple[Rank, int, _Candidates | Line]] = []
        self._count = itertools.count()

    def _has_room(self, node: str) -> bool:
        return any(gpu.free for gpu in shape_of(self._snapshot, node) or ())

    def steps(self) -> Iterator[Decision | None]:
        """Yield decisions until all pods are reviewed."""
        for node in self._changed:
            for line in tuple(self._snapshot.kinds(node).values()):
                self._push_leaving(node, line)
                yield None
        for line in tuple(self._snapshot.kinds().values()) if self._with_room else ():
            self._push_candidates(line)
            yield None
        while self._queue:
            rank, _, source = heapq.heappop(self._queue)
            pod = self._snapshot.pod(rank[-1])
            found = self._decide(pod, source) if pod and pod.rank == rank else None
            yield found
            self._push(source, rank)

    def _push_leaving(self, node: str, line: Line) -> None:
        pod = self._first(line)
        if pod and must_leave(self._snapshot, pod) and (node or is_void(pod) or self._is_offered(pod)):
            self._push(line, None)

    def _is_offered(self, pod: PodState) -> bool:
        """Tell whether any node that changed was offered for the pod: a pod in no line can go to no other node."""
        return any(name in (pod.offered or ()) for name in self._changed)

    def _push_candidates(self, line: Line) -> None:
        pod = self._first(line)
        if pod:
            rooms = {name for name in self._with_room if may_go(self._snapshot, pod, name)}
            self._push(_Candidates(line, rooms), None)

    def _first(self, line: Line) -> PodState | None:
        rank = line.after(None)
        return self._snapshot.pod(rank[-1]) if rank else None

    def _push(self, source: _Candidates | Line, behind: Rank | None) -> None:
        """Queue the next of these pods, if any is to be reviewed."""
        if isinstance(source, _Candidates) and not source.rooms:
            return
        line = source if isinstance(source, Line) else source.line
        rank = line.after(behind)
        if rank is not None:
            heapq.heappush(self._queue, (rank, next(self._count), source))

    def _decide(self, pod: PodState, source: _Candidates | Line) -> Decision | None:
        if isinstance(source, Line):
            return leave(self._snapshot, pod, self._policy, self._changed)
        if fits_at(self._snapshot, pod, pod.nominated):
            return None
        source.rooms.discard(pod.nominated)
        able = []
        for name in sorted(source.rooms):
            if fits_at(self._snapshot, pod, name):
                able.append(name)
            else:
                source.rooms.discard(name)
        return nominate(self._snapshot, pod, able, self._policy) if able else None
