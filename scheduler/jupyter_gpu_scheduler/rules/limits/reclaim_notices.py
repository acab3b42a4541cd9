"""Pure: the notice that each pod has of what is reclaimed from it. The time is an argument.

Each amount has its own time, so what is reclaimed later is given back later, and what was announced earlier is not put
off by it. The notices are kept in the pod's record, so they outlive the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from jupyter_gpu.model.limits.pod_limit import MAX_RECLAIMS, Reclaim


def noticed(known: Sequence[Reclaim], amount: int, *, seconds: float, now: float) -> tuple[Reclaim, ...]:
    """Return the notices of a pod from which ``amount`` milli are reclaimed now, earliest first.

    ``known`` are those that its record has; ``seconds`` is the grace. What is reclaimed no more is taken from the
    earliest: that was given back, or another pod does not need it. A time that is further away than the grace counts
    as the end of a new one: the clock was set back.
    """
    latest = now + seconds
    found = [Reclaim(item.milli, min(item.at, latest)) for item in sorted(known, key=lambda item: item.at)]
    surplus = sum(item.milli for item in found) - amount
    while found and surplus >= found[0].milli:
        surplus -= found.pop(0).milli
    if surplus > 0:
        found[0] = found[0]._replace(milli=found[0].milli - surplus)
    elif surplus < 0:
        found.append(Reclaim(-surplus, latest))
    return tuple(item for item in _shortened(found) if item.milli)


def joined(notices: Iterable[Sequence[Reclaim]]) -> tuple[Reclaim, ...]:
    """Return the notices of several pods as those of one, earliest first; amounts of the same time are added."""
    amounts = Counter[float]()
    for item in chain.from_iterable(notices):
        amounts[item.at] += item.milli
    return tuple(_shortened([Reclaim(amounts[at], at) for at in sorted(amounts)]))


def _shortened(found: list[Reclaim]) -> list[Reclaim]:
    """Return notices with the last ones as one, if they are more than a record may have."""
    if len(found) <= MAX_RECLAIMS:
        return found
    rest = found[MAX_RECLAIMS - 1 :]
    return [*found[: MAX_RECLAIMS - 1], Reclaim(sum(item.milli for item in rest), rest[-1].at)]


def due(notices: Sequence[Reclaim], now: float) -> int:
    """Return the milli that a pod must have given back by now."""
    return sum(item.milli for item in notices if item.at <= now)


def next_at(notices: Sequence[Reclaim], now: float) -> float | None:
    """Return when the next amount must be given back; ``None``: none is to be."""
    return min((item.at for item in notices if item.at > now), default=None)
