"""Rights from the hub's description of a token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_hub.rules.access import EDIT, READ, Visitor, visitor

ENTRY = {"access:services!service=gpu"}
ENTER = "access:services!service=gpu"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def model(*scopes: str, **more: Any) -> dict[str, Any]:
    """Return a model of ann with these scopes and the right to enter."""
    return {"name": "ann", "kind": "user", "scopes": [ENTER, *scopes], **more}


@pytest.mark.parametrize(
    ("found", "reads", "edits"),
    [
        (model(), False, False),
        (model(READ), True, False),
        (model(EDIT), True, True),
        (model(admin=True), True, True),
        (model(admin="yes"), False, False),
        (model("access:servers!server=ann/", admin=True), False, False),
        (model("access:servers!server=ann/", EDIT), True, True),
        (model(kind="service", admin=True), False, False),
        (model(EDIT, kind="service"), True, True),
    ],
)
def test_rights_are_scopes_or_a_hub_admin_who_is_no_server(found: dict[str, Any], reads: bool, edits: bool) -> None:
    """A server's token has only what its scopes say, though its owner is an administrator."""
    seen = visitor(found, ENTRY)
    assert seen is not None
    assert (seen.may_read, seen.may_edit) == (reads, edits)


@pytest.mark.parametrize(
    ("scopes", "server", "sole"),
    [
        ([], None, None),
        (["access:servers!server=ann/"], "", ""),
        (["access:servers!server=ann/two"], "two", "two"),
        (["access:servers!server=ann/", "users:activity!user=ann"], "", ""),
        (["access:servers!server=bob/"], None, None),
        (["access:servers!server=ann/", "access:servers!server=ann/two"], None, None),
        (["access:servers!user=ann"], None, None),
        (["access:servers!server=ann"], None, None),
        # Wider beside it: the token names a server, and not only that one.
        (["access:servers!server=ann/", "access:servers"], "", None),
        (["access:servers!server=ann/", "access:servers!user=ann"], "", None),
        (["access:servers!server=ann/", "access:servers!group=ml"], "", None),
    ],
)
def test_server_is_the_one_of_the_tokens_scope(scopes: list[str], server: str | None, sole: str | None) -> None:
    """A scope for another's server, for several, or for all of them names none."""
    assert visitor(model(*scopes), ENTRY) == Visitor("ann", server=server, sole_server=sole)


def test_services_have_no_server() -> None:
    """A service that is named like a user speaks for none of its servers."""
    seen = visitor(model("access:servers!server=ann/", kind="service"), ENTRY)
    assert seen is not None
    assert (seen.server, seen.sole_server) == (None, None)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"name": "ann"},
        {"name": "", "scopes": [ENTER]},
        {"name": 7, "scopes": [ENTER]},
        {"name": "ann", "scopes": ["access:services!service=other"]},
        {"name": "ann", "scopes": ENTER},
    ],
)
def test_visitor_without_the_entry_scope_is_refused(found: dict[str, Any]) -> None:
    """So is a description that is none."""
    assert visitor(found, ENTRY) is None


def test_scope_without_a_filter_enters_too() -> None:
    """An administrator's token has the right to all services."""
    assert visitor({"name": "root", "scopes": ["access:services"]}, ENTRY) == Visitor("root")
    assert visitor({"name": "root", "scopes": ["access:services"]}, ()) is None


def test_label_tells_services_from_users() -> None:
    """A service that is named like a user does not sign as the user."""
    assert Visitor("ann").label == "ann"
    assert Visitor("ann", is_user=False).label == "service ann"


def test_groups_are_sorted_names() -> None:
    """Values that are no names are dropped."""
    seen = visitor(model(groups=["ml", 7, "admins"]), ENTRY)
    assert seen is not None
    assert seen.groups == ("admins", "ml")


@pytest.mark.uncounted(after=25)
@given(st.dictionaries(st.sampled_from(["name", "kind", "scopes", "admin", "groups"]), JSON))
def test_odd_models_give_no_rights(found: dict[str, Any]) -> None:
    """Whatever a hub answers, nobody enters without the scope."""
    assert visitor(found, ENTRY) is None or ENTER in found["scopes"]
