"""The changes between two lists of objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kube.rules import objects
from jupyter_gpu_hub.rules.machine.changes import changes
from jupyter_gpu_hub.rules.machine.identity import number, versioned

LISTS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from("12"), st.sampled_from("xy")), max_size=3)


@given(LISTS, LISTS)
def test_changes_lead_from_one_list_to_the_other(
    before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]
) -> None:
    """An object that was replaced by one of the same name is removed and added; nothing is told twice."""
    old, new = ({name: item(name, *about) for name, about in one.items()} for one in (before, after))
    found = dict(old)
    told = list(changes(old, new))
    for kind, changed in told:
        name = objects.name(changed)
        if kind == "DELETED":
            del found[name]
        else:
            assert (kind == "ADDED") == (name not in found)
            found[name] = changed
    assert found == new
    assert bool(told) == (old != new)


def item(name: str, uid: str, content: str) -> dict[str, object]:
    """Return an object."""
    return versioned({"metadata": {"name": name, "uid": uid}, "spec": content})


def test_numbers_and_versions_follow_from_the_content() -> None:
    """The order of fields does not count, and a version that is there already neither."""
    assert number({"a": 1, "b": 2}) == number({"b": 2, "a": 1}) != number({"a": 1})
    one = item("a", "1", "x")
    assert versioned(one) == one
