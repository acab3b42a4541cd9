"""Sources: what users read about a value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from jupyter_gpu.model.limits.source import UNSET, LimitPart, Source, Sourced, SourceKind
from jupyter_gpu.model.strict import FieldError, dumps, loads

from .strategies import sources

MAY = int(datetime(2026, 5, 3, 23, tzinfo=UTC).timestamp())
ROOT: dict[str, Any] = {"by": "root", "at": MAY}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (Source(SourceKind.USER, "ann", **ROOT), "set for you by root on 3 May"),
        (Source(SourceKind.USER, "ann"), "set for you"),
        (Source(SourceKind.GROUP, "ml", **ROOT), "set for group ml by root on 3 May"),
        (Source(SourceKind.GROUP, "ml", by="Helm"), "set for group ml by Helm"),
        (Source(SourceKind.GROUP, "ml", at=MAY), "set for group ml on 3 May"),
        (Source(SourceKind.NAMESPACE, "jobs", **ROOT), "set for namespace jobs by root on 3 May"),
        (Source(SourceKind.DEFAULT, **ROOT), "the default for everyone, set by root on 3 May"),
        (Source(SourceKind.DEFAULT), "the default for everyone"),
        (Source(SourceKind.CAP, **ROOT), "the cap for everyone, set by root on 3 May"),
        (Source(SourceKind.CAP), "the cap for everyone"),
        (UNSET, "as no limit is set"),
        (Source(SourceKind.USER, "ann", part=LimitPart.HOURS, **ROOT), "the hours for you, set by root on 3 May"),
        (Source(SourceKind.GROUP, "ml", part=LimitPart.BUDGET), "the used-up budget for group ml"),
        (
            Source(SourceKind.DEFAULT, part=LimitPart.BUDGET, **ROOT),
            "the used-up budget for everyone, set by root on 3 May",
        ),
        (Source(SourceKind.CAP, part=LimitPart.HOURS), "the hours of the cap for everyone"),
        (
            Source(SourceKind.GROUP, "ml", unreadable=True, by="root"),
            "set for group ml by root; it cannot be read, so the least that it could mean holds",
        ),
        (Source(SourceKind.GROUP, "m\x1bl\u202e", by="x" * 80), f"set for group m\ufffdl\ufffd by {'x' * 63}…"),
    ],
)
def test_source_has_a_sentence(source: Source, sentence: str) -> None:
    """Each kind of source has words that fit after an amount."""
    assert source.sentence() == sentence


def test_source_names_the_user_to_administrators() -> None:
    """An administrator reads a name in place of you."""
    assert Source(SourceKind.USER, "ann", **ROOT).sentence(you=False) == "set for user ann by root on 3 May"
    assert Source(SourceKind.USER, "ann", part=LimitPart.HOURS).sentence(you=False) == "the hours for user ann"


def test_source_tells_the_date_where_the_reader_is() -> None:
    """The day is that of the installation's time zone, and the year is shown if it is not obvious."""
    source = Source(SourceKind.USER, "ann", **ROOT)
    assert source.sentence(zone=ZoneInfo("Europe/Berlin")) == "set for you by root on 4 May"
    assert source.sentence(now=MAY + 300 * 86400) == "set for you by root on 3 May"
    assert source.sentence(now=MAY + 301 * 86400) == "set for you by root on 3 May 2026"
    assert source.sentence(now=MAY - 1) == "set for you by root on 3 May 2026"


@given(sources)
def test_source_survives_a_round_trip(source: Source) -> None:
    """A source is read as it was written; names of any kind can be shown."""
    again = Source.from_json(loads(dumps(source.to_json()), 10_000))
    assert again == source
    assert again.sentence() == source.sentence()


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"kind": "Boss"}, {"kind": "User", "at": -1}, {"kind": "User", "part": "x"}, {"kind": ["User"]}],
)
def test_bad_source_is_refused(body: object) -> None:
    """Anything but a source is refused by the reader's own error."""
    with pytest.raises(FieldError):
        Source.from_json(body)


def test_sourced_keeps_its_source() -> None:
    """Another value made of a sourced one has the same source."""
    source = Source(SourceKind.CAP)
    assert Sourced(2, source).map(str) == Sourced("2", source)
