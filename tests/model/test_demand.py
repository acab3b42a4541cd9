"""The amounts of a share in the books of its GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Wish, held
from jupyter_gpu.model.demand import HeldMemory, booked, held_memory, part, share_memory, wished_bytes
from jupyter_gpu.model.errors import Infeasible
from jupyter_gpu.model.feasible import fits, refuse
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.strict import FieldError
from tests.builders import GIB, gpu

WHOLE = 80 * GIB
memories = st.integers(1, 2**40)


@given(memories, st.lists(st.integers(1, 1000), max_size=8))
def test_parts_of_one_gpu_are_never_more_than_all_of_it(memory: int, milli: list[int]) -> None:
    """Rounding gives nothing away: where the milli fit together, so do the bytes."""
    while sum(milli) > 1000:
        milli.pop()
    assert sum(part(memory, one) for one in milli) <= memory


def test_a_share_has_its_part_or_what_it_records() -> None:
    """More or less than its part; a whole GPU that records some leaves the rest to guests."""
    assert booked(WHOLE, 250) == 20 * GIB
    assert booked(WHOLE, 250, 40 * GIB) == 40 * GIB
    assert booked(WHOLE, 500, 10 * GIB) == 10 * GIB
    assert booked(WHOLE, 1000) == WHOLE
    assert booked(WHOLE, 1000, 60 * GIB) == 60 * GIB


@pytest.mark.parametrize(("memory", "keeps"), [(None, 60), (20, 60), (70, 70), (80, 0), (90, 0)])
def test_the_owner_of_a_lendable_gpu_keeps_three_quarters_or_what_it_names(memory: int | None, keeps: int) -> None:
    """All of it: then nothing is left to lend. Shares are as they were, and so is a GPU without the gate."""
    wish = Wish(1500, memory=memory * GIB if memory else None, lent=True)
    assert share_memory(gpu(0, gate=True), wish, 1000) == keeps * GIB
    assert share_memory(gpu(0, gate=True), wish, 500) == (memory or 0) * GIB
    assert share_memory(gpu(0), wish, 1000) == 0


def test_memory_is_recorded_only_where_it_is_enforced() -> None:
    """The share is less than a whole GPU, and the node plugin enforces what it has."""
    wish = Wish(1250, memory=40 * GIB)
    enforced, other = gpu(0, gate=True), gpu(1)
    assert [share_memory(enforced, wish, milli) for milli in (1000, 250)] == [0, 40 * GIB]
    assert share_memory(other, wish, 250) == 0
    assert share_memory(enforced, Wish(250), 250) == 0
    assert [wished_bytes(one, wish, 250) for one in (enforced, other)] == [40 * GIB, 20 * GIB]
    assert fits(enforced, wish, 250)
    assert not fits(other, wish, 250)
    assert not fits(enforced, Wish(250, memory=81 * GIB), 250)


def test_refusal_says_that_memory_is_not_enforced() -> None:
    """Where a larger share would help, and not where no GPU has so much."""
    error = refuse(Wish(250, memory=40 * GIB), limit=None, gpus=[gpu(0)])
    assert isinstance(error, Infeasible)
    assert error.message == (
        "Memory is not enforced here, so a share of 0.25 GPU has no more of it than its part "
        "(40 GiB of memory in each share). Ask for a larger share, or for less memory."
    )
    more = refuse(Wish(250, memory=81 * GIB), limit=None, gpus=[gpu(0)])
    assert more
    assert "what you ask for" in more.message
    assert refuse(Wish(250, memory=40 * GIB), limit=None, gpus=[gpu(0, gate=True)]) is None


def test_held_memory_is_the_most_of_all_records() -> None:
    """Allocated, revoked, attached and draining; GPUs without a record of memory are left out."""
    allocated = Allocated(
        1, (GpuShare("a", 250, 40 * GIB), GpuShare("b", 500)), revision=2, revoked=(GpuShare("a", 1),)
    )
    attached = Attached(1, (GpuShare("a", 500),), (DrainingShare("c", 1, memory=3), DrainingShare("d", 1000, memory=3)))
    found = held_memory(allocated, attached)
    assert found == {"a": HeldMemory(500, 40 * GIB), "c": HeldMemory(0, 3), "d": HeldMemory(0, 3)}
    assert [found["a"].booked(memory) for memory in (60 * GIB, 100 * GIB)] == [40 * GIB, 50 * GIB]
    assert held_memory(Allocated(1, (GpuShare("a", 250),)), None) == {}
    assert held_memory(None, None) == {}
    assert found["a"].covers(HeldMemory(500, GIB))
    assert not found["a"].covers(HeldMemory(501, GIB))
    assert not found["a"].covers(HeldMemory(0, 41 * GIB))


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        (GpuShare("a", 250), GpuShare("a", 500), True),
        (GpuShare("a", 500), GpuShare("a", 250), False),
        (GpuShare("a", 250, 2), GpuShare("a", 250, 3), True),
        (GpuShare("a", 250, 3), GpuShare("a", 250, 2), False),
        (GpuShare("a", 250), GpuShare("a", 250, 3), False),
        (GpuShare("a", 250, 3), GpuShare("a", 500), False),
        (GpuShare("a", 250, 3), GpuShare("a", 1000), True),
        (GpuShare("a", 1000, 3), GpuShare("a", 1000), True),
        (GpuShare("a", 1000), GpuShare("a", 1000, 3), False),
        (GpuShare("a", 250), GpuShare("a", 1000, 3), False),
        (GpuShare("a", 0, 4), GpuShare("a", 1000, 3), False),
    ],
)
def test_memory_that_is_taken_away_is_revoked(before: GpuShare, after: GpuShare, within: bool) -> None:
    """So is what may be less, as only the GPU tells what a part is; joined, each amount is the larger one, or all."""
    allocated = Allocated(1, (before,)).with_shares((after,), None)
    assert allocated.shares == (after,)
    assert allocated.revoked == (() if within else (before,))
    joined = GpuShare("a", max(before.milli, after.milli), max(before.memory, after.memory))
    part_of_all = joined.milli == 1000 and any(share.milli and not share.memory for share in (before, after))
    assert before.joined(after) == (joined._replace(memory=0) if part_of_all else joined)


amounts = st.tuples(st.integers(0, 1000), st.sampled_from([0, 1, 99, 700, 999])).filter(any)


@given(st.integers(1000, 2000), st.lists(amounts, min_size=1, max_size=6))
def test_what_the_node_has_not_followed_yet_counts_exactly(memory: int, wishes: list[tuple[int, int]]) -> None:
    """Decisions of which the node has followed none hold as much as the one with most, in time and in memory."""
    decided = [GpuShare("a", *wish) for wish in wishes]
    allocated = Allocated(1)
    for share in decided:
        allocated = Allocated.from_json(allocated.with_shares((share,), None).to_json())
    milli = max(share.milli for share in decided)
    assert held(allocated, None) == {"a": milli}
    known = held_memory(allocated, None).get("a", HeldMemory(milli, 0))
    assert known.booked(memory) == max(booked(memory, share.milli, share.memory) for share in decided)


def test_a_guest_needs_memory() -> None:
    """A share that claims no time and names no memory would be nothing at all."""
    guest = GpuShare("GPU-a", 0, 5)
    assert GpuShare.from_json(guest.to_json()) == guest
    assert guest.to_json() == {"uuid": "GPU-a", "milli": 1, "memory": 5, "guest": True}
    with pytest.raises(FieldError, match="memory"):
        GpuShare.from_json({"uuid": "GPU-a", "milli": 1, "guest": True})
    assert not GpuShare("GPU-a", 0).guest
    assert not GpuShare("GPU-a", 1, 5).guest


@pytest.mark.parametrize(
    "more", [{"milli": 500, "memory": 5}, {"milli": 1000}, {"milli": 1000, "memory": 5, "guest": True}]
)
def test_a_lendable_share_is_a_whole_gpu_with_memory(more: dict[str, Any]) -> None:
    """Anything else that says so is refused."""
    with pytest.raises(FieldError, match="must be a whole GPU, and name its 'memory'"):
        GpuShare.from_json({"uuid": "GPU-a", "lendable": True, **more})


def test_a_guest_counts_no_time() -> None:
    """In what a pod holds it has its memory alone."""
    allocated = Allocated(1, (GpuShare("GPU-a", 0, 5),))
    assert held(allocated, None) == {"GPU-a": 0}
    assert held_memory(allocated, None)["GPU-a"].booked(80) == 5
