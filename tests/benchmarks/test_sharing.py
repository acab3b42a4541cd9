"""The orders of turns with which ours is compared, in simulated time."""

from collections.abc import Callable

import pytest

from benchmarks.lib.simulated_gpu import Simulation, bursty, hog
from benchmarks.sharing import Fifo, LeastServed
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.timing import Timing

MS = 1_000
SECONDS = 4


def longest_wait(order: Callable[[Timing], TurnOrdering], hogs: int) -> int:
    """Return the longest wait of short bursts beside busy shares of equal size, after the first second."""
    milli = 1000 // (hogs + 1)
    moments = [200 * MS * number for number in range(1, 5 * SECONDS)]
    programs = {"burst": bursty(milli, moments, 5 * MS)} | {f"hog {one}": hog(milli, SECONDS) for one in range(hogs)}
    uses = Simulation(programs, Timing(), order=order).run(SECONDS * 1000 * MS)
    return max(uses["burst"].waits[5:])


@pytest.mark.parametrize(("order", "hogs", "least"), [(Fifo, 3, 30), (LeastServed, 3, 10)])
def test_short_bursts_wait_longer_than_in_our_order(
    order: Callable[[Timing], TurnOrdering], hogs: int, least: int
) -> None:
    """First come, first served: for a lease of each hog; least served first: for the end of the present one."""
    assert longest_wait(TurnOrdering, hogs) < 5 * MS
    assert longest_wait(order, hogs) > least * MS
