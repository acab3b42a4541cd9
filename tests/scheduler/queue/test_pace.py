"""The rate at which one pod's wishes are answered: some at once, then at a steady pace; shrinking never waits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu_scheduler.rules.queue.pace import AskedWish, PacedWish, first, paced

BURST, SECONDS = 3, 2.0


def asked(milli: int, generation: int = 1, **fields: object) -> AskedWish:
    """A wish."""
    return AskedWish(Requested(generation, Wish(milli, **fields)))  # type: ignore[arg-type]


def answers(wishes: list[tuple[float, AskedWish]], start: AskedWish) -> list[tuple[float, AskedWish]]:
    """Return when each wish, written at these times, was answered; each is retried when it may be."""
    now: PacedWish = first(start, 0.0, BURST)
    told = []
    for number, (when, wish) in enumerate(wishes):
        until = wishes[number + 1][0] if number + 1 < len(wishes) else float("inf")
        while when < until:
            before = now
            now, wait = paced(now, wish, when, burst=BURST, seconds=SECONDS)
            if now.asked != before.asked:
                told.append((when, wish))
            if not wait:
                break
            when += wait + 1e-9
    return told


moments = st.lists(st.floats(0, 3), max_size=25)


@given(moments, st.data())
def test_answers_stay_within_burst_and_pace(pauses: list[float], data: st.DataObject) -> None:
    """The rate holds in any span of time, and the last wish is always answered in the end."""
    when, wishes = 0.0, []
    for number, pause in enumerate(pauses):
        when += pause
        wishes.append((when, asked(1000, number + 2, priority=data.draw(st.integers(0, 9)))))
    told = answers(wishes, asked(1000))
    for start in range(len(told)):
        for end in range(start, len(told)):
            span = told[end][0] - told[start][0]
            assert end - start + 1 <= BURST + span / SECONDS + 1e-6
    assert not wishes or told[-1][1] == wishes[-1][1]


def test_shrink_is_answered_at_once() -> None:
    """Less of the same, nothing at all, or no wish any more is answered at once, however many changes there were."""
    spent = PacedWish(asked(2000, priority=3), 0.0, 5.0)
    for less in (asked(1000, 9, priority=3), asked(0, 9), AskedWish(None)):
        assert paced(spent, less, 5.0, burst=BURST, seconds=SECONDS) == (replace(spent, asked=less), 0.0)
    for other in (asked(3000, 9, priority=3), asked(1000, 9, priority=4), asked(1000, 9, model=("A100",), priority=3)):
        assert paced(spent, other, 5.0, burst=BURST, seconds=SECONDS) == (spent, SECONDS)
    for unreadable in (AskedWish(None, "nonsense"), AskedWish(asked(0).requested, "nonsense")):
        assert paced(spent, unreadable, 5.0, burst=BURST, seconds=SECONDS) == (spent, SECONDS)
    nothing = PacedWish(AskedWish(None), 0.0, 5.0)
    assert paced(nothing, asked(0), 5.0, burst=BURST, seconds=SECONDS) == (nothing, SECONDS)


def test_some_changes_are_answered_at_once_and_then_one_after_each_pause() -> None:
    """Two of a burst of two; the third once the rest of the time for one more has passed."""
    before, once = first(asked(1000), 0.0, 2), PacedWish(asked(2000, 2), 1.0, 0.0)
    assert paced(before, once.asked, 0.0, burst=2, seconds=SECONDS) == (once, 0.0)
    twice = PacedWish(asked(3000, 3), 0.25, 0.5)
    assert paced(once, twice.asked, 0.5, burst=2, seconds=SECONDS) == (twice, 0.0)
    assert paced(twice, asked(4000, 4), 0.5, burst=2, seconds=SECONDS) == (twice, 1.5)


def test_without_a_pace_every_wish_is_answered_at_once() -> None:
    """0 seconds between two changes hold nothing up; and the same wish again costs nothing."""
    now = first(asked(1000), 0.0, 1)
    for number in range(5):
        now, wait = paced(now, asked(1000, number + 2), 0.0, burst=1, seconds=0.0)
        assert (now.asked, wait) == (asked(1000, number + 2), 0.0)
    assert paced(now, now.asked, 9.0, burst=1, seconds=1.0) == (now, 0.0)
