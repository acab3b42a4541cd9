"""Host memory for parks: doubt refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.parking.rules.budget import (
    BESIDE,
    FIRST_CONTEXT,
    FURTHER_CONTEXT,
    MIB,
    SPARE,
    Booking,
    GroupMemory,
    NodeMemory,
    missing,
    size_of,
)

sizes = st.integers(0, 64).map(lambda gib: gib << 30)
groups = st.lists(st.builds(GroupMemory, st.none() | sizes, sizes, sizes), max_size=3)
nodes = st.builds(NodeMemory, sizes, sizes)
booked = st.lists(st.builds(Booking, st.sampled_from("ab"), sizes, st.booleans()), max_size=4)
PLENTY = NodeMemory(1 << 50, 1 << 50)


@given(sizes, groups, nodes, booked)
def test_what_fits_leaves_room_everywhere(
    size: int, groups: list[GroupMemory], node: NodeMemory, booked: list[Booking]
) -> None:
    """The missing bytes are those that have to be freed, to the byte: with so much less it fits."""
    lacks = missing(size, "a", groups, node, booked)
    coming = [one for one in booked if not one.charged]
    own = sum(one.size for one in coming if one.pod == "a")
    if not lacks:
        assert size + sum(one.size for one in booked) <= node.budget
        assert size + sum(one.size for one in coming) <= 0.9 * node.available + 1
        for group in groups:
            assert group.limit is None or group.used - group.inactive + own + size + SPARE <= group.limit
    else:
        assert missing(size - lacks, "a", groups, node, booked) == 0
        assert missing(size - lacks + 1, "a", groups, node, booked) == 1


@given(sizes, groups, nodes, booked, sizes)
def test_more_booked_is_never_more_room(
    size: int, groups: list[GroupMemory], node: NodeMemory, booked: list[Booking], more: int
) -> None:
    """Another park never makes room, whether it is charged or not."""
    for charged in (True, False):
        with_it = [*booked, Booking("a", more, charged)]
        assert missing(size, "a", groups, node, with_it) >= missing(size, "a", groups, node, booked)


def test_what_is_charged_is_counted_once() -> None:
    """The control group shows it; the node's budget counts it."""
    group = GroupMemory(limit=1000 * MIB, used=600 * MIB, inactive=100 * MIB)
    room = 1000 * MIB - 600 * MIB + 100 * MIB - SPARE
    assert missing(room, "a", [group], PLENTY, [Booking("a", 300 * MIB, True)]) == 0
    assert missing(room, "a", [group], PLENTY, [Booking("a", 300 * MIB, False)]) == 300 * MIB
    assert missing(room, "a", [group], PLENTY, [Booking("b", 300 * MIB, False)]) == 0
    assert missing(1, "a", [], NodeMemory(1 << 50, 300 * MIB), [Booking("b", 300 * MIB, True)]) == 1


def test_size_of_a_process() -> None:
    """Its driver's bytes, or those that its gate counts and its contexts take; never less than the gate counts."""
    assert size_of(5 * MIB, 1) == 5 * MIB + FIRST_CONTEXT
    assert size_of(5 * MIB, 3) == 5 * MIB + FIRST_CONTEXT + 2 * FURTHER_CONTEXT
    assert size_of(0, 0) == FIRST_CONTEXT
    assert size_of(5 * MIB, 3, 900 * MIB) == 900 * MIB + BESIDE
    assert size_of(950 * MIB, 3, 900 * MIB) == 950 * MIB + BESIDE
