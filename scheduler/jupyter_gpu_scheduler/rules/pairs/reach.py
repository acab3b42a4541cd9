"""Pure: how many GPUs of other nodes a notebook could ever have, with as many workers as it may have, and their kinds.

Only the nodes with most GPUs matter, and those that alone have a kind: so of all changes of nodes few change an answer.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import NamedTuple

from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.quantity import MAX_MILLI, MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.taints import Taint, tolerated

Taints = frozenset[Taint]
MAX_KINDS = 32
"""The most kinds that are said of other nodes."""


class _Node(NamedTuple):
    """A node with GPUs."""

    gpus: int
    taints: Taints
    kinds: frozenset[GpuKind]


class Reach:
    """The nodes of one snapshot with most GPUs, by taints."""

    def __init__(self, snapshot: ClusterSnapshot, most: int) -> None:
        self._snapshot = snapshot
        self._most = most  # workers of a notebook
        self._read: int | None = None
        self._known: dict[str, _Node] = {}
        self._largest: dict[Taints, list[tuple[int, str]]] = {}  # numbers of GPUs below 0, so the largest are first
        self._kinds: dict[Taints, dict[GpuKind, str]] = {}  # the node that alone has the kind; empty: several have it

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
        before = (self._largest, self._kinds)
        groups: dict[Taints, list[tuple[int, str]]] = {}
        self._kinds = {}
        for name, node in self._known.items():
            groups.setdefault(node.taints, []).append((-node.gpus, name))
            kinds = self._kinds.setdefault(node.taints, {})
            kinds |= {kind: "" if kind in kinds else name for kind in node.kinds}
        self._largest = {taints: nsmallest(self._most + 1, group) for taints, group in groups.items()}
        return (self._largest, self._kinds) != before

    def elsewhere(self, pod: PodState) -> int:
        """Return the milli of all GPUs of other nodes that a running pod could ever have."""
        groups = (group for taints, group in self._largest.items() if tolerated(taints, pod.tolerations))
        counts = nsmallest(self._most, (count for group in groups for count, name in group if name != pod.node))
        return min(MAX_MILLI, -sum(counts) * MILLI_PER_GPU)

    def kinds(self, pod: PodState) -> tuple[GpuKind, ...]:
        """Return the kinds of GPUs of the other nodes on which a running pod could have some, at most `MAX_KINDS`."""
        groups = (group for taints, group in self._kinds.items() if tolerated(taints, pod.tolerations))
        found = {kind for group in groups for kind, only in group.items() if only != pod.node}
        return tuple(nsmallest(MAX_KINDS, found))

    def _note(self, name: str) -> bool:
        """Note the GPUs of a node, their kinds and its taints; tell whether they are others than before."""
        before, gpus = self._known.pop(name, None), self._snapshot.gpus(name)
        if gpus:
            kinds = frozenset(self._snapshot.gpu_kinds(name))
            self._known[name] = _Node(len(gpus), self._snapshot.facts(name).taints, kinds)
        return self._known.get(name) != before
