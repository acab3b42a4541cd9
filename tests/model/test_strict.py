"""Reading JSON from outside: whatever comes in, only the reader's own errors come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.strict import FieldError

from .strategies import json_values

# Bytes that are nearly JSON find more than random ones do.
TOKENS = st.sampled_from(
    [*'{}[]",:', "1", "-", "1e999", "NaN", "null", "true", '"a"', "\\ud800", "\\u0000", "\ufeff", "é", " ", "0" * 5000]
)
nearly_json = st.lists(TOKENS, max_size=12).map("".join)


@given(st.binary(max_size=200) | nearly_json.map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Any bytes are a value that can be written again, or a FieldError."""
    try:
        value = strict.loads(data, 4096)
    except FieldError:
        return
    assert strict.loads(strict.dumps(value), 10**6) == value


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text, half surrogate pairs included, is a value or a FieldError."""
    try:
        strict.loads(text, 4096)
    except FieldError as error:
        str(error).encode()


@given(json_values)
def test_plain_json_survives_a_round_trip(value: Any) -> None:
    """Every JSON value without oddities is read as it was written."""
    assert strict.loads(strict.dumps(value), 10**6) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 33 + "]" * 33, "nested more than 32"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a":' * 33 + "1" + "}" * 33, "nested more than 32"),
        ("1e400", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ("9" * 5000, "not valid JSON"),
        ('"\\ud800"', "not valid JSON"),
        ('{"\\udfff": 1}', "not valid JSON"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ("\ufeff{}", "not valid JSON"),
        ("\ud800", "not valid JSON"),
        ("{} {}", "not valid JSON"),
    ],
)
def test_ambiguous_json_is_refused(text: str, says: str) -> None:
    """JSON that readers disagree about is refused."""
    with pytest.raises(FieldError, match=says):
        strict.loads(text, 10**6)


def test_depth_is_limited() -> None:
    """The deepest text that is accepted has exactly the documented depth."""
    assert strict.loads("[" * 32 + "]" * 32, 100)


def test_size_is_counted_in_bytes() -> None:
    """The limit counts bytes, not characters."""
    assert strict.loads('"é"', 4) == "é"
    with pytest.raises(strict.OversizeError, match=r"has 4 bytes; at most 3"):
        strict.loads('"é"', 3)


def test_errors_never_repeat_long_names() -> None:
    """An error never repeats more than a line of what was sent."""
    key = "k\n" * 5000
    with pytest.raises(FieldError) as twice:
        strict.loads(f"{{{json.dumps(key)}:1,{json.dumps(key)}:1}}", 10**6)
    with pytest.raises(FieldError) as unknown:
        strict.no_unknown({key: 1}, ["known"])
    for error in (twice.value, unknown.value):
        assert len(str(error)) < 200
        assert len(error.field) == 60
        assert "\n" not in error.field + str(error)


def test_odd_file_names_can_be_written() -> None:
    """A file name that is not UTF-8 can be written; NaN cannot."""
    assert strict.dumps({"notebook": "a\udcff.ipynb"}) == '{"notebook":"a?.ipynb"}'
    assert strict.dumps("é") == '"é"'
    with pytest.raises(ValueError, match="Out of range"):
        strict.dumps(float("nan"))


@given(st.text(st.characters()), st.integers(1, 20))
def test_printable_is_one_short_line(text: str, most: int) -> None:
    """Whatever the name, the text is one short line, and stays the same when it is read again."""
    shown = strict.printable(text, most)
    assert 0 < len(shown) <= most
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown
    shown.encode()
    assert strict.printable(shown, most) == shown == strict.label(most)(text, "key")
    assert strict.text(most)(shown, "key") == shown


def test_printable_keeps_printable_text() -> None:
    """Names of any language and all spaces stay as they are; the rest is marked."""
    assert strict.printable("Übung 1 – 図.ipynb", 50) == "Übung 1 – 図.ipynb"
    assert strict.printable("a\x1b[31mb", 50) == "a�[31mb"
    assert strict.printable("", 50) == "?"
    assert strict.printable("abcdef", 5) == "abcd…"


READERS: list[tuple[Any, list[Any], list[Any]]] = [
    (strict.integer(0, 5), [0, 5], [-1, 6, True, False, 1.0, "1", None, [], 10**5000]),
    (strict.boolean, [True, False], [0, 1, "true", None]),
    (strict.text(3), ["a", "äöü", "a b"], ["", "abcd", 1, None, "a\n", "\x7f", "\u2028", "\ud800"]),
    (strict.label(3), ["a", "abc"], [1, None, b"a"]),
    (strict.one_of("a", "b"), ["a", "b"], ["c", "", 1, None, ["a"]]),
    (strict.list_of(strict.boolean, 2), [(), (True,)], ["ab", None, {}, (), [1], [True] * 3]),
]


@pytest.mark.parametrize(("read", "good", "bad"), READERS, ids=range(len(READERS)))
def test_readers_name_the_bad_field(read: Any, good: list[Any], bad: list[Any]) -> None:
    """Each reader accepts its kind and names the field where it does not."""
    for value in good:
        assert read(list(value) if isinstance(value, tuple) else value, "key") == value
    for value in bad:
        with pytest.raises(FieldError) as caught:
            read(value, "key")
        assert caught.value.field.startswith("key")


def test_missing_is_not_null() -> None:
    """Missing is not null, and null is not a value."""
    assert strict.required({"a": True}, "a", strict.boolean)
    assert strict.optional({"a": None}, "a", strict.boolean) is None
    assert strict.optional({}, "a", strict.boolean) is None
    for body in ({}, {"a": None}):
        with pytest.raises(FieldError, match="'a'"):
            strict.required(body, "a", strict.boolean)
    with pytest.raises(FieldError, match="JSON object"):
        strict.an_object([], "body")
    strict.no_unknown({"a": 1}, ["a"])
    assert strict.unknown({"a": 1, "b": 2}, ["a"]) == {"b": 2}
