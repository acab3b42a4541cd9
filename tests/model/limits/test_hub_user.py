"""The proof that a pod is one of a user of a hub."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.hub_user import HubUserProof, credential, prove, read_groups, usable_groups
from jupyter_gpu.model.strict import FieldError, dumps, loads

KEY, OTHER = b"k" * 32, b"o" * 32
UID = "a" * 32


def proof(name: str, uid: str = UID) -> HubUserProof:
    """Return the proof of a pod that has the credential of a user."""
    found = prove(credential(KEY, name), uid)
    assert found
    return found


@pytest.mark.parametrize("name", ["ann", "ünï", "a:b", "a/b", "<img onerror>", "x" * 255, "Ann"])
def test_credential_proves_the_name_for_one_pod(name: str) -> None:
    """Whatever letters it has; the record takes it through JSON."""
    found = HubUserProof.from_json(loads(dumps(proof(name).to_json()), 10_000))
    assert found == proof(name)
    assert found.name == name
    assert found.is_valid(KEY, UID)


def test_proof_is_no_use_to_anybody_else() -> None:
    """Not to another pod, not with another name, not with another hub's key; and a record does not tell the mark."""
    found = proof("ann")
    assert not found.is_valid(KEY, "b" * 32)
    assert not found._replace(name="bob").is_valid(KEY, UID)
    assert not found.is_valid(OTHER, UID)
    mark = credential(KEY, "ann").partition(":")[0]
    assert mark not in dumps(found.to_json())
    again = prove(f"{found.proof}:ann", "b" * 32)  # what everybody can read, taken for the mark
    assert again
    assert not again.is_valid(KEY, "b" * 32)
    renamed = prove(f"{mark}:bob", UID)
    assert renamed
    assert not renamed.is_valid(KEY, UID)


@pytest.mark.parametrize("bad", ["", "ann", ":ann", "0" * 64, "0" * 64 + ":", "0" * 63 + ":ann", "g" * 64 + ":ann"])
def test_what_is_no_credential_proves_nothing(bad: str) -> None:
    """An empty variable is that of a hub that has no key."""
    assert prove(bad, UID) is None


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_of_the_environment_is_taken(text: str) -> None:
    """A name that can't be written would make the record unreadable."""
    found = prove("0" * 64 + ":" + text, UID)
    assert found is None or HubUserProof.from_json(loads(dumps(found.to_json()), 10_000)) == found


@pytest.mark.parametrize(
    "bad", [None, {}, {"name": "ann"}, {"name": "ann", "proof": "x"}, {"name": "", "proof": "0" * 64}]
)
def test_proof_that_is_none_is_refused(bad: object) -> None:
    """The record is damaged then, as with any other field."""
    with pytest.raises(FieldError):
        HubUserProof.from_json(bad)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\ud800"])
def test_hub_gives_no_credential_for_a_name_that_no_limit_could_be_about(name: str) -> None:
    """And leaves out such groups."""
    with pytest.raises(FieldError):
        credential(KEY, name)
    assert usable_groups(["ml", name, "ml"]) == ["ml"]


def test_groups_are_those_that_are_read() -> None:
    """As many as a list may have."""
    found = usable_groups(f"g{number:05}" for number in range(2000))
    assert list(read_groups(found, "groups")) == found
