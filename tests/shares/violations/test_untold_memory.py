"""Memory that programs did not ask for, above the limit of their share: when it is a violation."""

from jupyter_gpu_node.shares.rules.violations.events import MemoryScanned, Stop, TakeAway, TurnBegan
from tests.shares.violations.test_violations import HOG, SECOND, World

MIB = 2**20
TOLERATED = MemoryScanned({"a": 256 * MIB})
HOARDED = MemoryScanned({"a": 256 * MIB + 1})


def test_memory_above_the_limit_in_three_scans_stops_the_share() -> None:
    """Its user reads why; a possible error counts for nothing, and a scan that sees less begins anew."""
    world = World()
    assert [world.see(one, SECOND) for one in (HOARDED, HOARDED, TOLERATED, HOARDED, HOARDED)] == [()] * 5
    (stop,) = world.see(HOARDED, SECOND)
    assert stop == Stop(
        "a",
        frozenset({HOG}),
        "Stopped until its next turn: its programs hold 257 MiB of GPU memory above its limit, which they took without "
        "asking for it. End the program that goes around the gate, or have the limit raised.",
    )
    assert [world.see(HOARDED, SECOND) for _ in range(4)] == [()] * 4  # a stopped process can free nothing


def test_share_that_keeps_untold_memory_is_taken_away() -> None:
    """It takes as many violations as any other."""
    world = World()
    taken: list[TakeAway] = []
    for _ in range(20):
        taken += [one for one in world.see(HOARDED, SECOND) if isinstance(one, TakeAway)]
        world.see(TurnBegan("a"))
    (one,) = taken
    assert one.reason.startswith("Taken away: its programs hold 257 MiB of GPU memory above its limit")
    assert one.reason.endswith("violation 3 of late. Restart its programs and ask again.")


def test_scan_of_memory_forgets_shares_that_freed_it() -> None:
    """A share that freed it is forgotten, and others were never recorded."""
    world = World()
    world.see(HOARDED)
    assert world.state["a"].memory_scans == 1
    world.see(MemoryScanned({"a": 0, "b": 0}))
    assert world.state == {}
