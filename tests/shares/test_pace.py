"""The rule of the pace of connections: a reserve and a rate for each user of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.pace import PAUSE, RATE, RESERVE, USERS, Pace

moments = st.floats(-1e3, 1e3)
steps = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2 * RESERVE), moments), max_size=12)
"""User, how many connections at once, and the time by any clock, also one that goes back."""


@pytest.mark.uncounted(after=10)
@given(steps)
def test_never_more_than_the_reserve_and_the_rate(steps: list[tuple[int, int, float]]) -> None:
    """This holds for each user, from any moment to any other; time that a clock shows twice counts once."""
    pace = Pace()
    counts: dict[int, list[tuple[float, int]]] = {user: [] for user in range(3)}
    for user, count, time in steps:
        latest = max([time, *(at for at, _ in counts[user])])
        counts[user].append((latest, sum(pace.takes(user, time) for _ in range(count))))
    for taken in counts.values():
        for first, (since, _) in enumerate(taken):
            for last in range(first, len(taken)):
                allowed = RESERVE + RATE * (taken[last][0] - since)
                assert sum(count for _, count in taken[first : last + 1]) <= allowed + 1e-6


@pytest.mark.uncounted(after=10)
@given(
    st.lists(st.tuples(st.integers(0, RESERVE), st.floats(0, 20)), min_size=1, max_size=10),
    st.lists(st.tuples(st.integers(1, USERS - 1), st.integers(1, 2 * RESERVE)), min_size=1, max_size=10),
)
def test_user_within_the_pace_is_never_refused(own: list[tuple[int, float]], others: list[tuple[int, int]]) -> None:
    """A user that keeps to the pace gets each connection, even if others flood the pod, up to the users told apart."""
    pace, time, left = Pace(), 0.0, float(RESERVE)
    for number, (wanted, pause) in enumerate(own):
        user, count = others[number % len(others)]
        for _ in range(count):
            pace.takes(user, time)
        for _ in range(min(wanted, int(left - 1e-6))):
            assert pace.takes(0, time)
            left -= 1
        time += pause
        left = min(RESERVE, left + RATE * pause)


def test_many_users_have_no_more_than_the_distinguished_ones() -> None:
    """A user that takes ever new names gains no more than that."""
    pace, taken = Pace(), 0
    for user in range(3 * USERS):
        taken += sum(pace.takes(user, user / 100) for _ in range(RESERVE))
    assert taken <= (USERS + 1) * (RESERVE + RATE * 3 * USERS / 100)


def test_after_a_refusal_nothing_is_taken_for_a_moment() -> None:
    """A user that rested has its reserve again."""
    pace = Pace()
    assert pace.rests(0)
    assert [pace.takes(1, 0) for _ in range(RESERVE + 1)] == [True] * RESERVE + [False]
    assert pace.until == PAUSE
    assert pace.takes(2, 0), "another user"
    assert not pace.rests(1)
    assert pace.takes(1, 20)
    assert pace.rests(21)


def test_users_are_distinguished_up_to_a_number() -> None:
    """Further users count as one, and those that rest are forgotten."""
    pace = Pace()
    for user in range(USERS):
        assert pace.takes(user, 0)
    assert sum(pace.takes(user, 0) for user in range(USERS, USERS + 2 * RESERVE)) == RESERVE
    assert pace.takes(7777, 100)
    assert pace.users == 1
