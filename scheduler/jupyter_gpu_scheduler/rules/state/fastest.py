"""Pure: the compute of the cluster's fastest GPU, against which that of the others is rated."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.gpu import Gpu

FULL = 1000
"""Pace of the fastest GPU, and of one whose compute is not known."""


class Fastest:
    """The greatest compute of all GPUs of the nodes that are known."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}  # by node: the greatest there
        self._most = 0

    def put(self, node: str, gpus: Iterable[Gpu]) -> bool:
        """Replace the GPUs of a node, and tell whether the greatest compute is another now."""
        here, before, last = max((gpu.compute or 0 for gpu in gpus), default=0), self._nodes.pop(node, 0), self._most
        if here:
            self._nodes[node] = here
        if here >= last:
            self._most = here
        elif before == last:
            self._most = max(self._nodes.values(), default=0)
        return self._most != last

    def pace(self, gpu: Gpu) -> int:
        """Return the compute of a GPU in thousandths of the greatest, 1 at least; 1000 if it is not known."""
        return max(1, gpu.compute * FULL // self._most) if gpu.compute and self._most else FULL
