"""Penalties for programs that break the order of turns on one GPU: stop, continue, take the share away. Pure.

There are three violations: keeping the GPU after being asked for it (`Late`); using it in turns of others
(`UseScanned`), as a program that avoids the gate does; and holding memory above the share's limit that was never
granted (`MemoryScanned`). For each, the share's processes are stopped until its next turn. A process that never asks is
detected at once, and restricted to the turns of its share for a while: stopped at the end of each, continued in the
next. `counting` says when a process that asks is detected. A stop for a violation counts as a strike, strikes are
forgotten with time, and too many of them cost the share.

For the code that carries out the orders:

- Save the state before carrying out orders, so that stopped processes are known after a restart (`EnforcerStarted`).
- A stopped process can neither ask nor give back. Do both for it; give back when its queued work has ended.
- A process is identified by its pid *and* its start. To continue one that has ended has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jupyter_gpu_node.processes.rules.process_id import ProcessIds

from . import counting
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

# --- what is present -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Present:
    """The processes of each share on this GPU, and those that are never stopped, such as the Jupyter server.

    A process rests if its user or a debugger stopped it, or if it is about to end: it is left as it is.
    """

    processes: Mapping[str, ProcessIds] = field(default_factory=dict)
    never: ProcessIds = frozenset()
    resting: ProcessIds = frozenset()
    dormant: frozenset[str] = frozenset()
    """Shares that have the GPU while all their processes that have it rest, so that none could give it back."""
    throttled: Mapping[str, int] = field(default_factory=dict)
    """Microseconds for which CPU limits stopped shares that keep the GPU, as far as known now."""


@dataclass(frozen=True, slots=True)
class EnforcementOutcome:
    """The state to remember from now on, and the orders to carry out, in this sequence."""

    state: State
    orders: tuple[EnforcementOrder, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of one share."""

    words: str
    """The violation, in words for the user of the share."""
    avoids: bool = False
    """Whether its processes never ask, and so can be restricted to its turns."""
    counts: bool = True
    """Whether it counts as a strike."""


def decide(state: State, event: Event, now: int, present: Present, penalties: Penalties) -> EnforcementOutcome:
    """Return the outcome of one event. ``now`` is a monotonic clock in microseconds."""
    records, orders = dict(state), list[EnforcementOrder]()
    match event:
        case EnforcerStarted():
            for share, before in sorted(state.items()):
                # the clock may be another one now: what counted then counts from now on
                one = counting.reset(_continued(share, before, orders).unrestricted())
                records[share] = replace(one, struck=now)
                if one.taken:
                    orders.append(TakeAway(share, one.taken))
        case Late(share, since, again):
            one = records.get(share, ViolationRecord())
            records[share] = replace(one, late=since, throttled=0, dormant_since=one.dormant_since if again else None)
        case GaveBack(share) if share in records:
            records[share] = replace(records[share], late=None)
        case TurnBegan(share) if share in records:
            records[share] = _continued(share, records[share], orders)
        case TurnEnded(share, there) if share in records:
            there -= present.never | present.resting
            records[share] = _between_turns(share, records[share], there, now, orders)
        case UseScanned() | MemoryScanned():
            counting.count(records, event, now, penalties)
        case Removed(share) if share in records:
            _continued(share, records.pop(share), orders)
        case _:
            pass
    for share, one in sorted(records.items()):
        records[share] = _decide_share(share, one, now, present, penalties, orders)
    remembered = {share: one for share, one in records.items() if not one.is_forgotten(now, penalties)}
    return EnforcementOutcome(remembered, tuple(orders))


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


def _continued(share: str, one: ViolationRecord, orders: list[EnforcementOrder]) -> ViolationRecord:
    if one.stopped:
        orders.append(Continue(share, one.stopped))
    late = one.late if one.between else None
    return replace(one, stopped=frozenset(), between=False, late=late)


def _between_turns(
    share: str, one: ViolationRecord, there: ProcessIds, now: int, orders: list[EnforcementOrder]
) -> ViolationRecord:
    """Stop the avoiders of a share whose turn is over."""
    if one.stopped or one.taken or not one.restricted_until:
        return one
    avoiders = one.avoiders & there
    if not avoiders or now >= one.restricted_until:
        return one.unrestricted()
    orders.append(Stop(share, avoiders, ""))
    return replace(one, avoiders=avoiders, stopped=avoiders, between=True, since=now)


def _decide_share(
    share: str, one: ViolationRecord, now: int, present: Present, penalties: Penalties, orders: list[EnforcementOrder]
) -> ViolationRecord:
    """Add the orders that follow for one share, and return its record."""
    if one.taken:
        return one
    if one.stopped and now >= one.since + penalties.longest:
        return _continued(share, one, orders).unrestricted()
    stoppable = present.processes.get(share, frozenset()) - present.never - (present.resting - one.stopped)
    one, late = _check_late(share, one, now, present, penalties)
    if one.stopped and not (one.between and late):
        return _corrected(share, one, stoppable, present.never, orders)
    violation = _find_violation(one, penalties, late=late)
    return _penalized(share, one, violation, stoppable, now, penalties, orders) if violation else one


def _check_late(
    share: str, one: ViolationRecord, now: int, present: Present, penalties: Penalties
) -> tuple[ViolationRecord, bool]:
    """Return the record, and whether the share is late now.

    A dormant share is not, for a limited time: its user has stopped it, and its work may run on.
    """
    if one.late is not None:
        one = replace(one, throttled=max(one.throttled, present.throttled.get(share, 0)))
    late = one.late is not None and now >= one.late + penalties.grace + one.throttled
    if share not in present.dormant:
        return replace(one, dormant_since=None), late
    if not late:
        return one, False
    since = now if one.dormant_since is None else one.dormant_since
    if now < since + penalties.longest:
        return replace(one, dormant_since=since, late=None), False
    return replace(one, dormant_since=None), True


def _find_violation(one: ViolationRecord, penalties: Penalties, *, late: bool) -> Violation | None:
    """Return the violation that is proven; None: none. Use by an API that cannot ask for turns is no strike."""
    avoids = counting.avoids(one, penalties)
    if late:
        return Violation("it kept the GPU after it was asked for it", avoids)
    if counting.hoards(one, penalties):
        words = (
            f"its programs hold {-(-one.untold // counting.MIB)} MiB of GPU memory above its limit, which they took "
            "without asking for it. End the program that goes around the gate, or have the limit raised"
        )
        return Violation(words, avoids)
    if avoids or counting.exceeds(one):
        words = "it used the GPU in turns of others"
        words += f" by {one.api}, which cannot ask for turns" if one.api else ""
        return Violation(words, avoids, counts=not (avoids and one.api and penalties.kept))
    return None


def _penalized(
    share: str, one: ViolationRecord, violation: Violation, stoppable: ProcessIds, now: int, penalties: Penalties,
    orders: list[EnforcementOrder],
) -> ViolationRecord:  # fmt: skip
    """Add the orders that a violation leads to, and return the record."""
    strikes = one.counts(now, penalties) + violation.counts
    one = replace(counting.reset(one), strikes=strikes, struck=now, late=None, memory_scans=0)
    times = round(strikes)  # a little of each is forgotten before the next
    if violation.counts and times >= penalties.strikes:
        reason = f"Taken away: {violation.words}, violation {times} of late. Restart its programs and ask again."
        orders.append(TakeAway(share, reason))
        return replace(_continued(share, one, orders).unrestricted(), taken=reason)
    if new := stoppable - one.stopped:
        words = violation.words
        if violation.avoids and penalties.kept:
            one = replace(one, restricted_until=now + penalties.kept, quiet_scans=0)
            words += f". For {penalties.kept / 1e6:g} s, what does not ask for the GPU runs in turns of its share only"
        orders.append(Stop(share, new, f"Stopped until its next turn: {words}."))
        one = replace(one, since=one.since if one.stopped else now, stopped=one.stopped | new, between=False)
    return one


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
