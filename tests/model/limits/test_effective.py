"""Effective limits, compared with a reference that is written from the rules and knows no chains."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import not_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import UNLIMITED, amount_key, model_key
from jupyter_gpu.model.limits.effective import EffectiveLimits, TimeLimits, applies, effective
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.source import Source, Sourced, SourceKind
from jupyter_gpu.model.limits.times import Budget, BudgetWindow, Hours

from .strategies import amounts, limit_sets, owners

pytestmark = pytest.mark.uncounted(after=25)

ANN = Owner("User", "ann", "jhub")
Key = Callable[[Any], Any]
SIMPLE: dict[str, Key] = {
    "max": amount_key,
    "guaranteed": int,
    "weight": int,
    "priority_max": int,
    "memory": amount_key,
    "idle_timeout": amount_key,
    "remote": int,
    "lendable": not_,
    "grace": int,
}
"""Fields that are one value, with the key that sorts them, the most generous last."""


def user(name: str = "ann", hub: str = "", **values: Any) -> Limit:
    return Limit(Subject(SubjectKind.USER, name, hub), object_name=f"user-{name}-{hub}", **values)


def group(name: str, *members: str, hub: str = "", **values: Any) -> Limit:
    subject = Subject(SubjectKind.GROUP, name, hub)
    return Limit(subject, members=frozenset(members), **{"object_name": f"group-{name}-{hub}", **values})


def everyone(kind: str, **values: Any) -> Limit:
    return Limit(Subject(SubjectKind(kind)), object_name=kind.lower(), **values)


def rank(limit: Limit, owner: Owner) -> tuple[int, int, int] | None:
    """The precedence of limits for an owner: own, groups, default; written, mirrored; of the hub, of all."""
    subject = limit.subject
    assert subject
    mirrored, general = limit.managed_by == HUB_PROPERTIES, not subject.hub
    if subject.hub and subject.hub != owner.hub:
        return None
    own = "User" if owner.kind == "User" else "Namespace"
    if subject.kind.value == own and subject.name == owner.name:
        return (0, mirrored, general)
    if subject.kind is SubjectKind.GROUP and owner.kind == "User" and owner.name in limit.members:
        return (1, mirrored, general)
    return (2, 0, 0) if subject.kind is SubjectKind.DEFAULT else None


def reference(owner: Owner, limits: Sequence[Limit], get: Callable[[Limit], Any], key: Key, unset: Any) -> Any:
    """The value of one field, by the rules as they are said."""
    found = {limit.object_name: (rank(limit, owner), get(limit)) for limit in limits}
    value = unset
    for level in range(3):
        of_names = []
        names = {limit.subject.name for limit in limits if limit.subject}
        for name in sorted(names):
            here = [found[limit.object_name] for limit in limits if limit.subject and limit.subject.name == name]
            ranked = [(place, value) for place, value in here if place and place[0] == level and value is not None]
            if ranked:
                first = min(place for place, _ in ranked)
                of_names.append(min((value for place, value in ranked if place == first), key=key))
        if of_names:
            value = max(of_names, key=key)
            break
    caps = [get(limit) for limit in limits if limit.subject and limit.subject.kind is SubjectKind.CAP]
    return min([value, *(cap for cap in caps if cap is not None)], key=key)


@given(owners, limit_sets)
def test_effective_is_what_the_rules_say(owner: Owner, limits: list[Limit]) -> None:
    """Each field is the user's, else the largest of the groups, else the default, and at most the cap."""
    found, unset = effective(owner, limits), EffectiveLimits()
    wanted = {
        name: reference(owner, limits, lambda limit, name=name: getattr(limit, name), key, getattr(unset, name).value)  # type: ignore[misc]
        for name, key in SIMPLE.items()
    }
    if wanted["max"] is not UNLIMITED:
        wanted["guaranteed"] = min(wanted["guaranteed"], wanted["max"])
    assert {name: getattr(found, name).value for name in SIMPLE} == wanted


@given(owners, limit_sets)
def test_models_are_fields_of_their_own(owner: Owner, limits: list[Limit]) -> None:
    """Each model that counts for the owner follows the same rules, however it is spelt."""
    found = {model_key(model): value.value for model, value in effective(owner, limits).models.items()}
    mine = [limit for limit in limits if applies(limit, owner)]
    assert set(found) == {model_key(model) for limit in mine for model in limit.models}
    for key, value in found.items():

        def get(limit: Limit, key: str = key) -> Any:
            values = [amount for model, amount in limit.models.items() if model_key(model) == key]
            return min(values, key=amount_key, default=None)

        assert value == reference(owner, limits, get, amount_key, UNLIMITED)


@given(owners, limit_sets, st.randoms(use_true_random=False))
def test_order_of_the_objects_does_not_matter(owner: Owner, limits: list[Limit], random: Any) -> None:
    """Values and sources are the same in whatever order the API server lists the objects."""
    other = list(limits)
    random.shuffle(other)
    assert effective(owner, other) == effective(owner, limits)


@given(owners, limit_sets)
def test_cap_always_holds(owner: Owner, limits: list[Limit]) -> None:
    """No field is more than the cap's, and the cap's budgets and hours hold besides."""
    found = effective(owner, limits)
    for cap in limits:
        if cap.subject and cap.subject.kind is SubjectKind.CAP:
            for name, key in SIMPLE.items():
                if (most := getattr(cap, name)) is not None:
                    assert key(getattr(found, name).value) <= key(most)
            assert {item.value for item in found.hours.cap} >= set(cap.hours or ())
            assert {item.value for item in found.budget.cap} >= ({cap.budget} if cap.budget else set())


@given(limit_sets, st.sampled_from(["ml", "vision", "new"]), amounts, st.integers(0, 3600))
def test_joining_a_group_never_lowers_what_groups_set(limits: list[Limit], name: str, most: Any, grace: int) -> None:
    """A field that some group of the user sets is at least as large once the user joins another group as well."""
    new = group(name, "ann", max=most, grace=grace, object_name="new")
    joined = [limit for limit in limits if not (limit.subject and limit.subject.name == name)]
    before, after = effective(ANN, joined), effective(ANN, [*joined, new])
    for field in ("max", "grace"):
        mine = [limit for limit in joined if applies(limit, ANN) and getattr(limit, field) is not None]
        if any(limit.subject and limit.subject.kind in (SubjectKind.USER, SubjectKind.GROUP) for limit in mine):
            assert SIMPLE[field](getattr(after, field).value) >= SIMPLE[field](getattr(before, field).value)


@given(owners, limit_sets, st.data())
def test_a_second_limit_of_a_subject_never_raises(owner: Owner, limits: list[Limit], data: st.DataObject) -> None:
    """If two objects have one subject, each field has the smaller value: a twin can only lower."""
    first = [limit for limit in limits if not limit.managed_by and limit.max is not None]
    if first:
        twin = replace(data.draw(st.sampled_from(first)), object_name="twin", max=data.draw(amounts))
        was, now = effective(owner, limits).max.value, effective(owner, [*limits, twin]).max.value
        assert amount_key(now) <= amount_key(was)


@given(
    limit_sets,
    st.sampled_from(["max", "guaranteed", "memory", "weight", "grace", "models"]),
    st.sampled_from(SubjectKind),
)
def test_unreadable_limit_is_never_unlimited(limits: list[Limit], name: str, kind: SubjectKind) -> None:
    """A value that cannot be read counts as set, as the least: it falls back to nothing larger."""
    named = {"name": "ann"} if kind in (SubjectKind.USER, SubjectKind.NAMESPACE) else {}
    subject = {"kind": kind.value, **({"name": "ml"} if kind is SubjectKind.GROUP else named)}
    bad = read_limit(
        {"metadata": {"name": "bad"}, "spec": {"subject": subject, name: "???"}, "status": {"members": ["ann"]}}
    )
    assert bad.problem
    owner = Owner("Namespace", "ann") if kind is SubjectKind.NAMESPACE else ANN
    alone = effective(owner, [bad])
    field = "max" if name == "models" else name
    assert getattr(alone, field).value == (1 if name == "weight" else 0)
    if field in ("max", "memory", "grace"):  # of the others, a cap's least is what holds without it
        assert (getattr(alone, field).source.unreadable, alone.remote.source.unreadable) == (True, False)
    if kind is SubjectKind.CAP:
        assert getattr(effective(owner, [*limits, bad]), field).value == (1 if name == "weight" else 0)


def test_three_words_are_three_values() -> None:
    """Inherited, nothing and unlimited lead to three results."""
    default = everyone("Default", max=1000)
    assert [effective(ANN, [default, user(max=most)]).max.value for most in (None, 0, UNLIMITED)] == [
        1000,
        0,
        UNLIMITED,
    ]
    cap = everyone("Cap", max=3000)
    assert effective(ANN, [default, cap, user(max=UNLIMITED)]).max == Sourced(
        3000, Source(SourceKind.CAP, object="cap")
    )


def test_source_of_each_field_is_its_own() -> None:
    """Fields of one owner come from different limits, and each says from which."""
    limits = [
        everyone("Default", max=1000, grace=60),
        everyone("Cap", guaranteed=500),
        group("ml", "ann", max=4000, weight=2),
        user(guaranteed=2000),
    ]
    found = effective(ANN, limits)
    assert found.max == Sourced(4000, Source(SourceKind.GROUP, "ml", object="group-ml-"))
    assert found.guaranteed == Sourced(500, Source(SourceKind.CAP, object="cap"))
    assert found.weight.source.name == "ml"
    assert found.grace == Sourced(60, Source(SourceKind.DEFAULT, object="default"))
    assert found.priority_max == Sourced(9)


def test_group_below_the_default_lowers() -> None:
    """The first group that sets a field comes in place of the default, which may be more."""
    limits = [everyone("Default", max=2000), group("guests", "ann", max=1000)]
    assert effective(ANN, limits).max.value == 1000
    assert effective(Owner("User", "bob", "jhub"), limits).max.value == 2000


def test_guaranteed_is_at_most_the_maximum() -> None:
    """A guarantee from one limit is cut to the maximum of another, and says which."""
    found = effective(ANN, [group("ml", "ann", max=1000), user(guaranteed=2000)])
    assert found.guaranteed == found.max


def test_hubs_are_apart() -> None:
    """A limit for one hub says nothing of the ann of another, and comes before a limit for every hub."""
    limits = [user(max=1000), user(hub="jhub", max=3000), group("ml", "ann", hub="lab", max=9000)]
    assert effective(ANN, limits).max.value == 3000
    assert effective(Owner("User", "ann", "lab"), limits).max.value == 1000
    assert effective(Owner("User", "ann", "lab"), limits[1:]).max.value == 9000
    assert effective(Owner("Namespace", "ann"), limits).max == Sourced(UNLIMITED)


def test_group_names_may_come_from_elsewhere() -> None:
    """If the caller knows the groups, their recorded members do not count; a namespace is in no group."""
    limits = [group("ml", "ann", max=4000), group("vision", max=8000)]
    assert effective(ANN, limits, groups=["vision"]).max.value == 8000
    assert effective(ANN, limits, groups=[]).max.value is UNLIMITED
    assert effective(Owner("Namespace", "ann"), limits, groups=["ml"]).max.value is UNLIMITED


def test_written_limit_of_a_group_comes_before_its_properties() -> None:
    """A group's properties count only for fields that no written limit of the group sets."""
    mirrored = group("ml", "ann", max=1000, weight=5, managed_by=HUB_PROPERTIES, object_name="mirrored")
    found = effective(ANN, [mirrored, group("ml", "ann", max=2000)])
    assert (found.max.value, found.weight.value) == (2000, 5)


def test_limit_without_a_subject_is_left_out() -> None:
    """A limit that is about no one changes nothing."""
    assert effective(ANN, [Limit(None, max=0)]) == EffectiveLimits()


def test_budgets_and_hours_of_groups_are_alternatives() -> None:
    """Each group's budgets and hours are an alternative; those of twins hold together; the cap's hold besides."""
    day, month = Budget(1, BudgetWindow.DAY), Budget(2, BudgetWindow.MONTH)
    night = (Hours(0, start=22 * 60, end=6 * 60),)
    limits = [
        group("ml", "ann", budget=day, hours=night),
        group("ml", "ann", budget=month, object_name="twin"),
        group("vision", "ann", budget=day, hours=()),
        everyone("Default", budget=month),
        everyone("Cap", budget=month, hours=night),
    ]
    ml, twin, vision, cap = (replace(limit.source) for limit in (*limits[:3], limits[4]))
    found = effective(ANN, limits)
    assert found.budget == TimeLimits(
        ((Sourced(day, ml), Sourced(month, twin)), (Sourced(day, vision),)), (Sourced(month, cap),)
    )
    assert found.hours == TimeLimits(((Sourced(night[0], ml),), ()), (Sourced(night[0], cap),))
    assert effective(ANN, [everyone("Cap", hours=night)]).hours.alternatives == ()


def test_defaults_are_those_of_no_limits() -> None:
    """Without limits everything is allowed, and every value says that no limit sets it."""
    found = effective(ANN, [])
    assert found == EffectiveLimits()
    values = [getattr(found, field.name) for field in fields(found)]
    assert {value.source.kind for value in values if isinstance(value, Sourced)} == {SourceKind.UNSET}


@pytest.mark.parametrize("order", list(itertools.permutations(["user", "group", "Default"])))
def test_levels_are_in_order(order: tuple[str, ...]) -> None:
    """The user's limit comes first, then the group's, then the default, wherever they stand."""
    made = {"user": user(max=1), "group": group("ml", "ann", max=2), "Default": everyone("Default", max=3)}
    limits = [made[name] for name in order]
    assert effective(ANN, limits).max.value == 1
    assert effective(ANN, [limit for limit in limits if limit is not made["user"]]).max.value == 2


def test_group_of_every_hub_has_the_members_that_each_hub_told() -> None:
    """Another hub's ann is not meant; members that no hub told count for each hub, as long as none told its own."""
    body = {"metadata": {"name": "g"}, "spec": {"subject": {"kind": "Group", "name": "ml"}, "max": 4}}
    status = {"members": ["eve"], "membersOfHubs": {"one": ["ann", ""], "two": ["bob"], "three": "no list"}}
    found = read_limit({**body, "status": status})
    assert found.members == {"ann", "bob"}
    assert found.problem.count("'members' in the status") == 2
    users = [Owner("User", name, hub) for name in ("ann", "bob", "eve") for hub in ("one", "two", "three", "four")]
    members = [Owner("User", "ann", "one"), Owner("User", "bob", "two")]
    assert [user for user in users if applies(found, user)] == members
    shared = read_limit({**body, "status": {"members": ["eve"]}})
    assert [user for user in users if applies(shared, user)] == [user for user in users if user.name == "eve"]
