"""The account of an owner as it is to be written, and which changes of it are worth a write. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta, tzinfo
from typing import Any

from jupyter_gpu.model.limits.account import KEPT_DAYS, Account
from jupyter_gpu.model.limits.calendar import LimitsInForce
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.grace import Grace
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .meter import GpuTimeMeter, by_day

TIME = ("hours", "countedUntil")
"""Fields of the status that change with time alone while GPUs are held."""
MOST_GAP = KEPT_DAYS * 86400
"""Seconds without a leader that are counted at most: as many days as are kept."""


def account_of(
    owner: Owner,
    snapshot: ClusterSnapshot,
    *,
    limits: EffectiveLimits,
    in_force: LimitsInForce,
    grace: Grace,
    meter: GpuTimeMeter,
    now: float,
) -> Account:
    """Return the account of ``owner`` at ``now``, in seconds since 1970; all of ``meter`` must be counted."""
    return Account(
        owner=owner,
        max=in_force.max,
        until=_whole(in_force.until),
        used=snapshot.holds(owner),
        waiting=waits_for(snapshot, owner),
        over_since=_whole(grace.since),
        give_back_at=_whole(grace.give_back_at),
        limits=limits,
        hours=meter.used,
        counted_until=int(now),
    )


def waits_for(snapshot: ClusterSnapshot, owner: Owner) -> int:
    """Return the milli that the pods of an owner want beside what they have."""
    return sum(map(_waits_for, snapshot.owned(owner)))


def _waits_for(pod: PodState) -> int:
    return max(0, pod.wanted.milli - pod.has) if pod.wanted and not pod.gone else 0


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


def is_stale(days: Iterable[date], today: date) -> bool:
    """Tell whether an owner without pods, who used GPUs on these days, needs no account any more."""
    oldest = today - timedelta(days=KEPT_DAYS)
    return all(day < oldest for day in days)


def only_time(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether two statuses of an account differ in GPU time at most."""
    one, other = ({key: value for key, value in status.items() if key not in TIME} for status in (before, after))
    return one == other


def days_until(account: Account, now: float, zone: tzinfo) -> dict[date, int]:
    """Return the milli-GPU-milliseconds by day of an account, as they are at ``now``.

    What was held when the account was written last was held until now: no GPU is given back without a leader.
    """
    days = {day: amount * 1000 for day, amount in account.hours.items()}
    if account.used and account.counted_until is not None:
        gap = min(now - account.counted_until, float(MOST_GAP))
        for day, part in by_day(round(now * 1000), max(0, round(gap * 1000)), zone):
            days[day] = days.get(day, 0) + account.used * part
    return days
