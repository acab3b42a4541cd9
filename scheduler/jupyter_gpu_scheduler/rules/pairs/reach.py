"""Pure: how many GPUs of other nodes a notebook could ever have, with as many workers as it may have.

Only the nodes with most GPUs matter, so of all changes of nodes few change an answer.
"""

from __future__ import annotations

from heapq import nsmallest

from jupyter_gpu.model.quantity import MAX_MILLI, MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.taints import Taint, tolerated

Taints = frozenset[Taint]


class Reach:
    """The nodes of one snapshot with most GPUs, by taints."""

    def __init__(self, snapshot: ClusterSnapshot, most: int) -> None:
        self._snapshot = snapshot
        self._most = most  # workers of a notebook
        self._read: int | None = None
        self._known: dict[str, tuple[int, Taints]] = {}  # GPUs and taints of each node with GPUs
        self._largest: dict[Taints, list[tuple[int, str]]] = {}  # numbers of GPUs below 0, so the largest are first

    def update(self) -> bool:
        """Read the nodes that changed; tell whether any answer may be another now."""
        changes = self._snapshot.changes
        changed = None if self._read is None else changes.since(self._read)
        if changed is None:
            changed = {*self._snapshot.nodes(), *self._known}
        self._read = changes.last
        touched = [name for name in changed if self._note(name)]
        if not touched:
            return False
        groups: dict[Taints, list[tuple[int, str]]] = {}
        for name, (count, taints) in self._known.items():
            groups.setdefault(taints, []).append((-count, name))
        before = self._largest
        self._largest = {taints: nsmallest(self._most + 1, group) for taints, group in groups.items()}
        return self._largest != before

    def elsewhere(self, pod: PodState) -> int:
        """Return the milli of all GPUs of other nodes that a running pod could ever have."""
        groups = (group for taints, group in self._largest.items() if tolerated(taints, pod.tolerations))
        counts = nsmallest(self._most, (count for group in groups for count, name in group if name != pod.node))
        return min(MAX_MILLI, -sum(counts) * MILLI_PER_GPU)

    def _note(self, name: str) -> bool:
        """Note the GPUs and taints of a node; tell whether they are others than before."""
        before, gpus = self._known.pop(name, None), self._snapshot.gpus(name)
        if gpus:
            self._known[name] = (len(gpus), self._snapshot.facts(name).taints)
        return self._known.get(name) != before
