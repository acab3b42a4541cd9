"""Groups of a hub, and limits from their properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_hub.rules.groups import Group, limit_of, read_group, read_user

from .builders import ML, limit


def of(**properties: Any) -> Group:
    """Return a group with these properties of ours."""
    return Group("ml", frozenset(), {f"jupyter_gpu.{key}": value for key, value in properties.items()})


def test_properties_are_a_limit() -> None:
    """All four, as the hub's page writes them, and as a program may."""
    said = limit_of(of(max=" 4 ", guaranteed="500m", priority="3", weight=20))
    assert said.readable
    assert said.spec == {"max": "4", "guaranteed": "500m", "priority": {"max": 3}, "weight": 20}
    assert limit(ML, **said.spec).problem == ""
    assert limit_of(of(max="Unlimited", guaranteed="1")).spec == {"max": "unlimited", "guaranteed": "1"}


def test_other_properties_are_not_ours() -> None:
    """A group may have those of other programs."""
    assert limit_of(Group("ml", frozenset(), {"quota": "a lot"})).spec == {}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"max": "tow"}, "jupyter_gpu.max"),
        ({"max": ""}, "jupyter_gpu.max"),
        ({"max": ["2"]}, "jupyter_gpu.max"),
        ({"max": True}, "jupyter_gpu.max"),
        ({"guaranteed": "unlimited"}, "jupyter_gpu.guaranteed"),
        ({"guaranteed": "3", "max": "2"}, "jupyter_gpu.guaranteed is more than jupyter_gpu.max"),
        ({"priority": "10"}, "from 0 to 9"),
        ({"priority": "-1"}, "from 0 to 9"),
        ({"weight": "0"}, "from 1 to 1000"),
        ({"weight": "1000000"}, "from 1 to 1000"),
        ({"maximum": "2"}, "jupyter_gpu.maximum"),
    ],
)
def test_nonsense_is_told(properties: dict[str, Any], said: str) -> None:
    """The sentence names the property."""
    found = limit_of(of(**properties))
    assert not found.readable
    assert said in found.problem


def test_members_and_properties_are_read() -> None:
    """The form is that of the hub's REST."""
    item = {"name": "ml", "users": ["ann"], "properties": {"a": 1}, "kind": "group", "roles": []}
    assert read_group(item) == Group("ml", frozenset({"ann"}), {"a": 1})
    assert read_group({"name": "ml"}) == Group("ml", frozenset())
    assert read_user({"name": "ann", "admin": False}) == "ann"


@pytest.mark.parametrize("item", [{"name": ""}, {"name": "a\x00"}, {"name": "a" * 256}, {"name": 7}, {}])
def test_names_that_no_limit_can_have_are_left_out(item: dict[str, Any]) -> None:
    """One odd name must not stop the mirror of all others."""
    assert read_group(item) is None
    assert read_user(item) is None


@pytest.mark.parametrize("item", [[], {"name": "ml", "users": "ann"}, {"name": "ml", "users": [""]}, {"users": [7]}])
def test_unreadable_groups_are_an_error(item: Any) -> None:
    """A list of members that is none must not become an empty one."""
    with pytest.raises(FieldError):
        read_group(item)


@given(
    st.dictionaries(st.text(max_size=12).map("jupyter_gpu.".__add__), st.text(max_size=8) | st.integers(), max_size=4)
)
def test_any_property_is_a_readable_limit_or_told(properties: dict[str, Any]) -> None:
    """The reader of limits accepts all that is mirrored."""
    said = limit_of(Group("ml", frozenset(), properties))
    assert limit(ML, **said.spec).problem == "" or said.problem
