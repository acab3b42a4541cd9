"""One subject's limit with all its fields."""

from __future__ import annotations

from typing import Any

from jupyter_gpu.model.limits.limit import Subject, SubjectKind
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu_hub.rules import limit_rows
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.subject_details import details

from .builders import ANN, HUB, ML, known, mirrored


def told(kind: str, name: str, *limits: KnownLimit, hub: str = HUB) -> dict[str, Any]:
    """Return the JSON about a subject."""
    return details(Subject(SubjectKind(kind), name, hub), limit_rows.rows(limits, (), HUB)).to_json()


def values(effective: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Return each simple field's value and the name of the object that it comes from."""
    return {key: (item["value"], item["source"]["object"]) for key, item in effective.items() if "value" in item}


def test_user_has_the_written_fields_and_inherits_the_others() -> None:
    """Each field has its own source; what would be inherited is told without the user's own limit."""
    own = known(ANN, name="a", max=3)
    body = told("User", "ann", own, known(ML, name="g", members=["ann"], max=2, weight=4))
    assert body["own"]["fields"] == {"max": "3"}
    assert values(body["effective"]) == {"max": ("3", "a"), "weight": (4, "g")}
    assert values(body["inherited"]) == {"max": ("2", "g"), "weight": (4, "g")}


def test_subject_without_a_limit_is_told_as_well() -> None:
    """A new limit can be begun for any name."""
    body = told("User", "zoe", known({"kind": "Default"}, name="d", max=1), known(ANN, name="a", max=3))
    assert (body["own"], body["changed"], body["notes"]) == (None, None, [])
    assert body["object"] == object_name("User", "zoe", HUB)
    assert values(body["effective"]) == values(body["inherited"]) == {"max": ("1", "d")}


def test_group_is_told_for_a_member_of_no_other_group() -> None:
    """Properties of the group are inherited by the limit that is written for it; limits of users do not count."""
    limits = known(ML, name="g", max=4), mirrored(name="m", max=2, weight=3), known(ANN, name="a", max=9)
    body = told("Group", "ml", *limits, known({"kind": "Cap"}, name="c", max=3))
    assert body["own"]["object"] == "g"
    assert values(body["effective"]) == {"max": ("3", "c"), "weight": (3, "m")}
    assert values(body["inherited"]) == {"max": ("2", "m"), "weight": (3, "m")}


def test_group_of_which_only_properties_speak_has_no_limit_of_its_own() -> None:
    """An edit writes a limit beside the properties."""
    body = told("Group", "ml", mirrored(name="m", max=2))
    assert body["own"] is None
    assert values(body["inherited"]) == {"max": ("2", "m")}


def test_default_inherits_nothing_but_the_cap() -> None:
    """Neither users nor groups count."""
    limits = known({"kind": "Default"}, name="d", max=1), known(ML, name="g", max=2), known(ANN, name="a", max=3)
    body = told("Default", "", *limits, hub="")
    assert values(body["effective"]) == {"max": ("1", "d")}
    assert body["inherited"] == {}


def test_cap_is_told_alone() -> None:
    """Nothing is above it, and it inherits nothing."""
    body = told("Cap", "", known({"kind": "Cap"}, name="c", max=6), known({"kind": "Default"}, name="d", max=1), hub="")
    assert values(body["effective"]) == {"max": ("6", "c")}
    assert body["inherited"] == {}


def test_namespace_inherits_the_default() -> None:
    """Its own limit comes first."""
    limits = known({"kind": "Namespace", "name": "batch"}, name="n", max=5), known({"kind": "Default"}, name="d", max=1)
    body = told("Namespace", "batch", *limits, hub="")
    assert (values(body["effective"]), values(body["inherited"])) == ({"max": ("5", "n")}, {"max": ("1", "d")})


def test_of_two_limits_the_one_that_people_may_change_is_edited() -> None:
    """A note says that there are two; the smaller value holds."""
    body = told("User", "ann", known(ANN, name="a", label="Helm", max=1), known(ANN, name="b", max=3))
    assert body["own"]["object"] == "b"
    assert values(body["effective"]) == {"max": ("1", "a")}
    assert any("a" in note and "b" in note for note in body["notes"])


def test_what_cannot_be_read_is_noted() -> None:
    """The least that it could mean is shown as the value."""
    body = told("User", "ann", known(ANN, name="a", max="many"))
    assert body["own"]["fields"] == {"max": "0"}
    assert "'max' can't be read" in body["notes"][0]
