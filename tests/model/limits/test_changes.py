"""The changes that are kept with a limit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.changes import (
    MAX_BYTES,
    LimitChange,
    decode_changes,
    encode_changes,
    format_time,
    parse_time,
)
from jupyter_gpu.model.limits.source import MAX_TIME
from jupyter_gpu.model.strict import FieldError

from .strategies import odd_names

specs = st.none() | st.dictionaries(odd_names, st.integers(0, 9), max_size=2)
changes = st.lists(st.builds(LimitChange, odd_names, st.integers(0, MAX_TIME), specs, specs), max_size=24)


@given(changes)
def test_newest_changes_survive_a_round_trip(kept: list[LimitChange]) -> None:
    """The newest twenty are read as they were written."""
    assert decode_changes(encode_changes(kept)) == tuple(kept[-20:])


def test_long_changes_are_fewer() -> None:
    """The annotation stays below its limit, and always keeps the newest change."""
    long = [LimitChange("root", number, after={"text": "ü" * (MAX_BYTES // 6)}) for number in range(5)]
    assert [change.at for change in decode_changes(encode_changes(long))] == [3, 4]
    assert len(encode_changes(long).encode()) <= MAX_BYTES


def test_times_are_those_of_kubernetes() -> None:
    """A time has seconds and an offset."""
    assert format_time(1777802400) == "2026-05-03T10:00:00Z"
    assert parse_time("2026-05-03T12:00:00.9+02:00", "at") == 1777802400


@pytest.mark.parametrize("text", ["", "soon", "2026-05-03T10:00:00", "2026-13-03T10:00:00Z", "1900-01-01T00:00:00Z", 5])
def test_bad_times_are_refused(text: Any) -> None:
    """A time without an offset, or before 1970, is none."""
    with pytest.raises(FieldError):
        parse_time(text, "at")


@pytest.mark.parametrize("body", [{}, [1], [{"by": "x"}], [{"by": "x", "at": "2026-05-03T10:00:00Z", "to": 1}]])
def test_bad_changes_are_refused(body: Any) -> None:
    """Anything but a list of changes is refused by the reader's own error."""
    with pytest.raises(FieldError):
        decode_changes(json.dumps(body))
