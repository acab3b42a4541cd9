"""Owners of pods, and the names of the objects about them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner, object_name, owner_of

from .strategies import ODD_NAMES

KINDS = st.sampled_from(["User", "Group", "Namespace"])
VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("annotations", "owner"),
    [
        ({}, Owner("Namespace", "jhub")),
        ({USERNAME: ""}, Owner("Namespace", "jhub")),
        ({HUB: "lab"}, Owner("Namespace", "jhub")),
        ({USERNAME: "ann"}, Owner("User", "ann", "jhub")),
        ({USERNAME: "ann", HUB: ""}, Owner("User", "ann", "jhub")),
        ({USERNAME: "ann", HUB: "lab"}, Owner("User", "ann", "lab")),
        ({USERNAME: "a/b ünï"}, Owner("User", "a/b ünï", "jhub")),
    ],
)
def test_owner_is_the_user_of_a_hub_or_the_namespace(annotations: dict[str, str], owner: Owner) -> None:
    """A pod belongs to its user, in the hub that its annotation or namespace names, else to its namespace."""
    assert owner_of(annotations, "jhub") == owner


def test_owners_of_two_hubs_are_two() -> None:
    """Two hubs' ann are two owners, and owners have an order."""
    assert owner_of({USERNAME: "ann"}, "a") < owner_of({USERNAME: "ann"}, "b")


@given(KINDS, st.text(min_size=1) | st.sampled_from(ODD_NAMES), st.text())
def test_object_name_is_valid(kind: str, name: str, hub: str) -> None:
    """Any name, even with half of a surrogate pair, gives a name that Kubernetes accepts."""
    found = object_name(kind, name, hub)
    assert VALID.fullmatch(found)
    assert len(found) <= 80
    assert found.startswith(f"{kind.lower()}-")
    assert found == object_name(kind, name, hub)


def test_object_name_tells_similar_names_apart() -> None:
    """Names that look alike once they are escaped get objects of their own."""
    subjects = [
        (kind, name, hub) for kind in ("User", "Group") for name in (*ODD_NAMES, "a-b", "a") for hub in ("", "b")
    ]
    subjects += [("User", "b", "a"), ("User", "a b", "")]
    assert len({object_name(*subject) for subject in subjects}) == len(subjects)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (("Default",), "default"),
        (("Cap",), "cap"),
        (("User", "ann", "jhub"), "user-ann-fbbaf8f5d9449c6b"),
        (("User", "--", ""), "user-"),
        (("Group", "ML Team!", ""), "group-ml-team-"),
    ],
)
def test_object_name_is_told_by_people(subject: tuple[str, ...], name: str) -> None:
    """The name begins with what people know of the subject, and never changes."""
    assert object_name(*subject).startswith(name)
