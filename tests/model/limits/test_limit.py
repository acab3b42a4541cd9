"""Reading and writing of a limit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.changes import CHANGES, LimitChange
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, MANAGED_BY, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.read_limit import NOTHING, changes_of, read_limit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.limits.times import Budget, BudgetWindow, Hours

from .. import strategies as any_
from .strategies import limits_of, odd_names, subjects

ANN: dict[str, Any] = {"kind": "User", "name": "ann", "hub": "jhub"}
CHANGE = {"by": "root", "at": "2026-05-03T10:00:00Z", "from": {}, "to": {"max": 2}}
FULL: dict[str, Any] = {
    "subject": ANN,
    "max": 2,
    "guaranteed": "500m",
    "weight": 3,
    "priority": {"max": 5},
    "models": [{"model": "A100", "max": 1}, {"model": "H100", "max": "unlimited"}],
    "memory": "40Gi",
    "idleTimeout": "4h",
    "budget": {"gpuHours": 100, "window": "Month"},
    "hours": [{"days": ["Mon", "Tue"], "from": "08:00", "to": "18:00", "max": 1}],
    "remote": True,
    "lendable": True,
    "grace": "10m",
}


def obj(spec: Any, **meta: Any) -> dict[str, Any]:
    """An object with this spec."""
    return {"metadata": {"name": "user-ann-0123", **meta}, "spec": spec}


def test_limit_reads_every_field() -> None:
    """Each field of the spec has its value, in the units of the model."""
    limit = read_limit(obj(FULL, annotations={CHANGES: json.dumps([CHANGE])}))
    assert limit == Limit(
        subject=Subject(SubjectKind.USER, "ann", "jhub"),
        max=2000,
        guaranteed=500,
        weight=3,
        priority_max=5,
        models={"A100": 1000, "H100": UNLIMITED},
        memory=40 * 2**30,
        idle_timeout=4 * 3600,
        budget=Budget(100 * 3_600_000, BudgetWindow.MONTH),
        hours=(Hours(1000, frozenset({0, 1}), 8 * 60, 18 * 60),),
        remote=True,
        lendable=True,
        grace=600,
        changed=LimitChange("root", 1777802400, {}, {"max": 2}),
        object_name="user-ann-0123",
    )
    assert limit.source == Source(SourceKind.USER, "ann", "root", 1777802400, "user-ann-0123")
    assert not limit.locked


def test_absent_zero_and_unlimited_are_three() -> None:
    """Absent fields are inherited, 0 is nothing, unlimited is no limit; null is absent."""
    words = {word: read_limit(obj({"subject": ANN, "max": word, "memory": word})) for word in (None, 0, "unlimited")}
    assert [limit.max for limit in words.values()] == [None, 0, UNLIMITED]
    assert [limit.memory for limit in words.values()] == [None, 0, UNLIMITED]
    assert not any(limit.problem for limit in words.values())
    free = read_limit(obj({"subject": ANN, "idleTimeout": "unlimited", "budget": "unlimited", "hours": []}))
    assert (free.idle_timeout, free.budget, free.hours) == (UNLIMITED, Budget(UNLIMITED, BudgetWindow.MONTH), ())


@given(limits_of(subjects(odd_names, st.just("") | odd_names)))
def test_spec_survives_a_round_trip(limit: Limit) -> None:
    """The spec that a limit writes is read as the same limit."""
    status = {"status": {"members": sorted(limit.members)}}
    again = read_limit({**obj(json.loads(json.dumps(limit.spec()))), **status})
    assert replace(again, object_name="", changed=None) == replace(limit, object_name="", changed=None, managed_by="")


FIELDS = st.sampled_from(
    (*Limit.FIELDS, "subject", "kind", "name", "hub", "from", "to", "days", "window", "gpuHours", "model")
)
nearly = st.dictionaries(
    FIELDS, any_.json_values | st.dictionaries(FIELDS, any_.scalars) | st.lists(any_.scalars), max_size=6
)


@given(
    any_.json_values | st.fixed_dictionaries({"spec": nearly | any_.json_values, "metadata": nearly, "status": nearly})
)
def test_any_object_is_read(value: Any) -> None:
    """Reading never raises, and what is read can be written again."""
    json.dumps(read_limit(value).spec())
    assert isinstance(changes_of(value), tuple)


@pytest.mark.parametrize(
    ("key", "value", "field", "least", "says"),
    [
        ("max", "many", "max", 0, "'max' can't be read: 'many' is not an amount of GPUs"),
        ("max", -1, "max", 0, "is negative"),
        ("guaranteed", "unlimited", "guaranteed", 0, "a guaranteed amount cannot be unlimited"),
        ("weight", 0, "weight", 1, "'weight' must be a whole number from 1 to 1000"),
        ("priority", 5, "priority_max", 0, "priority must be a JSON object"),
        ("priority", {"max": 10}, "priority_max", 0, "'max' must be a whole number from 0 to 9"),
        ("priority", {"max": 1, "min": 0}, "priority_max", 0, "The field 'min' is unknown"),
        ("memory", "much", "memory", 0, "is not an amount of memory"),
        ("idleTimeout", "1s", "idle_timeout", 60, "must be from 1m"),
        ("budget", {"gpuHours": 1}, "budget", Budget(0, BudgetWindow.MONTH), "'window' is missing"),
        (
            "budget",
            {"gpuHours": -1, "window": "Day"},
            "budget",
            Budget(0, BudgetWindow.MONTH),
            "not a number of GPU-hours",
        ),
        (
            "budget",
            {"gpuHours": 1, "window": "Year"},
            "budget",
            Budget(0, BudgetWindow.MONTH),
            "must be one of Day, Week, Month",
        ),
        ("hours", {}, "hours", NOTHING, "must be a list"),
        ("hours", [{"from": "8", "to": "9", "max": 1}], "hours", NOTHING, "must be a time of day such as 08:00"),
        ("hours", [{"from": "24:00", "to": "09:00", "max": 1}], "hours", NOTHING, "'from' must be from 00:00 to 23:59"),
        ("hours", [{"from": "08:00", "to": "24:01", "max": 1}], "hours", NOTHING, "'to' must be a time of day"),
        ("hours", [{"from": "08:00", "to": "09:00"}], "hours", NOTHING, "'max' is missing"),
        ("hours", [{"from": "08:00", "to": "08:00", "max": 1}], "hours", NOTHING, "'from' and 'to' must differ"),
        ("hours", [{"from": "08:00", "to": "09:00", "max": 1, "days": []}], "hours", NOTHING, "one day or more"),
        ("hours", [{"from": "08:00", "to": "09:00", "max": 1, "days": ["Mon", "Mon"]}], "hours", NOTHING, "each once"),
        ("lendable", "yes", "lendable", True, "'lendable' must be true or false"),
        ("remote", "yes", "remote", False, "'remote' must be true or false"),
        ("grace", "soon", "grace", 0, "is not a duration"),
    ],
)
def test_unreadable_field_counts_as_the_least(key: str, value: Any, field: str, least: Any, says: str) -> None:
    """An unreadable field counts as the least that it could mean; a sentence says so, and other fields stand."""
    limit = read_limit(obj({**FULL, "guaranteed": 0, key: value}))
    assert getattr(limit, field) == least
    assert says in limit.problem
    assert limit.unread == {key}
    assert limit.weight == (1 if key == "weight" else 3)


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (5, "must be a list"),
        ([{"model": "A100"}], "'max' is missing"),
        ([{"model": "A100", "max": "x"}], "'max' can't be read"),
        ([{"model": "--", "max": 1}], "has no word of a GPU's model"),
        ([{"model": "A100", "max": 1, "min": 1}], "The field 'min' is unknown"),
    ],
)
def test_unreadable_models_leave_nothing(models: Any, says: str) -> None:
    """Limits of models that are not known could leave nothing of any model."""
    limit = read_limit(obj({"subject": ANN, "max": 4, "models": models}))
    assert (limit.max, limit.models) == (0, {})
    assert says in limit.problem
    assert limit.unread == {"max", "models"}


def test_model_named_twice_has_the_smaller_amount() -> None:
    """Two entries for one model: the smaller holds."""
    models = [{"model": "A100", "max": 1}, {"model": "A100", "max": 2}]
    assert read_limit(obj({"subject": ANN, "models": models})).models == {"A100": 1000}


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (None, "'subject' is missing"),
        ("ann", "subject must be a JSON object"),
        ({"kind": "Team", "name": "x"}, "'kind' must be one of User, Group, Namespace, Default, Cap"),
        ({"kind": "User"}, "A subject of kind User needs a 'name'"),
        ({"kind": "Group", "name": ""}, "'name' must be text"),
        ({"kind": "User", "name": "x" * 256}, "'name' must be text of 1 to 255"),
        ({"kind": "Cap", "name": "x"}, "is about everyone, and has no 'name'"),
        ({"kind": "Default", "hub": "x"}, "belongs to no hub"),
        ({"kind": "Namespace", "name": "x", "hub": "x"}, "belongs to no hub"),
        ({"kind": "User", "name": "x", "uid": 1}, "The field 'uid' is unknown"),
    ],
)
def test_unreadable_subject_is_no_one(subject: Any, says: str) -> None:
    """A limit without a subject limits no one, and says so."""
    spec = {"max": 1} if subject is None else {"subject": subject, "max": 1}
    limit = read_limit(obj(spec))
    assert limit.subject is None
    assert limit.source == Source(object="user-ann-0123")
    assert says in limit.problem
    assert "So this limit is about no one." in limit.problem


def test_subject_has_any_name() -> None:
    """A name is read as it is, with letters that are not shown: another reading would be of someone else."""
    name = "a\u202en\x00n"
    limit = read_limit(obj({"subject": {"kind": "User", "name": name, "hub": name}, "max": 1}))
    assert limit.subject == Subject(SubjectKind.USER, name, name)
    assert not limit.problem


def test_guaranteed_is_at_most_the_maximum() -> None:
    """A guarantee above the maximum counts as the maximum, and a sentence says so."""
    limit = read_limit(obj({"subject": ANN, "max": 1, "guaranteed": 2}))
    assert (limit.max, limit.guaranteed) == (1000, 1000)
    assert "'guaranteed' is more than 'max'" in limit.problem


def test_fields_of_a_newer_version_are_kept() -> None:
    """Fields that are not known are written again, and a sentence says that they do nothing."""
    limit = read_limit(obj({"subject": ANN, "colour": "red"}))
    assert limit.spec() == {"subject": ANN, "colour": "red"}
    assert limit.problem == "This version does not know the fields 'colour', and ignores them."


def test_members_are_read_one_by_one() -> None:
    """A name that cannot be read drops no other member; only groups have members."""
    group = {"spec": {"subject": {"kind": "Group", "name": "ml"}}, "status": {"members": ["ann", 5, "", "bob"]}}
    assert read_limit(group).members == {"ann", "bob"}
    assert "'members' in the status must be a list of names" in read_limit(group).problem
    assert read_limit({**group, "status": {"members": "ann"}}).members == frozenset()
    assert read_limit({**group, "status": {"members": "ann"}}).problem
    assert not read_limit({**group, "status": {}}).problem
    assert read_limit({**group, "spec": {"subject": ANN}}).members == frozenset()


@pytest.mark.parametrize(
    ("meta", "tool"),
    [
        ({}, ""),
        ({"labels": {MANAGED_BY: "Helm"}}, "Helm"),
        ({"labels": {MANAGED_BY: HUB_PROPERTIES}}, HUB_PROPERTIES),
        ({"labels": {MANAGED_BY: "jupyter-gpu-hub"}}, ""),
        ({"labels": {MANAGED_BY: 5}}, ""),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "Argo CD"),
        ({"labels": {"argocd.argoproj.io/instance": "x"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "x", MANAGED_BY: "Helm"}}, "Flux"),
        ({"labels": "x", "annotations": 5}, ""),
    ],
)
def test_limit_names_the_tool_that_keeps_it(meta: dict[str, Any], tool: str) -> None:
    """An object of Helm, Argo CD or Flux is locked, and its source names the tool."""
    limit = read_limit(obj(FULL, **meta))
    assert limit.managed_by == tool
    assert limit.locked == bool(tool)
    assert limit.source.by == tool


def test_changes_that_cannot_be_read_are_none() -> None:
    """A broken record of changes does not touch the limit."""
    broken = obj(FULL, annotations={CHANGES: "["})
    assert changes_of(broken) == ()
    assert read_limit(broken).changed is None
    assert not read_limit(broken).problem
