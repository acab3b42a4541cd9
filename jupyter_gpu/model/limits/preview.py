"""A preview of changed limits: which owners would have more than they may, and how much more others could get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from types import MappingProxyType
from typing import Any

from ..feasible import named
from ..message import Message, gettext, sentences
from ..quantity import format_milli, gpus
from .account import Account
from .amount import Amount, Unlimited, format_amount, format_duration, model_key
from .calendar import LimitsInForce, in_force
from .effective import EffectiveLimits, TimeLimits
from .effective_json import sourced_json
from .index import LimitIndex
from .limit import Limit
from .owner import Owner
from .source import Sourced

NO_MODELS: Mapping[Owner, Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OwnerEffect:
    """The effect of a change on one owner; amounts in milli."""

    owner: Owner
    used: int
    before: Sourced[Amount]
    """The maximum that is in force now."""
    after: Sourced[Amount]
    """The maximum that would be in force."""
    over: int
    """More than the owner would be allowed, by all limits together."""
    lost: int
    """The part of ``over`` that the change causes."""
    gained: int
    """More that the owner, who waits for it, could get if it is free."""
    grace: int
    """Seconds until what is above would be taken back."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, with amounts as quantities."""
        return {
            "owner": {"kind": self.owner.kind, "name": self.owner.name, "hub": self.owner.hub},
            "used": format_milli(self.used),
            "before": sourced_json(self.before, format_amount),
            "after": sourced_json(self.after, format_amount),
            "over": format_milli(self.over),
            "lost": format_milli(self.lost),
            "gained": format_milli(self.gained),
            "grace": format_duration(self.grace),
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """The effects of a change, the largest first."""

    losers: tuple[OwnerEffect, ...]
    """Owners who would have more than they may because of the change, those who lose most first."""
    winners: tuple[OwnerEffect, ...]
    """Owners who wait and could get more."""
    guaranteed: int
    """Milli that would be guaranteed to all known owners together."""

    def sentence(self, capacity: int | None = None) -> str:
        """Return ``3 users will lose 5 GPUs in 10 minutes.``, and more where there is more to say.

        ``capacity``: milli of all GPUs; a guarantee of more than these is worth a warning, and no error.
        """
        parts = [self._losses()]
        if self.winners:
            gained = gpus(sum(effect.gained for effect in self.winners))
            parts.append(
                gettext("%1 who waits can get %2 more when they are free.", _counted(self.winners), gained)
                if len(self.winners) == 1
                else gettext("%1 who wait can get %2 more when they are free.", _counted(self.winners), gained)
            )
        if capacity is not None and self.guaranteed > capacity:
            parts.append(
                gettext(
                    "All guarantees together are %1, more than the %2 that there are: they cannot all be kept.",
                    gpus(self.guaranteed),
                    gpus(capacity),
                )
            )
        return sentences(*parts)

    def _losses(self) -> Message:
        if not self.losers:
            return gettext("No one loses GPUs.")
        lost = gpus(sum(effect.lost for effect in self.losers))
        first, last = (choose(effect.grace for effect in self.losers) for choose in (min, max))
        if first == last:
            return gettext("%1 will lose %2 %3.", _counted(self.losers), lost, _later(first))
        values = _counted(self.losers), lost, _later(first), _later(last)
        return gettext("%1 will lose %2, the first %3, the last %4.", *values)

    def to_json(self, capacity: int | None = None) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "sentence": self.sentence(capacity),
            "losers": [effect.to_json() for effect in self.losers],
            "winners": [effect.to_json() for effect in self.winners],
            "guaranteed": format_milli(self.guaranteed),
        }


def preview(
    before: Iterable[Limit],
    after: Iterable[Limit],
    accounts: Iterable[Account],
    now: float,
    zone: tzinfo,
    *,
    models: Mapping[Owner, Mapping[str, int]] = NO_MODELS,
) -> Preview:
    """Return what would follow at ``now``, in seconds since 1970, if the limits ``before`` became those ``after``.

    Limits that are indexed already are not indexed again. ``accounts``: the owners, with what they hold, wait for and
    have used. ``models``: the milli that each holds of each model of GPU, by its full name; without it, limits of
    models are not foreseen. Limits of memory are not.
    """
    old, new = _Maxima(before, now, zone), _Maxima(after, now, zone)
    losers, winners, guaranteed = [], [], 0
    for account in accounts:
        effect, kept = _effect(account, old, new, models.get(account.owner, {}))
        guaranteed += kept
        if effect.lost:
            losers.append(effect)
        if effect.gained:
            winners.append(effect)
    return Preview(
        tuple(sorted(losers, key=lambda effect: (-effect.lost, effect.owner))),
        tuple(sorted(winners, key=lambda effect: (-effect.gained, effect.owner))),
        guaranteed,
    )


class _Maxima:
    """The maxima at one moment; owners for whom the same limits count share one result, if it has no budget."""

    def __init__(self, limits: Iterable[Limit], now: float, zone: tzinfo) -> None:
        self._index = limits if isinstance(limits, LimitIndex) else LimitIndex(limits)
        self._now, self._zone = now, zone
        self._known: dict[int, LimitsInForce] = {}

    def of(self, account: Account) -> tuple[EffectiveLimits, LimitsInForce]:
        """Return the limits of an owner, and what is in force of them."""
        effective, shared = self._index.once(account.owner)
        if effective.budget != TimeLimits():
            return effective, in_force(effective, self._now, self._zone, account.hours)
        if not shared:
            return effective, in_force(effective, self._now, self._zone, {})
        if id(effective) not in self._known:  # the index keeps it as long as this
            self._known[id(effective)] = in_force(effective, self._now, self._zone, {})
        return effective, self._known[id(effective)]


def _effect(account: Account, old: _Maxima, new: _Maxima, models: Mapping[str, int]) -> tuple[OwnerEffect, int]:
    """Return the effect on one owner, and the milli that would be guaranteed to it."""
    (was, then), (will, soon) = old.of(account), new.of(account)
    over = _over(account.used, models, will, soon)
    effect = OwnerEffect(
        owner=account.owner,
        used=account.used,
        before=then.max,
        after=soon.max,
        over=over,
        lost=max(0, over - _over(account.used, models, was, then)),
        gained=max(0, _room(account, soon) - _room(account, then)),
        grace=will.grace.value,
    )
    return effect, will.guaranteed.value


def _over(used: int, models: Mapping[str, int], effective: EffectiveLimits, now: LimitsInForce) -> int:
    """Return how much is to be given back, first of the models whose limits are named most exactly."""
    held, back = dict(models), 0
    for words in sorted(effective.models, key=lambda words: -len(model_key(words).split())):
        most = effective.models[words].value
        of_these = [model for model in held if named(model, words)]
        if isinstance(most, Unlimited):
            continue
        excess = max(0, sum(held[model] for model in of_these) - most)
        back += excess
        for model in of_these:
            taken = min(excess, held[model])
            held[model] -= taken
            excess -= taken
    most = now.max.value
    return back if isinstance(most, Unlimited) else max(back, used - most)


def _room(account: Account, now: LimitsInForce) -> int:
    """Return how much of what the owner waits for the maximum allows."""
    most = now.max.value
    return account.waiting if isinstance(most, Unlimited) else max(0, min(account.waiting, most - account.used))


def _counted(effects: Iterable[OwnerEffect]) -> str:
    kinds = Counter(effect.owner.kind for effect in effects)
    users, namespaces = kinds["User"], kinds["Namespace"]
    words = []
    if users:
        words.append(gettext("%1 user", users) if users == 1 else gettext("%1 users", users))
    if namespaces:
        words.append(gettext("%1 namespace", namespaces) if namespaces == 1 else gettext("%1 namespaces", namespaces))
    return words[0] if len(words) == 1 else gettext("%1 and %2", *words)


def _later(seconds: int) -> Message:
    """Return ``in 10 minutes``, ``in 1 hour 30 minutes``, ``at once``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes, seconds = minutes // 60, minutes % 60, rest if minutes < 60 else 0
    words = []
    if hours:
        words.append(gettext("%1 hour", hours) if hours == 1 else gettext("%1 hours", hours))
    if minutes:
        words.append(gettext("%1 minute", minutes) if minutes == 1 else gettext("%1 minutes", minutes))
    if seconds:
        words.append(gettext("%1 second", seconds) if seconds == 1 else gettext("%1 seconds", seconds))
    return gettext("in %1", sentences(*words)) if words else gettext("at once")
