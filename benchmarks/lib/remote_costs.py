"""Costs of cells on other nodes, in seconds of waiting: starts of worker pods, ways to them, bytes.

The times are medians that `scripts/bench` measured on a machine of two cores, quiet where nothing else is said. What a
local cell takes as well is left out: its resize. Results come back if they are small, so only what is sent counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .figures import percentile

_RESIZE = 0.011
"""Seconds of a local ``gpu.resize``, in turn with warm cells."""
COLD = 1.554 - _RESIZE
"""`scripts/bench pairs:cold`: from the start of a cell without a worker to its first line; a cluster on one machine."""
WARM = 0.057 - _RESIZE
"""`scripts/bench pairs:warm`: the same with a worker that is there; both pods are processes of one machine."""
RATE = 280.0
"""`scripts/bench remote_cell`: megabytes in a second, 100 MB at a time, by TLS on one machine with a load of 7."""


class Delay(NamedTuple):
    """Seconds before a cell on another node begins, once it has its GPUs."""

    start: float
    """Until its worker pod runs and the first line of the cell is there."""
    way: float
    """Until the first line is there, if that pod ran already."""
    sent: float
    """Until all is there that the cell reads."""


class RemoteCosts(NamedTuple):
    """Costs of a cell on another node, as a simulation assumes them."""

    cold: float = COLD
    """Seconds until the first line, from when its worker pod was made."""
    warm: float = WARM
    """Seconds until the first line if that pod runs already."""
    rate: float = RATE
    """Megabytes in a second."""
    sent: float | None = None
    """Megabytes that each cell sends, an assumption; ``None``: all that it has on its GPUs, as far as that is recorded.
    """

    def delay(self, age: float, recorded: float) -> Delay:
        """Return what a cell waits for; ``age``: seconds of its worker; ``recorded``: megabytes on its GPUs."""
        sent = (recorded if self.sent is None else self.sent) / self.rate
        start = self.cold - age
        return Delay(start, 0.0, sent) if start > self.warm else Delay(0.0, self.warm, sent)


def told(delays: Sequence[Delay], cells: int, busy: float) -> str:
    """Return in words what cells on other nodes cost; ``cells``: of all nodes, which ran for ``busy`` minutes."""
    if not delays:
        return "no remote cells"
    start, way, sent = (100 * sum(parts) / cells for parts in zip(*delays, strict=True))
    each = [1000 * sum(delay) for delay in delays]
    return (
        f"remote cells wait {start + way + sent:.1f} s per 100 cells ({start:.1f} for starts, {way:.1f} for ways, "
        f"{sent:.1f} for bytes), {lost(delays, busy):.3f} % of the time of all; each p50 {percentile(each, 50):.0f}, "
        f"p99 {percentile(each, 99):.0f} ms"
    )


def lost(delays: Sequence[Delay], busy: float) -> float:
    """Return the per cent that delays are of the ``busy`` minutes of all cells."""
    return 100 * sum(map(sum, delays)) / (60 * busy)
