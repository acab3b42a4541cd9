"""Explanations of an owner's limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.effective import applies, effective
from jupyter_gpu.model.limits.explain import ATTRIBUTES, explain
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.source import SourceKind

from .strategies import limit_sets, owners
from .test_effective import everyone, group, user

ANN = Owner("User", "ann", "jhub")


@given(owners, limit_sets, st.sampled_from(sorted(ATTRIBUTES)))
def test_explanation_agrees_with_what_holds(owner: Owner, limits: list[Limit], field: str) -> None:
    """Every limit that applies is explained, and the one that holds is that of the effective limits, if any."""
    attribute, write = ATTRIBUTES[field]
    steps = explain(owner, limits, field)
    assert {step.limit.object_name for step in steps} == {
        limit.object_name for limit in limits if applies(limit, owner)
    }
    found = getattr(effective(owner, limits), attribute)
    holding = [step for step in steps if step.holds]
    if found.source.kind is SourceKind.UNSET:
        assert holding == []
    else:
        (step,) = holding
        assert step.value == write(found.value) or "cut to the maximum" in step.reason


def reasons(field: str, *limits: Limit) -> dict[str, str]:
    """The reasons by the objects' names."""
    return {step.limit.object_name: step.reason for step in explain(ANN, limits, field)}


def test_explanation_says_why() -> None:
    """Each limit says why it does or does not hold, the ones that count first before."""
    limits = [
        everyone("Cap", max=3000),
        everyone("Default", max=1000),
        group("vision", "ann", max=2000),
        group("ml", "ann", max=4000),
        group("guests", "ann", weight=1),
        group("other", "bob", max=9000),
    ]
    assert reasons("max", *limits) == {
        "group-guests-": "It does not set this.",
        "group-ml-": "It is more than the cap allows.",
        "group-vision-": "It allows as much as group ml, or less, and the largest of the groups counts.",
        "default": "It counts only where nothing is set for group ml.",
        "cap": "This holds.",
    }
    assert next(iter(reasons("max", *limits))) == "group-guests-"
    assert reasons("max", *limits[1:])["group-ml-"] == "This holds."
    assert reasons("max", everyone("Cap", max=9000), *limits[1:])["cap"] == "It allows as much as group ml, or more."
    assert reasons("max", *limits, user(max=0))["group-ml-"] == "It counts only where nothing is set for user ann."


def test_explanation_of_one_subject() -> None:
    """Among several limits for one subject the one that counts is named."""
    mirrored = group("ml", "ann", max=8000, managed_by=HUB_PROPERTIES, object_name="mirrored")
    found = reasons("max", mirrored, group("ml", "ann", max=2000))
    assert found["mirrored"] == "Another limit for group ml counts in its place: group-ml-."


@pytest.mark.parametrize(
    ("limits", "name", "reason"),
    [
        ([user(guaranteed=2000), group("ml", "ann", max=1000)], "user-ann-", "cut to the maximum of group ml: 1."),
        ([everyone("Cap", guaranteed=500)], "cap", "It allows as much as what holds where no limit is set, or more."),
        (
            [read_limit({"metadata": {"name": "x"}, "spec": {"subject": {"kind": "Default"}, "guaranteed": "x"}})],
            "x",
            "This holds. It cannot be read: it is the least that was meant.",
        ),
    ],
)
def test_explanation_of_a_guarantee(limits: list[Limit], name: str, reason: str) -> None:
    """A guarantee may be cut to the maximum, lie below the cap, or not be readable."""
    assert reasons("guaranteed", *limits)[name].endswith(reason)


def test_explanation_as_json() -> None:
    """A step has the value as it is written in the spec."""
    (step,) = explain(ANN, [Limit(Subject(SubjectKind.DEFAULT), grace=600, object_name="default")], "grace")
    assert json.loads(json.dumps(step.to_json())) == {
        "object": "default",
        "subject": {"kind": "Default"},
        "value": "10m",
        "holds": True,
        "reason": "This holds.",
    }
