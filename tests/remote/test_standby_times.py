"""The times at which processes that stand by are started."""

from __future__ import annotations

from jupyter_gpu.remote.rules.standby_times import AFTER, FIRST_PAUSE, LAST_PAUSE, StandbyTimes


def test_times() -> None:
    """The first at once, the next after a while; those that end are replaced with pauses that grow to a bound."""
    now = 100.0
    one = StandbyTimes(now)
    assert one.wait(now) == 0
    one.taken(now)
    assert one.wait(now) == AFTER
    pauses = []
    for _ in range(12):
        one.failed(now)
        pauses.append(one.wait(now))
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == LAST_PAUSE
    one.taken(now)
    assert one.wait(now) == LAST_PAUSE
    one.worked()
    one.failed(now)
    assert one.wait(now) == FIRST_PAUSE
