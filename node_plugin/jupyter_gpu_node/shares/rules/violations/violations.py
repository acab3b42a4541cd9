"""Penalties for programs that break the order of turns on one GPU: stop, continue, take the share away. Pure.

There are three violations: keeping the GPU after being asked for it (`Late`); using it in turns of others
(`UseScanned`), as a program that avoids the gate does; and holding memory above the share's limit that was never
granted (`MemoryScanned`). For each, the share's processes are stopped until its next turn. A process that never asks is
detected at once, and kept to the turns of its share for a while: stopped at the end of each, continued in the next. A
process that asks, and launches around the gate as well, is detected only by its total use over a time so long that the
driver's few samples cannot be wrong by as much (a sequential test, Page 1954). A stop for a violation counts as a
strike, strikes are forgotten with time, and too many of them cost the share.

For the code that carries out the orders:

- Save the state before carrying out orders, so that stopped processes are known after a restart (`EnforcerStarted`).
- A stopped process can neither ask nor give back. Do both for it; give back when its queued work has ended.
- A process is identified by its pid *and* its start. To continue one that has ended has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds

from .events import (
    Continue,
    EnforcementOrder,
    EnforcerStarted,
    Event,
    GaveBack,
    Late,
    MemoryScanned,
    Removed,
    Stop,
    TakeAway,
    TurnBegan,
    TurnEnded,
    UseScanned,
)
from .penalties import Penalties
from .violation_records import State, ViolationRecord

DOUBT = 150
"""Thousandths of the time that members may seem to use beyond their turns. With `PROOF` an innocent share, of
which five samples a second are wrong by a fifth of a GPU, is accused once in years."""
PROOF = 3_000_000
"""Microseconds beyond that which prove it. A program that has twice its half of a GPU is seen after nine seconds."""
SLOW_DOUBT, SLOW_PROOF = 50, 12_000_000
"""The same for less over longer: three times more exact, and rarer still for the innocent, as the error of samples
becomes less with the root of their number. What is a tenth of a GPU more than its turns is seen after four minutes."""
MIB = 2**20
RESTS = 10
"""Scans in a row without use by processes kept to their turns, after which they are no longer restricted."""


# --- what is present -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Present:
    """The processes of each share on this GPU, and those that are never stopped, such as the Jupyter server.

    A process rests if its user or a debugger stopped it, or if it is about to end: it is left as it is.
    """

    processes: Mapping[str, ProcessIds] = field(default_factory=dict)
    never: ProcessIds = frozenset()
    resting: ProcessIds = frozenset()
    excused: frozenset[str] = frozenset()
    """Shares that have the GPU, all of whose processes that have it rest."""
    throttled: Mapping[str, int] = field(default_factory=dict)
    """Microseconds for which CPU limits stopped shares that keep the GPU, as far as known now."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state to remember from now on, and the orders to carry out, in this sequence."""

    state: State
    orders: tuple[EnforcementOrder, ...]


def decide(state: State, event: Event, now: int, present: Present, penalties: Penalties) -> Judgement:
    """Return the outcome of one event. ``now`` is a monotonic clock in microseconds."""
    records, orders = dict(state), list[EnforcementOrder]()
    match event:
        case EnforcerStarted():
            for share, one in sorted(state.items()):
                # the clock may be another one now: what counted then counts from now on
                records[share] = replace(_let_be(_continued(share, one, orders)), struck=now, beyond=0, slowly=0)
                if one.taken:
                    orders.append(TakeAway(share, one.taken))
        case Late(share, since, again):
            one = records.get(share, ViolationRecord())
            records[share] = replace(one, late=since, throttled=0, rested=one.rested if again else None)
        case GaveBack(share) if share in records:
            records[share] = replace(records[share], late=None)
        case TurnBegan(share) if share in records:
            records[share] = _continued(share, records[share], orders)
        case TurnEnded(share, there) if share in records:
            there -= present.never | present.resting
            records[share] = _between_turns(share, records[share], there, now, orders)
        case UseScanned() | MemoryScanned():
            _count(records, event, now, penalties)
        case Removed(share) if share in records:
            _continued(share, records.pop(share), orders)
        case _:
            pass
    for share, one in sorted(records.items()):
        records[share] = _judged(share, one, now, present, penalties, orders)
    kept = {share: one for share, one in records.items() if not _forgotten(one, now, penalties)}
    return Judgement(kept, tuple(orders))


def wake(state: State, penalties: Penalties) -> int | None:
    """Return when a `Tick` is due if nothing else happens; None: never."""
    moments = [
        one.late + penalties.grace + one.throttled
        for one in state.values()
        if one.late is not None and not one.taken and (not one.stopped or one.between)
    ]
    moments += [one.since + penalties.longest for one in state.values() if one.stopped]
    return min(moments, default=None)


# --- how it decides ---------------------------------------------------------------------------------------------------


def _count(
    records: dict[str, ViolationRecord], event: UseScanned | MemoryScanned, now: int, penalties: Penalties
) -> None:
    """Count what a scan saw, and what it no longer saw."""
    if isinstance(event, MemoryScanned):
        for share in sorted({*records, *event.untold}):
            records[share] = _count_memory(records.get(share, ViolationRecord()), event.untold.get(share, 0), penalties)
        return
    for share in sorted({*records, *event.foreign, *event.beyond}):
        one = records.get(share, ViolationRecord())
        one = one if now < one.kept else replace(one, kept=0)
        one = replace(one, api=event.apis.get(share, ""))
        foreign, beyond = event.foreign.get(share, {}), event.beyond.get(share, 0)
        records[share] = _count_use(one, foreign, beyond, event.passed, penalties)


def _continued(share: str, one: ViolationRecord, orders: list[EnforcementOrder]) -> ViolationRecord:
    if one.stopped:
        orders.append(Continue(share, one.stopped))
    late = one.late if one.between else None
    return replace(one, stopped=frozenset(), between=False, late=late)


def _let_be(one: ViolationRecord) -> ViolationRecord:
    """Return the record with no process kept to its turns, and none seen."""
    return replace(one, avoiders=frozenset(), kept=0, looks=0)


def _between_turns(
    share: str, one: ViolationRecord, there: ProcessIds, now: int, orders: list[EnforcementOrder]
) -> ViolationRecord:
    """Stop the avoiders of a share whose turn is over."""
    if one.stopped or one.taken or not one.kept:
        return one
    avoiders = one.avoiders & there
    if not avoiders or now >= one.kept:
        return _let_be(one)
    orders.append(Stop(share, avoiders, ""))
    return replace(one, avoiders=avoiders, stopped=avoiders, between=True, since=now)


def _count_use(
    one: ViolationRecord, foreign: Mapping[ProcessId, int], beyond: int, passed: int, penalties: Penalties
) -> ViolationRecord:
    """Count what a scan saw. Work that was queued before a stop runs on: it is no new violation."""
    if one.stopped and not one.between:
        return replace(one, looks=0, beyond=0, slowly=0)
    used = sum(foreign.values())
    if one.kept:
        rests = 0 if used else one.rests + 1
        one = replace(one, avoiders=one.avoiders | foreign.keys(), rests=rests, looks=0, beyond=0, slowly=0)
        return one if rests < RESTS else _let_be(one)
    seen = used * 1000 > penalties.tolerance * passed
    avoiders = one.avoiders | foreign.keys() if seen else ProcessIds()
    sums = max(0, one.beyond + beyond - DOUBT * passed // 1000)
    slow = max(0, one.slowly + beyond - SLOW_DOUBT * passed // 1000)
    return replace(one, looks=one.looks + 1 if seen else 0, avoiders=avoiders, beyond=sums, slowly=slow)


def _count_memory(one: ViolationRecord, untold: int, penalties: Penalties) -> ViolationRecord:
    """Count what a memory comparison saw. A stopped process can free nothing: that is no new violation."""
    hoards = one.hoards + 1 if untold > penalties.untold * MIB and (one.between or not one.stopped) else 0
    return replace(one, untold=untold, hoards=hoards)


def _judged(
    share: str, one: ViolationRecord, now: int, present: Present, penalties: Penalties, orders: list[EnforcementOrder]
) -> ViolationRecord:
    """Judge one share: add the orders that follow, and return its record."""
    if one.taken:
        return one
    if one.stopped and now >= one.since + penalties.longest:
        return _let_be(_continued(share, one, orders))
    stoppable = present.processes.get(share, frozenset()) - present.never - (present.resting - one.stopped)
    if one.late is not None:
        one = replace(one, throttled=max(one.throttled, present.throttled.get(share, 0)))
    late = one.late is not None and now >= one.late + penalties.grace + one.throttled
    one = _excused(share, one, now, present, penalties, late=late)
    late = late and one.late is not None
    if one.stopped and not (one.between and late):
        return _corrected(share, one, stoppable, present.never, orders)
    avoided = one.looks >= penalties.looks
    hoards = one.hoards >= penalties.looks
    used = avoided or one.beyond >= PROOF or one.slowly >= SLOW_PROOF
    if not late and not used and not hoards:
        return one
    innocent = bool(avoided and not late and not hoards and one.api and penalties.kept)  # it gets just its turns
    what = _violation(one, late=late, hoards=hoards)
    strikes = one.counts(now, penalties) + (0 if innocent else 1)
    one = replace(one, strikes=strikes, struck=now, late=None, looks=0, beyond=0, slowly=0, hoards=0)
    times = round(one.strikes)  # a little of each is forgotten before the next
    if not innocent and times >= penalties.strikes:
        reason = f"Taken away: {what}, violation {times} of late. Restart its programs and ask again."
        orders.append(TakeAway(share, reason))
        return replace(_let_be(_continued(share, one, orders)), taken=reason)
    if new := stoppable - one.stopped:
        if avoided and penalties.kept:
            one = replace(one, kept=now + penalties.kept, rests=0)
            what += f". For {penalties.kept / 1e6:g} s, what does not ask for the GPU runs in turns of its share only"
        orders.append(Stop(share, new, f"Stopped until its next turn: {what}."))
        one = replace(one, since=one.since if one.stopped else now, stopped=one.stopped | new, between=False)
    return one


def _violation(one: ViolationRecord, *, late: bool, hoards: bool) -> str:
    """Return in words what the share did, for its user."""
    if late:
        return "it kept the GPU after it was asked for it"
    if hoards:
        return (
            f"its programs hold {-(-one.untold // MIB)} MiB of GPU memory above its limit, which they took without "
            "asking for it. End the program that goes around the gate, or have the limit raised"
        )
    return "it used the GPU in turns of others" + (f" by {one.api}, which cannot ask for turns" if one.api else "")


def _excused(
    share: str, one: ViolationRecord, now: int, present: Present, penalties: Penalties, *, late: bool
) -> ViolationRecord:
    """Excuse lateness while the share's user has stopped it, for a limited time: its work may run on."""
    if share not in present.excused:
        return replace(one, rested=None)
    if not late:
        return one
    rested = now if one.rested is None else one.rested
    return replace(one, rested=rested, late=None) if now < rested + penalties.longest else replace(one, rested=None)


def _corrected(
    share: str, one: ViolationRecord, stoppable: ProcessIds, never: ProcessIds, orders: list[EnforcementOrder]
) -> ViolationRecord:
    """Stop the processes that came after the others were stopped, and continue those that must not be stopped."""
    wanted, reason = stoppable, "Stopped until its next turn, as the others of this share."
    if one.between:
        wanted, reason = one.avoiders - never, ""
    if new := wanted - one.stopped:
        orders.append(Stop(share, new, reason))
    if spared := one.stopped & never:
        orders.append(Continue(share, spared))
    return replace(one, stopped=one.stopped - spared | new)


def _forgotten(one: ViolationRecord, now: int, penalties: Penalties) -> bool:
    """Tell whether nothing is left to remember."""
    seen = one.looks or one.beyond or one.slowly or one.hoards
    idle = one.late is None and one.rested is None and not (one.stopped or one.kept or one.taken)
    return idle and not seen and one.counts(now, penalties) < 0.05
