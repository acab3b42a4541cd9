"""Conditions of limits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from jupyter_gpu.model.limits.conflicts import conditions, conflicts
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.read_limit import read_limit

from .strategies import limit_sets

ANN = Limit(Subject(SubjectKind.USER, "ann", "jhub"), max=1000, object_name="a")


def test_limits_of_one_subject_conflict() -> None:
    """Two limits for one subject are named to each other; those of another hub are not."""
    limits = [
        ANN,
        replace(ANN, object_name="b"),
        replace(ANN, subject=Subject(SubjectKind.USER, "ann"), object_name="c"),
    ]
    assert conflicts(limits) == {ANN.subject: (limits[0], limits[1])}
    found = conditions(limits)
    assert set(found) == {"a", "b"}
    assert found["a"][0].to_json() == {
        "type": "Conflicting",
        "status": "True",
        "reason": "SameSubject",
        "message": "2 limits are about user ann of hub jhub: this one and b. Of each field the smaller value holds. "
        "Keep one of them.",
    }


def test_many_limits_of_one_subject_are_counted() -> None:
    """A message names a few of many."""
    limits = [Limit(Subject(SubjectKind.CAP), object_name=name) for name in "abcdef"]
    message = conditions(limits)["f"][0].message
    assert message.startswith("6 limits are about the cap: this one and a, b, c and 2 more.")
    assert "this one and a and b." in conditions([limits[0], limits[1], limits[2]])["c"][0].message


def test_written_limit_overrides_properties() -> None:
    """Mirrored properties do not conflict with a written limit, they yield to it and say so."""
    written = Limit(Subject(SubjectKind.GROUP, "ml", "jhub"), object_name="written")
    mirrored = replace(written, managed_by=HUB_PROPERTIES, object_name="mirrored")
    assert not conflicts([written, mirrored])
    (condition,) = conditions([written, mirrored])["mirrored"]
    assert (condition.type, condition.reason) == ("Overridden", "WrittenLimit")
    assert condition.message.startswith("A limit is written for group ml of hub jhub")
    assert conditions([mirrored]) == {}


def test_problem_is_a_condition() -> None:
    """The limit itself says which of its parts cannot be read, and what follows from it."""

    def message(spec: dict[str, object]) -> str:
        (condition,) = conditions([read_limit({"metadata": {"name": "x"}, "spec": spec})])["x"]
        assert condition.type == "Unreadable"
        return condition.message

    subject = {"kind": "Cap"}
    assert message({"subject": subject, "max": "x"}).endswith("counts as the least that it could mean.")
    assert message({}).startswith("The field 'subject' is missing")
    assert message({"subject": subject, "colour": "red"}).endswith("and ignores them. Correct it.")


@given(limit_sets)
def test_conditions_are_of_limits_that_are_there(limits: list[Limit]) -> None:
    """Every conflict is on each of its limits, and no other limit has one."""
    sharing = {limit.object_name for same in conflicts(limits).values() for limit in same}
    told = {name for name, items in conditions(limits).items() if any(item.type == "Conflicting" for item in items)}
    assert told == sharing
