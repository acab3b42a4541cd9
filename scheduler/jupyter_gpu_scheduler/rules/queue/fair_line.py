"""The pods that wait on one node in a fair line, while they are served step by step.

After each step the owner of the pod has more, so all pods of that owner come later. Keys only grow, so they are
computed again when a pod comes to the front.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.pod_state import PodState


class FairLine:
    """Pods in the order in which they are served; ``has``: milli that each has before, by uid."""

    def __init__(self, pods: Sequence[PodState], has: Mapping[str, int]) -> None:
        self._pods = {pod.uid: pod for pod in pods}
        self._first = has
        self._has = dict(has)
        self._gained: dict[Owner, int] = {}
        self._waiting = set(self._pods)
        """Those that were not served wholly."""
        self._heap: list[Rank] = []
        self._changed = True

    def restart(self) -> bool:
        """Begin again with all pods that wait, where anything changed since the last time; tell whether it did."""
        if not self._changed:
            return False
        self._changed = False
        self._heap = [self._rank(self._pods[uid]) for uid in self._waiting]
        heapq.heapify(self._heap)
        return True

    def __iter__(self) -> Iterator[PodState]:
        """Yield the pod that is served next, until none is left; `served` is to be called for each."""
        while self._heap:
            rank = heapq.heappop(self._heap)
            pod = self._pods[rank[-1]]
            now = self._rank(pod)
            if now == rank:
                yield pod
            else:
                heapq.heappush(self._heap, now)

    def served(self, pod: PodState, has: int, goes_on: bool) -> None:
        """Note what a pod has after its step; ``goes_on``: it is served further, else it waits, or has all."""
        before, self._has[pod.uid] = self._has[pod.uid], has
        first = self._first[pod.uid]  # less than that is still held until it is closed
        self._gained[pod.owner] = self._gained.get(pod.owner, 0) + max(has, first) - max(before, first)
        self._changed |= has > before
        if pod.wish and has >= pod.wish.milli:
            self._waiting.discard(pod.uid)
        elif goes_on:
            heapq.heappush(self._heap, self._rank(pod))

    def _rank(self, pod: PodState) -> Rank:
        standing = pod.standing
        if standing is None:
            return pod.rank
        holds = standing.holds + self._gained.get(pod.owner, 0)
        return pod.ranked(replace(standing, holds=holds), self._has[pod.uid])
