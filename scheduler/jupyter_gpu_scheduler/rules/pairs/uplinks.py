"""Pure: how much the uplinks of each switch are in use, kept up to date by the nodes that change."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .relation import Location, Network, location_of

_STEPS = 1000
"""Whole thousandths are summed, so that the mean does not depend on the order of changes."""


class Uplinks:
    """The mean use of the uplinks of a switch's nodes."""

    def __init__(self, snapshot: ClusterSnapshot, network: Network) -> None:
        self._snapshot = snapshot
        self._network = network
        self._known: dict[str, tuple[tuple[str, str], int]] = {}  # by node: its switch, and the use of its uplink
        self._sums: dict[tuple[str, str], tuple[int, int]] = {}  # by switch: the sum, and the number of nodes

    def update(self, nodes: Iterable[str]) -> set[tuple[str, str]]:
        """Read nodes that changed, came or went; return the keys and names of the switches that they were or are on."""
        touched = set()
        for node in nodes:
            before = self._known.pop(node, None)
            if before:
                touched.add(self._add(before, -1))
            facts, (_, *switch) = self._snapshot.facts(node), location_of(self._snapshot, node, self._network)
            if switch[0] and facts.network is not None:
                self._known[node] = ((switch[0], switch[1]), round(max(0.0, min(1.0, facts.network)) * _STEPS))
                touched.add(self._add(self._known[node], 1))
        return touched

    def use(self, location: Location) -> float | None:
        """Return the use of the uplinks of a switch, 0 to 1; ``None``: not known, or no switch is."""
        total, count = self._sums.get(location[1:], (0, 0))
        return total / count / _STEPS if count else None

    def _add(self, known: tuple[tuple[str, str], int], sign: int) -> tuple[str, str]:
        switch, use = known
        total, count = self._sums.pop(switch, (0, 0))
        if count + sign:
            self._sums[switch] = (total + sign * use, count + sign)
        return switch
