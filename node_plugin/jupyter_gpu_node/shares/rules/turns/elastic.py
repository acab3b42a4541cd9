"""Co-adjustment: a share that is used up grows by what the other shares of its GPU do not use. Pure.

One pass each period takes all shares of a GPU and moves them together, so that their sum is at most 1000 at every
instant. Only the effective milli moves. The allocated milli is what a share has a right to: as soon as it wants that,
it has it back in the same pass, before any other share keeps more than its own.

Slow to give, quick to get back: a share gives by the *peak* of its use, which fades over seconds, so that short bursts
with pauses between them do not make it give and take in turns; it gets its own back by what it did in the last period
alone. What a donor keeps is its peak over ``give``: then it uses less than ``grow`` of it, and nothing oscillates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import ceil

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .elasticity import Elastic
from .ledger import TimeAccount

_NOTHING_FREE = "Wants more, and nothing is free."


@dataclass(frozen=True, slots=True)
class PeriodUse:
    """The use of one share in the last period."""

    allocated: int
    used: int
    """GPU time that it had, in thousandths of the period."""
    short: bool = False
    """Whether it had demand, and neither slice nor bank for it."""

    def __post_init__(self) -> None:
        if not 1 <= self.allocated <= MILLI_PER_GPU or self.used < 0:
            raise ValueError(
                f"A share has 1 to {MILLI_PER_GPU} milli and uses 0 or more, not {self.allocated}, {self.used}."
            )

    @classmethod
    def between(cls, allocated: int, before: TimeAccount | None, after: TimeAccount, passed: int) -> PeriodUse:
        """Compare two accounts of one share, ``passed`` microseconds apart; ``before`` is None for a new one."""
        used, throttled = _totals(after)
        if before is not None:
            earlier = _totals(before)
            used, throttled = used - earlier[0], throttled - earlier[1]
        return cls(allocated, max(0, used) * 1000 // max(1, passed), throttled > 0)


def _totals(account: TimeAccount) -> tuple[int, int]:
    """Return what it used, out of all accounts, and for how long it had nothing left to pay with."""
    used = account.guaranteed + account.borrowed + account.idle + account.overrun + account.switching
    return used, account.throttled


@dataclass(frozen=True, slots=True)
class ElasticState:
    """The memory of one share from pass to pass."""

    allocated: int
    effective: int
    """Milli that it earns now."""
    peak: float
    """The most that it used lately, in milli; it decays."""
    mean: float = 0.0
    """Milli that it used lately on average."""
    high: int = 0
    """Number of passes for which its use was at least ``grow``. This count and the next two stop at ``patience``."""
    low: int = 0
    """The same for its peak below ``give``."""
    lowest: int = 0
    """The same for its peak below ``shrink``."""
    reason: str = ""
    """Reason for its milli, in words for its user."""

    @property
    def use(self) -> float:
        """Part of its effective milli that it used; above 1: also idle time of others."""
        return self.mean / self.effective

    @classmethod
    def first(cls, allocated: int, effective: int | None = None) -> ElasticState:
        """Return the state of a share that is new or known from its file only: assumed to use all it has."""
        now = min(max(1, effective or allocated), MILLI_PER_GPU)
        return cls(allocated, now, max(allocated, now))


@dataclass(frozen=True, slots=True)
class PreviousState:
    """The state of one share as an earlier server left it."""

    allocated: int
    effective: int
    reason: str = ""


def resume(
    allocated: Mapping[str, int], previous: Mapping[str, PreviousState], rules: Elastic
) -> dict[str, ElasticState]:
    """Return the first states of a GPU's shares: the ``previous`` ones, if the same amounts were allocated then.

    The records may be of different ages. If the sum is more than the GPU, those that have more than
    their own have less of that, in proportion to it.
    """
    kept = {name: one for name, one in previous.items() if allocated.get(name) == one.allocated}
    least = {name: max(1, ceil(rules.floor * amount)) for name, amount in allocated.items()}
    now = {
        name: min(max(kept[name].effective, least[name]), MILLI_PER_GPU) if name in kept else amount
        for name, amount in allocated.items()
    }
    lent = {name: now[name] - amount for name, amount in allocated.items() if now[name] > amount}
    for name, amount in _split(max(0, sum(now.values()) - MILLI_PER_GPU), lent).items():
        now[name] -= amount
    return {
        name: replace(ElasticState.first(amount, now[name]), reason=kept[name].reason if name in kept else "")
        for name, amount in allocated.items()
    }


@dataclass(frozen=True, slots=True)
class MilliChange:
    """A pass's effect on one share, or its message to the share's user."""

    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The result of one pass: all shares of the GPU, and what is new. The effective milli must take effect at once."""

    states: Mapping[str, ElasticState]
    changes: Mapping[str, MilliChange]

    @property
    def effective(self) -> dict[str, int]:
        """The effective milli by share; their sum is at most 1000."""
        return {name: one.effective for name, one in self.states.items()}


def adjust(states: Mapping[str, ElasticState], seen: Mapping[str, PeriodUse], rules: Elastic) -> Adjustment:
    """Make one pass over the shares in ``seen``, which are all of this GPU; others are forgotten.

    A share that is new, or was allocated another amount, begins with what is allocated to it. Raises
    `ValueError` if more than the GPU is allocated.
    """
    if (total := sum(one.allocated for one in seen.values())) > MILLI_PER_GPU:
        raise ValueError(f"The shares of one GPU are together at most {MILLI_PER_GPU} milli, not {total}.")
    assessed = {name: _assess(states.get(name), one, rules) for name, one in sorted(seen.items())}
    this = _Pass(assessed, rules)
    this.give_back([name for name, one in seen.items() if _wants_its_own(assessed[name], one, rules)])
    this.grow()
    this.shrink()
    return this.outcome(states)


def _assess(before: ElasticState | None, now: PeriodUse, rules: Elastic) -> ElasticState:
    """Return the state of a share after the last period; its effective milli is as it was."""
    if before is None:
        return ElasticState.first(now.allocated)
    if before.allocated != now.allocated:
        return replace(ElasticState.first(now.allocated), reason=f"Its own is {now.allocated} now.")
    used = float(now.used)
    mean = before.mean + (used - before.mean) / rules.smooth
    mean = used if abs(used - mean) < 0.5 else mean  # it arrives: a steady use ends in a state that does not change
    faded = before.peak * 0.5 ** (1 / rules.fade)
    peak = max(used, faded if faded >= 1 else 0.0)
    lately = peak / before.effective

    def count(passes: int, holds: bool) -> int:
        return min(rules.patience, passes + 1) if holds else 0

    return replace(
        before, mean=mean, peak=peak,
        high=count(before.high, mean >= rules.grow * before.effective),
        low=count(before.low, lately < rules.give and not now.short),
        lowest=count(before.lowest, lately < rules.shrink and not now.short),
    )  # fmt: skip


def _wants_its_own(one: ElasticState, now: PeriodUse, rules: Elastic) -> bool:
    """Tell whether it has less than is allocated to it, and demand for more than it has."""
    return one.effective < one.allocated and (now.short or one.high > 0 or now.used >= rules.grow * one.effective)


class _Pass:
    """One pass: first shares that want their own back, then those that want more, then those that shrink; each once."""

    def __init__(self, states: Mapping[str, ElasticState], rules: Elastic) -> None:
        self._states = dict(states)
        self._rules = rules
        self._now = {name: one.effective for name, one in states.items()}
        self._reasons: dict[str, str] = {}
        self._short: Collection[str] = ()

    @property
    def _free(self) -> int:
        return MILLI_PER_GPU - sum(self._now.values())

    def give_back(self, names: Collection[str]) -> None:
        """Give these shares their own back, in proportion from those that have more than theirs.

        As no more than the GPU is allocated, that is always enough: also where a new share came.
        """
        for name in names:
            one = self._states[name]
            self._now[name] = one.allocated
            # a share that has just got its own back is not a donor again at once
            self._states[name] = replace(one, peak=max(one.peak, float(one.allocated)))
            self._reasons[name] = "Has its own back."
        extra = {name: self._now[name] - one.allocated for name, one in self._states.items()}
        lent = {name: amount for name, amount in extra.items() if amount > 0}
        self._take(_split(max(0, -self._free), lent), "Gave back what was only lent.")

    def grow(self) -> None:
        """Grow shares that use up what they have by a step, all alike: from what is free, and then from donors."""
        wishes = {
            name: min(self._rules.step, MILLI_PER_GPU - self._now[name])
            for name, one in self._states.items()
            if self._patient(one.high) and name not in self._reasons and self._now[name] < MILLI_PER_GPU
        }
        donors = {name: self._spare(name) for name, one in self._states.items() if self._patient(one.low)}
        free = self._free
        amount = min(sum(wishes.values()), free + sum(donors.values()))
        if amount:
            self._take(_split(max(0, amount - free), donors), "Gave what it did not use.")
            self._put(_split(amount, wishes), "Grew by what others do not use.")
        else:
            self._level(wishes)
        self._short = wishes.keys() - self._reasons.keys()

    def _level(self, wanting: Collection[str]) -> None:
        """Level the shares when nothing is left to give: the first above its own must not keep it from later ones.

        All that have more than their own, or want it, approach the same multiple of what is allocated to them.
        """
        ring = [name for name, one in self._states.items() if name in wanting or self._now[name] > one.allocated]
        total = sum(self._now[name] for name in ring)
        base = sum(self._states[name].allocated for name in ring)
        missing = {name: self._states[name].allocated * total // base - self._now[name] for name in ring}
        step = self._rules.step
        wishes = {name: min(step, missing[name]) for name in wanting if missing[name] > 0}
        extra = {name: min(step, -missing[name]) for name in ring if missing[name] < 0 and name not in self._reasons}
        amount = min(sum(wishes.values()), sum(extra.values()))
        self._take(_split(amount, extra), "Gave some of what it had beyond its own: others want as much.")
        self._put(_split(amount, wishes), "Grew by what others had beyond their own.")

    def shrink(self) -> None:
        """Shrink shares that use hardly any of what they have, towards their use."""
        for name, one in self._states.items():
            if self._patient(one.lowest) and (spare := min(self._rules.step, self._spare(name))):
                self._take({name: spare}, "Shrank: it uses little of it.")

    def outcome(self, before: Mapping[str, ElasticState]) -> Adjustment:
        """Return the result. A reason stays until there is another; "nothing is free" is said as long as it is so."""
        after, changes = {}, {}
        for name, one in self._states.items():
            reason = self._reasons.get(name, one.reason.removesuffix(_NOTHING_FREE).rstrip())
            reason = f"{reason} {_NOTHING_FREE}".lstrip() if name in self._short else reason
            after[name] = replace(one, effective=self._now[name], reason=reason)
            was = before.get(name, one)
            if was.effective != self._now[name] or (reason and reason != was.reason):
                changes[name] = MilliChange(was.effective, self._now[name], reason)
        return Adjustment(after, changes)

    def _patient(self, passes: int) -> bool:
        return passes >= self._rules.patience

    def _spare(self, name: str) -> int:
        """Return what a share can spare: its use is below ``give`` of what it has, and at most that of the rest."""
        if name in self._reasons:
            return 0
        one = self._states[name]
        keeps = max(1, ceil(one.peak / self._rules.give), ceil(self._rules.floor * one.allocated))
        return max(0, self._now[name] - keeps)

    def _take(self, amounts: Mapping[str, int], words: str) -> None:
        self._put({name: -amount for name, amount in amounts.items()}, words)

    def _put(self, amounts: Mapping[str, int], words: str) -> None:
        for name, amount in amounts.items():
            if amount:
                self._now[name] += amount
                self._reasons[name] = words


def _split(amount: int, parts: Mapping[str, int]) -> dict[str, int]:
    """Split ``amount`` in proportion to ``parts``, to the unit; none exceeds its part unless ``amount`` exceeds all."""
    whole = sum(parts.values())
    if not whole or not amount:
        return {}
    found = {name: amount * part // whole for name, part in parts.items()}
    rest = sorted(parts, key=lambda name: (-(amount * parts[name] % whole), name))
    for name in rest[: amount - sum(found.values())]:
        found[name] += 1
    return found
