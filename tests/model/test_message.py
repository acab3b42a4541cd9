"""Sentences that know their pattern and their values."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.message import Message, fill, gettext, is_language, message_of, sentences, translate, translated

WORDS = {"%1 of %2": "%2, davon %1", "nothing": "nichts", "%1 GPUs": "%1 GPUs"}


def test_message_is_english_text() -> None:
    """Code that knows nothing of languages uses it as it is."""
    message = gettext("%1 of %2", gettext("nothing"), 3)
    assert message == "nothing of 3"
    assert json.dumps({"message": message}) == '{"message": "nothing of 3"}'
    assert hash(message) == hash("nothing of 3")


def test_message_is_translated_with_its_values() -> None:
    """Values that are messages are translated, too; others stay, even if they look like one."""
    assert translate(gettext("%1 of %2", gettext("nothing"), 3), WORDS) == "3, davon nichts"
    assert translate(gettext("%1 of %2", "nothing", "%1"), WORDS) == "%1, davon nothing"
    assert translate("nothing", WORDS) == "nothing"
    assert translate(7, WORDS) == "7"


def test_copies_are_translated_as_well() -> None:
    """Frozen values with sentences in them can be copied and sent to other processes."""
    message = gettext("%1 of %2", gettext("nothing"), 3)
    for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert translate(other, WORDS) == "3, davon nichts"


def test_sentences_are_translated_one_by_one() -> None:
    """More than nine, too; one that no pack has stays English, and an empty one leaves no space."""
    text = sentences(*[gettext("nothing"), "", "as it is"] * 10)
    assert text == " ".join(["nothing as it is"] * 10)
    assert translate(text, WORDS) == " ".join(["nichts as it is"] * 10)
    assert sentences() == ""


def test_json_is_translated() -> None:
    """In any depth; keys and plain text stay."""
    body = {"nothing": [gettext("nothing"), {"a": (gettext("nothing"), "nothing", 1, None)}]}
    assert translated(body, WORDS) == {"nothing": ["nichts", {"a": ["nichts", "nothing", 1, None]}]}


@pytest.mark.parametrize("error", [ValueError(gettext("nothing")), KeyError("a"), ValueError(), ValueError("a", "b")])
def test_message_of_an_error_is_its_text(error: Exception) -> None:
    """As a `Message` where it was made with one."""
    assert message_of(error) == str(error)
    assert isinstance(message_of(error), Message) == (str(error) == "nothing")


@given(st.text(), st.lists(st.text(), max_size=9))
def test_values_are_text_and_no_patterns(pattern: str, values: list[str]) -> None:
    """A name such as ``%1`` is shown as it is, and a number without a value as well."""
    assert fill("%1" + pattern.replace("%", ""), ["%2", *values]).startswith("%2")
    assert fill(pattern, ()) == pattern


@pytest.mark.parametrize(
    ("text", "found"),
    [("de", True), ("pt_BR", True), ("zh-Hans-CN", True), ("", False), ("../de", False), ("d", False)],
)
def test_name_of_a_language_is_known_by_its_form(text: str, found: bool) -> None:
    """Whether there is a pack is another question."""
    assert is_language(text) is found
