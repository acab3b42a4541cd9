"""The limit on the rate of requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_hub.rules.rate import Rate, RateLimiter


def test_burst_then_rate() -> None:
    """Three at once, then one each half second; who waits as long as was said is served."""
    limiter = RateLimiter(Rate(per_second=2, burst=3))
    assert [limiter.wait("a", 10) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limiter.wait("b", 10) == 0
    assert limiter.wait("a", 10.5) == 0
    assert limiter.wait("a", 10.5) == 0.5


def test_look_takes_nothing() -> None:
    """It tells how long a request would have to wait."""
    limiter = RateLimiter(Rate(per_second=1, burst=1))
    assert [limiter.wait("a", 0, take=False) for _ in range(3)] == [0, 0, 0]
    assert limiter.wait("a", 0) == 0
    assert limiter.wait("a", 0.25, take=False) == 0.75


def test_clock_that_goes_back_gives_nothing() -> None:
    """Nor does it take anything."""
    limiter = RateLimiter(Rate(per_second=1, burst=1))
    assert limiter.wait("a", 100) == 0
    assert limiter.wait("a", 50) == 1


def test_memory_is_bounded() -> None:
    """The client that was silent longest is forgotten, which gives it a full bucket."""
    limiter = RateLimiter(Rate(per_second=1, burst=1), most=2)
    for client in ("a", "b", "c"):
        assert limiter.wait(client, 0) == 0
    assert limiter.wait("c", 0) > 0
    assert limiter.wait("a", 0) == 0


@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_never_more_than_burst_and_rate(pauses: list[float], rate: int, burst: int) -> None:
    """In any time, at most burst + rate · time requests pass."""
    limiter, now, passed = RateLimiter(Rate(rate, burst)), 0.0, 0
    for pause in pauses:
        now += pause
        passed += limiter.wait("a", now) == 0
    assert passed <= burst + rate * now + 1e-6
