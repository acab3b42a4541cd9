"""Counts the use and the memory of each share that scans see, and tells what proves a violation. Pure.

A process that asks, and launches around the gate as well, is detected only by its total use over a time so long that
the driver's few samples cannot be wrong by as much (a sequential test, Page 1954).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds

from .events import MemoryScanned, UseScanned
from .penalties import Penalties
from .violation_records import ViolationRecord

DOUBT = 150
"""Thousandths of the time that programs may seem to use beyond their turns. With `PROOF`, a share that keeps to its
turns, of which five samples a second are wrong by a fifth of a GPU, is suspected once in years."""
PROOF = 3_000_000
"""Microseconds beyond that which prove it. A program that has twice its half of a GPU is seen after nine seconds."""
SLOW_DOUBT, SLOW_PROOF = 50, 12_000_000
"""The same for less over longer: three times more exact, and wrong more rarely still, as the error of samples becomes
less with the root of their number. What is a tenth of a GPU more than its turns is seen after four minutes."""
MIB = 2**20
QUIET_SCANS = 10
"""Scans in a row without use by processes restricted to their turns, after which they are no longer restricted."""


def count(
    records: dict[str, ViolationRecord], event: UseScanned | MemoryScanned, now: int, penalties: Penalties
) -> None:
    """Count in ``records`` what a scan saw, and what it no longer saw."""
    if isinstance(event, MemoryScanned):
        for share in sorted({*records, *event.untold}):
            records[share] = _count_memory(records.get(share, ViolationRecord()), event.untold.get(share, 0), penalties)
        return
    for share in sorted({*records, *event.foreign, *event.beyond}):
        one = records.get(share, ViolationRecord())
        one = one if now < one.restricted_until else replace(one, restricted_until=0)
        one = replace(one, api=event.apis.get(share, ""))
        foreign, beyond = event.foreign.get(share, {}), event.beyond.get(share, 0)
        records[share] = _count_use(one, foreign, beyond, event.passed, penalties)


def reset(one: ViolationRecord) -> ViolationRecord:
    """Return the record with no use counted."""
    return replace(one, scans_seen=0, beyond=0, beyond_slow=0)


def avoids(one: ViolationRecord, penalties: Penalties) -> bool:
    """Tell whether it is proven that processes of the share use the GPU without ever asking."""
    return one.scans_seen >= penalties.looks


def exceeds(one: ViolationRecord) -> bool:
    """Tell whether it is proven that processes of the share that ask use more than its turns."""
    return one.beyond >= PROOF or one.beyond_slow >= SLOW_PROOF


def hoards(one: ViolationRecord, penalties: Penalties) -> bool:
    """Tell whether it is proven that the share holds memory above its limit that was never granted."""
    return one.memory_scans >= penalties.looks


def _count_use(
    one: ViolationRecord, foreign: Mapping[ProcessId, int], beyond: int, passed: int, penalties: Penalties
) -> ViolationRecord:
    """Count the use that a scan saw. Work that was queued before a stop runs on: it is no new violation."""
    if one.stopped and not one.between:
        return reset(one)
    used = sum(foreign.values())
    if one.restricted_until:
        quiet = 0 if used else one.quiet_scans + 1
        one = replace(reset(one), avoiders=one.avoiders | foreign.keys(), quiet_scans=quiet)
        return one if quiet < QUIET_SCANS else one.unrestricted()
    seen = used * 1000 > penalties.tolerance * passed
    return replace(
        one,
        scans_seen=one.scans_seen + 1 if seen else 0,
        avoiders=one.avoiders | foreign.keys() if seen else ProcessIds(),
        beyond=max(0, one.beyond + beyond - DOUBT * passed // 1000),
        beyond_slow=max(0, one.beyond_slow + beyond - SLOW_DOUBT * passed // 1000),
    )


def _count_memory(one: ViolationRecord, untold: int, penalties: Penalties) -> ViolationRecord:
    """Count what a memory comparison saw. A stopped process can free nothing: that is no new violation."""
    seen = untold > penalties.untold * MIB and (one.between or not one.stopped)
    return replace(one, untold=untold, memory_scans=one.memory_scans + 1 if seen else 0)
