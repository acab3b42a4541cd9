"""Accounts as they are written, and as the next leader takes them over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.account import KEPT_DAYS, Account, read_account
from jupyter_gpu.model.limits.calendar import LimitsInForce
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Source, Sourced, SourceKind
from jupyter_gpu_scheduler.rules.accounts.meter import GpuTimeMeter
from jupyter_gpu_scheduler.rules.accounts.statement import MOST_GAP, account_of, days_until, is_stale, only_time
from jupyter_gpu_scheduler.rules.limits.grace import Grace
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

ANN = Owner("User", "ann", "hub")
DAY = date(2026, 5, 3)
NOON = datetime(2026, 5, 3, 12, tzinfo=UTC).timestamp()
TWO: Sourced[int] = Sourced(2000, Source(SourceKind.USER, "ann"))


def pod(uid: str, wants: int | None, has: int, **fields: object) -> PodState:
    shares = tuple(GpuShare(f"{uid}-{number}", 1000) for number in range(has))
    requested = None if wants is None else Requested(1, Wish(wants))
    state = PodState(uid, "n", requested=requested, allocated=Allocated(1, shares), owner=ANN)
    return replace(state, **fields)  # type: ignore[arg-type]


def statement(*pods: PodState, grace: Grace = Grace(), until: float | None = None) -> Account:  # noqa: B008
    snapshot = ClusterSnapshot()
    for one in pods:
        snapshot.put_pod(one)
    return account_of(
        ANN,
        snapshot,
        limits=EffectiveLimits(max=TWO),  # type: ignore[arg-type]
        in_force=LimitsInForce(TWO, Sourced(0), until),  # type: ignore[arg-type]
        grace=grace,
        meter=GpuTimeMeter(0.0, 3000, {DAY: 7_200_000_000}),
        now=NOON,
    )


def test_account_sums_over_all_pods() -> None:
    """Used is what is held, waiting what is wished beside; a pod that ends waits for nothing."""
    found = statement(
        pod("a", 3000, 1), pod("b", 500, 1), pod("c", None, 0), pod("d", 2000, 0, gone=True), until=NOON + 60.7
    )
    assert (found.used, found.waiting, found.max, found.until) == (2000, 2000, TWO, int(NOON) + 60)
    assert found.hours == {DAY: 7_200_000}
    assert (found.over_since, found.give_back_at, found.counted_until) == (None, None, int(NOON))


def test_account_tells_of_the_grace() -> None:
    """Since when there is too much, and until when that is tolerated."""
    found = statement(pod("a", 3000, 3), grace=Grace(NOON - 1.5, NOON + 598.5, True))
    assert (found.over_since, found.give_back_at) == (int(NOON) - 2, int(NOON) + 598)


def test_written_account_is_read_again() -> None:
    """The next leader reads what this one wrote."""
    found = statement(pod("a", 3000, 3), grace=Grace(NOON - 1.5, NOON + 598.5, True), until=NOON + 60)
    assert read_account({"spec": found.spec(), "status": found.status()}) == found


def test_time_alone_is_no_reason_to_write_at_once() -> None:
    """Hours that grow are a change of another kind than an amount."""
    before = statement(pod("a", 3000, 3))
    later = replace(before, hours={DAY: 9}, counted_until=int(NOON) + 9)
    assert only_time(before.status(), later.status())
    assert not only_time(before.status(), replace(later, used=1000).status())


def test_time_without_a_leader_is_counted() -> None:
    """GPUs that were held when the leader went are held until the next one begins; over midnight, too."""
    account = Account(ANN, used=2000, hours={DAY: 5000}, counted_until=int(NOON))
    assert days_until(account, NOON + 10, UTC) == {DAY: 5_000_000 + 2000 * 10_000}
    days = days_until(account, NOON + 13 * 3600, UTC)
    assert days == {DAY: 5_000_000 + 2000 * 12 * 3_600_000, date(2026, 5, 4): 2000 * 3_600_000}


def test_no_time_is_made_up() -> None:
    """A clock set back, nothing held, or an account that does not say until when it counts: only what it has."""
    account = Account(ANN, used=2000, hours={DAY: 5000}, counted_until=int(NOON))
    alone = {DAY: 5_000_000}
    assert days_until(account, NOON - 3600, UTC) == alone
    assert days_until(replace(account, used=0), NOON + 3600, UTC) == alone
    assert days_until(replace(account, counted_until=None), NOON + 3600, UTC) == alone
    assert sum(days_until(account, NOON + 10 * MOST_GAP, UTC).values()) == 5_000_000 + 2000 * MOST_GAP * 1000


def test_account_without_recent_use_is_stale() -> None:
    """So many days are kept; a day in the future, by a clock that was wrong, counts as recent."""
    today = date(2026, 5, 4)
    assert is_stale((), today)
    assert is_stale([today - timedelta(days=KEPT_DAYS + 1)], today)
    for recent in (today - timedelta(days=KEPT_DAYS), today, today + timedelta(days=400)):
        assert not is_stale([today - timedelta(days=99), recent], today)
