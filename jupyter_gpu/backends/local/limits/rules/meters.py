"""Pure: the GPU time of a machine's users, counted from what their pods hold.

The process that counts and the servers that decide go on from the same file by the same rules, so both come to the
same amounts. Durations come from the clock that counts from the start of the machine; the time of day tells only on
which day GPUs were held.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.calendar import day_of
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.accounts.meter import GpuTimeMeter
from jupyter_gpu_scheduler.rules.accounts.statement import is_stale

Meters = Mapping[Owner, GpuTimeMeter]


class Moment(NamedTuple):
    """One moment by the two clocks that count, and where days begin."""

    boot: str
    at: float
    """Seconds since that boot."""
    now: float
    """Seconds since 1970."""
    zone: tzinfo


def resumed(stored: MachineAccounts, moment: Moment) -> Meters:
    """Return the meters of the stored accounts, counted until now.

    What was held when they were written was held until now, if the machine was not started anew: no pod outlives that.
    """
    ran = stored.boot == moment.boot and stored.counted <= moment.at
    return {
        owner: GpuTimeMeter(
            stored.counted if ran else moment.at,
            account.used if ran else 0,
            {day: amount * 1000 for day, amount in account.hours.items()},
        ).counted(moment.at, moment.now, moment.zone)
        for owner, account in stored.accounts.items()
    }


def counted(meters: Meters, holds: Mapping[Owner, int], moment: Moment) -> Meters:
    """Return the meters with everything counted until now, of owners that hold ``holds`` milli from now on.

    An owner that holds nothing, and used nothing lately, is left out.
    """
    today = day_of(moment.now, moment.zone)
    found = {
        owner: meters.get(owner, GpuTimeMeter(moment.at))
        .counted(moment.at, moment.now, moment.zone)
        .holding(holds.get(owner, 0))
        for owner in {**meters, **holds}
    }
    return {owner: meter for owner, meter in found.items() if meter.milli or not is_stale(meter.days, today)}


def accounts_of(
    meters: Meters,
    moment: Moment,
    pods: Mapping[str, str] = MappingProxyType({}),
    groups: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> MachineAccounts:
    """Return the accounts to be stored, with the pods of a hub's users; everything must be counted until now."""
    accounts = {owner: Account(owner, used=meter.milli, hours=meter.used) for owner, meter in meters.items()}
    return MachineAccounts(moment.boot, moment.at, accounts, pods, groups)
