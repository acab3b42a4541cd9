"""GPU time of a machine's users: counted by the clock of the machine, over restarts of what counts it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.limits.rules.meters import Meters, Moment, accounts_of, counted, resumed
from jupyter_gpu.model.limits.account import KEPT_DAYS
from jupyter_gpu.model.limits.machine_accounts import read_accounts
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.limits.owner import Owner

ANN, BOB = Owner("User", "ann", HUB), Owner("User", "bob", HUB)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


def moment(at: float, *, boot: str = "b", now: float | None = None) -> Moment:
    """Return a moment ``at`` seconds after a start of the machine at noon; ``now``: what the clock shows."""
    return Moment(boot, at, NOON + at if now is None else now, UTC)


def restarted(meters: Meters, before: Moment, after: Moment) -> Meters:
    """Return the meters of a process that begins ``after`` another one that wrote ``before``."""
    return resumed(read_accounts(accounts_of(meters, before).encode().encode()), after)


def used(meters: Meters, owner: Owner = ANN) -> int:
    """Return the milli-GPU-seconds of all days."""
    return sum(meters[owner].used.values()) if owner in meters else 0


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 4), st.booleans()), max_size=20))
def test_restart_at_any_moment_loses_nothing(steps: list[tuple[int, int, bool]]) -> None:
    """GPUs that were held when the last process wrote were held until the next one began."""
    at, gpus, meters, expected = 0, 0, counted({}, {}, moment(0)), 0
    before = moment(0)
    for seconds, more, restart in steps:
        at += seconds
        expected += gpus * 1000 * seconds
        meters = restarted(meters, before, moment(at)) if restart else meters
        gpus = more
        before = moment(at)
        meters = counted(meters, {ANN: gpus * 1000} if gpus else {}, before)
    kept = timedelta(seconds=at) < timedelta(days=KEPT_DAYS - 1)
    assert used(meters) == expected if kept else used(meters) <= expected


def test_clock_that_is_set_neither_adds_nor_loses_gpu_time() -> None:
    """It tells the day only."""
    meters = counted({}, {ANN: 1000}, moment(0))
    meters = counted(meters, {ANN: 1000}, moment(100, now=NOON - 86400 * 3))
    meters = counted(meters, {}, moment(200, now=NOON + 86400))
    assert used(meters) == 200_000
    assert meters[ANN].used == {date(2026, 5, 1): 100_000, date(2026, 5, 5): 100_000}


def test_nothing_is_held_over_a_start_of_the_machine() -> None:
    """Nor since a moment that has not come: then the file is not of this boot."""
    meters = counted({}, {ANN: 1000}, moment(0))
    meters = counted(meters, {ANN: 1000}, moment(50))
    for after in (moment(9000, boot="other"), moment(20)):
        again = restarted(meters, moment(50), after)
        assert used(counted(again, {}, after._replace(at=after.at + 10))) == 50_000


def test_owner_without_gpus_or_use_is_forgotten() -> None:
    """After as many days as are kept."""
    meters = counted(counted({}, {ANN: 500, BOB: 0}, moment(0)), {}, moment(10))
    assert set(meters) == {ANN}
    later = moment(86400 * KEPT_DAYS)
    assert set(counted(meters, {}, later)) == {ANN}
    assert not counted(meters, {}, moment(86400 * (KEPT_DAYS + 1)))
