"""GPU time by day: nothing is lost or counted twice, whatever changes when, and whatever the clock of the day does."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import KEPT_DAYS
from jupyter_gpu_scheduler.rules.accounts.meter import GpuTimeMeter, by_day

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 5, 3, 12, tzinfo=UTC).timestamp()


@given(
    changes=st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 8000)), max_size=20),
    zone=st.sampled_from((UTC, BERLIN, ZoneInfo("Australia/Lord_Howe"))),
)
def test_meter_counts_each_millisecond_once(changes: list[tuple[int, int]], zone: ZoneInfo) -> None:
    """The days add up to what was held times how long."""
    meter, elapsed, total = GpuTimeMeter(at=0.0), 0, 0
    for wait, milli in changes:
        elapsed += wait
        total += meter.milli * wait
        meter = meter.counted(elapsed / 1000, NOON + elapsed / 1000, zone).holding(milli)
    assert sum(meter.days.values()) == total


def test_meter_splits_at_midnight_of_the_zone() -> None:
    """One GPU held from 23:30 to 00:15 counts for two days."""
    end = datetime(2026, 5, 4, 0, 15, tzinfo=BERLIN).timestamp()
    meter = GpuTimeMeter(at=0.0, milli=1000).counted(2700.0, end, BERLIN)
    assert meter.days == {date(2026, 5, 3): 1000 * 1_800_000, date(2026, 5, 4): 1000 * 900_000}


def test_days_with_a_change_of_the_clock_have_23_and_25_hours() -> None:
    """A GPU that is held over both changes to and from summer time counts each hour of those days."""
    for day, hours in ((date(2026, 3, 29), 23), (date(2026, 10, 25), 25)):
        end = round(datetime(day.year, day.month, day.day + 1, tzinfo=BERLIN).timestamp() * 1000)
        assert dict(by_day(end, 48 * 3_600_000, BERLIN))[day] == hours * 3_600_000


def test_clock_that_is_set_back_makes_no_time() -> None:
    """The day's clock jumps a day back: what is counted is what the other clock says."""
    meter = GpuTimeMeter(at=0.0, milli=1000).counted(60.0, NOON, UTC)
    meter = meter.counted(61.0, NOON - 86400, UTC)
    assert sum(meter.days.values()) == 1000 * 61_000
    assert meter.counted(30.0, NOON, UTC) == meter


@given(st.lists(st.floats(0.0001, 0.01), min_size=50, max_size=50))
def test_short_steps_lose_no_time(steps: list[float]) -> None:
    """Steps shorter than a millisecond add up."""
    meter, elapsed = GpuTimeMeter(at=0.0, milli=1000), 0.0
    for step in steps:
        elapsed += step
        meter = meter.counted(elapsed, NOON + elapsed, UTC)
    assert abs(sum(meter.days.values()) - elapsed * 1_000_000) <= 1000


def test_clock_that_was_ahead_pushes_out_no_day() -> None:
    """A day of the next century stays, and the days before and after the clock was corrected are counted on."""
    meter = GpuTimeMeter(at=0.0, milli=1000).counted(60.0, NOON, UTC)
    meter = meter.counted(61.0, NOON + 10**10, UTC)
    meter = meter.counted(62.0, NOON, UTC)
    assert meter.days[date(2026, 5, 3)] == 1000 * 61_000
    assert len(meter.days) == 2


def test_old_days_are_forgotten() -> None:
    """Two months of one GPU leave the newest days."""
    meter = GpuTimeMeter(at=0.0, milli=1000).counted(60 * 86400.0, NOON, UTC)
    assert len(meter.days) == KEPT_DAYS
    assert max(meter.days) == date(2026, 5, 3)
