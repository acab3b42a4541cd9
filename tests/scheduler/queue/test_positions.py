"""The shown position: exact near the front, rounded behind, and a pod that leaves costs few writes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.quantity import EXACT_POSITIONS
from jupyter_gpu_scheduler.rules.queue.decide import decide, only_position
from jupyter_gpu_scheduler.rules.queue.positions import ABOUT, shown_position
from jupyter_gpu_scheduler.rules.queue.queue_pass import STEP, QueuePass
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import NODE, allocated, apply, new, pod, requested, world

places = st.integers(1, 10**6)


def test_first_ten_positions_are_exact() -> None:
    """The numbers behind them are each at least half as large again as the one before."""
    assert [shown_position(place) for place in range(1, EXACT_POSITIONS + 1)] == list(range(1, EXACT_POSITIONS + 1))
    assert all(after >= 1.5 * before for before, after in itertools.pairwise((EXACT_POSITIONS, *ABOUT)))


@given(place=places, before=st.none() | places)
def test_shown_position_is_nearly_right(place: int, before: int | None) -> None:
    """It is never wrong by more than half, whatever was shown before, and does not change when computed again."""
    found = shown_position(place, before)
    assert place / 1.5 <= found <= place * 1.5
    assert shown_position(place, found) == found
    assert found in ABOUT or found == place <= EXACT_POSITIONS


@given(place=places, start=st.none() | places)
def test_position_that_goes_to_and_fro_is_written_once(place: int, start: int | None) -> None:
    """For two neighbouring positions, one of them behind the exact ones: at most one change, then none."""
    now = shown_position(place, start)
    seen = [now := shown_position(place + (turn + 1) % 2, now) for turn in range(6)]
    assert place < EXACT_POSITIONS or len({shown_position(place, start), *seen[1:]}) <= 2
    assert place < EXACT_POSITIONS or len(set(seen[1:])) == 1


def crowd(count: int) -> ClusterSnapshot:
    """Return one GPU, its holder, and so many waiting pods, half of them new."""
    waiting = [
        new(f"p{number:04}", wants=1, ticket=number, on=NODE) if number % 2 else pod(f"p{number:04}", 1, ticket=number)
        for number in range(1, count + 1)
    ]
    return world(1, [pod("owner", wants=1, has=[0]), *waiting])


def line(count: int) -> ClusterSnapshot:
    """Return the same once all have been shown their position."""
    snapshot = crowd(count)
    apply(snapshot, decide(snapshot, NODE))
    assert decide(snapshot, NODE) == ()
    return snapshot


def test_long_line_is_served_in_steps() -> None:
    """Between them others have their turn: once for each so many pods that are looked at, and for each that wait."""
    snapshot = crowd(2 * STEP)
    gpus = snapshot.gpus(NODE)
    assert gpus
    found = QueuePass(snapshot, NODE, gpus, (*snapshot.pods(NODE), *snapshot.nominated(NODE)))
    assert sum(1 for _ in found.serve_in_steps()) == 4
    assert len(found.owed) == 2 * STEP


@pytest.mark.uncounted
def test_leaving_a_long_line_costs_few_writes() -> None:
    """In a line of a thousand, only pods near the front are written, and the few behind whose number became wrong."""
    snapshot = line(1000)
    writes = []
    for number in range(1, 101):
        snapshot.remove_pod(f"p{number:04}")
        decisions = decide(snapshot, NODE)
        writes.append(len(decisions))
        apply(snapshot, decisions)
    assert max(writes) <= 100, "all at once where a number became wrong"
    assert sum(writes) / len(writes) <= 30


def test_changing_a_priority_again_and_again_moves_few() -> None:
    """The last of a hundred goes to the front and back: pods near the front are written, and some behind them once."""
    snapshot = line(100)
    writes: list[int] = []
    for turn in range(10):
        state = snapshot.pod("p0100")
        assert state
        snapshot.put_pod(replace(state, requested=requested(1, generation=turn + 2, priority=(turn + 1) % 2)))
        decisions = decide(snapshot, NODE)
        writes.append(len(decisions))
        apply(snapshot, decisions)
    assert max(writes[2:]) <= EXACT_POSITIONS + 1


def test_only_a_change_of_position_may_wait() -> None:
    """Any other change, and entering or leaving the line, is written at once."""
    before = allocated(ticket=4, position=7, message="Wait.")
    assert only_position(before, replace(before, position=6))
    assert not only_position(before, before)
    for after in (
        replace(before, position=6, message="Now."),
        replace(before, position=6, observed_generation=9),
        replace(allocated([0], ticket=4, position=6), message="Wait."),
        replace(before, position=None, ticket=None),
    ):
        assert not only_position(before, after)
    assert not only_position(None, before)
    assert not only_position(allocated(), before)
