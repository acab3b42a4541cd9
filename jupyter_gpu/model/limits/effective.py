"""The effective limits of an owner: each field by itself, from the limit that counts for it.

A field is the one of the user's own limit (or the namespace's); else the largest over the user's groups that set it;
else the one of the default; and never more than the cap. Two limits for one subject: the smaller, field by field.
A limit for one hub comes before a limit for every hub, and a group's written limit before the mirrored properties of
the group.

So joining a group that sets a field never lowers it, with two exceptions. The first group that sets a field comes in
place of the default, which may be more. And a group that sets a larger maximum may set a budget, hours or a limit of a
model, which no other group sets: those are fields of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import not_
from typing import Any, Generic, TypeAlias, TypeVar

from .amount import UNLIMITED, Amount, amount_key, model_key
from .limit import HUB_PROPERTIES, Limit, SubjectKind
from .owner import Owner
from .source import Sourced
from .times import Budget, Hours

T = TypeVar("T")

DEFAULT_GRACE = 600
"""Seconds."""

Tier: TypeAlias = Sequence[Limit]
"""The limits of one subject: normally one."""
Chain: TypeAlias = Sequence[Tier]
"""Tiers of which the first that sets a field counts."""


@dataclass(frozen=True, slots=True)
class TimeLimits(Generic[T]):
    """Budgets, or hours, that hold together: one of the ``alternatives`` and, besides, the ``cap``."""

    alternatives: tuple[tuple[Sourced[T], ...], ...] = ()
    """Those of each group, or of the one limit that counts: the most generous holds at each moment. Empty: none is set.
    All within one of them hold together, as do those of two limits for one subject."""
    cap: tuple[Sourced[T], ...] = ()


_NO_LIMIT: Sourced[Amount] = Sourced(UNLIMITED)
_NONE, _WEIGHT, _HIGHEST, _GRACE = Sourced(0), Sourced(1), Sourced(9), Sourced(DEFAULT_GRACE)
_NO_BUDGET: TimeLimits[Budget] = TimeLimits()
_NO_HOURS: TimeLimits[Hours] = TimeLimits()
_REMOTE, _LENDABLE = Sourced(True), Sourced(False)


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """The limits of one owner, each value with its source. The defaults are those where no limit is set."""

    max: Sourced[Amount] = _NO_LIMIT
    """Milli of GPUs of all the owner's pods together."""
    guaranteed: Sourced[int] = _NONE
    """Milli; at most ``max``."""
    weight: Sourced[int] = _WEIGHT
    priority_max: Sourced[int] = _HIGHEST
    models: Mapping[str, Sourced[Amount]] = field(default_factory=dict, hash=False)
    """Milli by words of a GPU model; a GPU counts for all words that its name contains."""
    memory: Sourced[Amount] = _NO_LIMIT
    """Bytes of GPU memory of all shares together."""
    idle_timeout: Sourced[Amount] = _NO_LIMIT
    """Seconds."""
    budget: TimeLimits[Budget] = _NO_BUDGET
    hours: TimeLimits[Hours] = _NO_HOURS
    remote: Sourced[bool] = _REMOTE
    lendable: Sourced[bool] = _LENDABLE
    """Without a limit that sets it, the owner's pods say it themselves. Not to be lent is more."""
    grace: Sourced[int] = _GRACE
    """Seconds."""


NO_LIMITS = EffectiveLimits()
"""The limits of an owner for whom none is set."""


@dataclass(frozen=True, slots=True)
class _Levels:
    """The limits that apply to one owner, by what they come from."""

    own: Chain
    groups: Sequence[Chain]
    default: Chain
    cap: Chain

    def chains(self) -> Sequence[Sequence[Chain]]:
        """Return the levels in the order in which the first that sets a field counts, without the cap."""
        return ([self.own], self.groups, [self.default])


def effective(owner: Owner, limits: Iterable[Limit], *, groups: Collection[str] | None = None) -> EffectiveLimits:
    """Return the limits of ``owner``.

    ``groups``: the names of the groups that a user is in, where they are known from elsewhere; otherwise those
    groups count whose ``members`` name the user.
    """
    levels = _levels(owner, limits, groups)
    most = _amount(levels, "max", lambda limit: limit.max, amount_key, _NO_LIMIT)
    guaranteed = _amount(levels, "guaranteed", lambda limit: limit.guaranteed, int, _NONE)
    if isinstance(most.value, int) and guaranteed.value > most.value:
        guaranteed = Sourced(most.value, most.source)
    return EffectiveLimits(
        max=most,
        guaranteed=guaranteed,
        weight=_amount(levels, "weight", lambda limit: limit.weight, int, _WEIGHT),
        priority_max=_amount(levels, "priority", lambda limit: limit.priority_max, int, _HIGHEST),
        models=_models(levels),
        memory=_amount(levels, "memory", lambda limit: limit.memory, amount_key, _NO_LIMIT),
        idle_timeout=_amount(levels, "idleTimeout", lambda limit: limit.idle_timeout, amount_key, _NO_LIMIT),
        budget=_combined(levels, "budget", lambda limit: (limit.budget,) if limit.budget else None),
        hours=_combined(levels, "hours", lambda limit: limit.hours),
        remote=_amount(levels, "remote", lambda limit: limit.remote, int, _REMOTE),
        lendable=_amount(levels, "lendable", lambda limit: limit.lendable, not_, _LENDABLE),
        grace=_amount(levels, "grace", lambda limit: limit.grace, int, _GRACE),
    )


def applies(limit: Limit, owner: Owner, groups: Collection[str] | None = None) -> bool:
    """Tell whether ``limit`` is one of those that the effective limits of ``owner`` come from."""
    subject = limit.subject
    if subject is None:
        return False
    if subject.kind in (SubjectKind.DEFAULT, SubjectKind.CAP):
        return True
    if subject.kind is SubjectKind.NAMESPACE:
        return owner == Owner("Namespace", subject.name)
    if owner.kind != "User" or subject.hub not in ("", owner.hub):
        return False
    if subject.kind is SubjectKind.USER:
        return subject.name == owner.name
    if groups is not None:
        return subject.name in groups
    return owner.name in (limit.hub_members.get(owner.hub, ()) if limit.hub_members else limit.members)


def _levels(owner: Owner, limits: Iterable[Limit], groups: Collection[str] | None) -> _Levels:
    found: dict[SubjectKind, dict[str, list[Limit]]] = {kind: {} for kind in SubjectKind}
    for limit in limits:
        if applies(limit, owner, groups) and limit.subject:
            found[limit.subject.kind].setdefault(limit.subject.name, []).append(limit)
    own = [*found[SubjectKind.USER].values(), *found[SubjectKind.NAMESPACE].values()]
    return _Levels(
        own=_chain(own[0] if own else ()),  # an owner has one name
        groups=[_chain(found[SubjectKind.GROUP][name]) for name in sorted(found[SubjectKind.GROUP])],
        default=[found[SubjectKind.DEFAULT].get("", [])],
        cap=[found[SubjectKind.CAP].get("", [])],
    )


def _chain(limits: Iterable[Limit]) -> Chain:
    """Return the limits of one name: written ones before mirrored ones, those of a hub before those of every hub."""
    tiers: dict[tuple[bool, bool], list[Limit]] = {}
    for limit in limits:
        hub = limit.subject.hub if limit.subject else ""
        tiers.setdefault((limit.managed_by == HUB_PROPERTIES, not hub), []).append(limit)
    return [tiers[key] for key in sorted(tiers)]


def _sourced(value: T, limit: Limit, name: str) -> Sourced[T]:
    source = limit.source
    return Sourced(value, replace(source, unreadable=True) if name in limit.unread else source)


def _amount(
    levels: _Levels, name: str, get: Callable[[Limit], T | None], key: Callable[[T], Any], unset: Sourced[T]
) -> Sourced[T]:
    """Return one field; ``key`` sorts its values, the most generous last."""

    def first(chain: Chain) -> Sourced[T] | None:
        for tier in chain:
            values = [_sourced(value, limit, name) for limit in tier if (value := get(limit)) is not None]
            if values:
                return min(values, key=lambda found: (key(found.value), found.source.object))
        return None

    found = unset
    for level in levels.chains():
        if values := [value for chain in level if (value := first(chain))]:
            found = max(values, key=lambda value: key(value.value))  # of equal ones the first group by name
            break
    cap = first(levels.cap)
    return cap if cap and key(cap.value) < key(found.value) else found


def _models(levels: _Levels) -> dict[str, Sourced[Amount]]:
    """Return the limit of each model that any limit names; each is a field by itself."""
    spelt: dict[str, set[str]] = {}
    for level in (*levels.chains(), [levels.cap]):
        for limit in (limit for chain in level for tier in chain for limit in tier):
            for model in limit.models:
                spelt.setdefault(model_key(model), set()).add(model)
    return {min(spelt[key]): _model(levels, spelt[key]) for key in sorted(spelt)}


def _model(levels: _Levels, spellings: Collection[str]) -> Sourced[Amount]:
    def get(limit: Limit) -> Amount | None:
        values = [limit.models[model] for model in spellings if model in limit.models]
        return min(values, key=amount_key, default=None)

    return _amount(levels, "models", get, amount_key, _NO_LIMIT)


def _combined(levels: _Levels, name: str, get: Callable[[Limit], tuple[T, ...] | None]) -> TimeLimits[T]:
    def first(chain: Chain) -> tuple[Sourced[T], ...] | None:
        for tier in chain:
            limits = sorted((limit for limit in tier if get(limit) is not None), key=lambda limit: limit.object_name)
            if limits:
                return tuple(_sourced(item, limit, name) for limit in limits for item in get(limit) or ())
        return None

    cap = first(levels.cap) or ()
    for level in levels.chains():
        if found := tuple(items for chain in level if (items := first(chain)) is not None):
            return TimeLimits(found, cap)
    return TimeLimits((), cap)
