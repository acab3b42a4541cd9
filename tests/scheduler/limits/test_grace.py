"""The time for which an owner may keep more than the maximum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_scheduler.rules.limits.grace import Grace, grace


def test_grace_begins_when_the_owner_has_more() -> None:
    """It begins now if nothing is stored, lasts as long as configured, and is over when the owner has less."""
    assert grace(None, above=True, seconds=600, now=100) == Grace(100, 700, tolerated=True)
    assert grace(100, above=True, seconds=600, now=699) == Grace(100, 700, tolerated=True)
    assert grace(100, above=True, seconds=600, now=700) == Grace(100, 700, tolerated=False)
    assert grace(100, above=False, seconds=600, now=300) == Grace()


def test_grace_of_no_seconds_tolerates_nothing() -> None:
    """With a grace of 0 what is above is taken back at once."""
    assert not grace(None, above=True, seconds=0, now=5).tolerated


def test_grace_whose_beginning_lies_in_the_future_begins_now() -> None:
    """A clock that was set back prolongs no grace beyond its length."""
    assert grace(5000, above=True, seconds=600, now=100) == Grace(100, 700, tolerated=True)


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(0, 500))
def test_grace_ends_whatever_the_clock_does(times: list[float], seconds: float) -> None:
    """Stored after each look, the beginning never becomes later."""
    stored: float | None = None
    for now in times:
        found = grace(stored, above=True, seconds=seconds, now=now)
        assert found.since is not None
        assert stored is None or found.since <= stored
        assert found.tolerated == (now < found.since + seconds)
        stored = found.since
