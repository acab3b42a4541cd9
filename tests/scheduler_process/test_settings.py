"""Settings files: each wrong one is refused with a sentence that names what is wrong."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from jupyter_gpu.common.settings_file import MAX_BYTES, SettingsError, bounded, parse, read
from jupyter_gpu_scheduler.rules.pairs.relation import Network
from jupyter_gpu_scheduler.settings import SchedulerSettings


@dataclass(frozen=True)
class Inner:
    """Part of an example."""

    count: int = bounded(1, least=1, most=8)
    first_minor: int = 40

    def __post_init__(self) -> None:
        if self.count > self.first_minor:
            raise ValueError("'inner' needs count ≤ firstMinor.")


@dataclass(frozen=True)
class Example:
    """One of every type."""

    name: str
    folder: Path | None = None
    on: bool = False
    share: float = bounded(0.5, least=0)
    words: tuple[str, ...] = ()
    kind: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    nodes: Mapping[str, Inner] | None = None


def test_every_type_is_read() -> None:
    """Keys are the fields' names in camel case; a missing one has its default."""
    body = {
        "name": "",
        "folder": "/x",
        "on": True,
        "share": 2,
        "words": ["p", "q"],
        "kind": "b",
        "inner": {"count": 2, "firstMinor": 7},
        "nodes": {"n1": {"count": 3}},
    }
    assert parse(body, Example) == Example(
        "", Path("/x"), True, 2.0, ("p", "q"), "b", Inner(2, 7), {"n1": Inner(3, 40)}
    )
    assert parse({"name": "x", "folder": None}, Example) == Example("x")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "The whole must be a JSON object"),
        ({}, "'name' is missing"),
        ({"name": "x", "nmae": 1}, "'nmae' is not known; known are folder, inner"),
        ({"name": "x", "inner": {"first_minor": 1}}, "'first_minor' in 'inner' is not known"),
        ({"name": 1}, "'name' must be text"),
        ({"name": "x", "on": 1}, "'on' must be true or false"),
        ({"name": "x", "share": -1}, "'share' must be a number of at least 0"),
        ({"name": "x", "share": True}, "'share' must be a number"),
        ({"name": "x", "inner": {"count": 9}}, "'inner.count' must be a whole number of at least 1 and at most 8"),
        ({"name": "x", "inner": {"firstMinor": 1.5}}, "'inner.firstMinor' must be a whole number."),
        ({"name": "x", "inner": {"count": 5, "firstMinor": 4}}, "needs count ≤ firstMinor"),
        ({"name": "x", "words": "w"}, "'words' must be a list"),
        ({"name": "x", "words": [1]}, "'words[0]' must be text"),
        ({"name": "x", "kind": "c"}, "'kind' must be one of a, b"),
        ({"name": "x", "nodes": {"n1": 3}}, "'nodes.n1' must be a JSON object"),
        ({"name": "x", "nodes": []}, "'nodes' must be a JSON object"),
        ({"name": "x", "nodes": {str(number): {} for number in range(10_001)}}, "more than 10,000 entries"),
    ],
)
def test_wrong_setting_is_named(body: Any, words: str) -> None:
    """The error is one sentence."""
    with pytest.raises(SettingsError) as error:
        parse(body, Example)
    assert words in str(error.value)


def test_bad_file_is_named(tmp_path: Path) -> None:
    """The error names a file that is missing, too large or no JSON."""
    path = tmp_path / "settings.json"
    for text, words in ((None, "cannot be read"), ("{", "not valid JSON"), (" " * (MAX_BYTES + 1), "at most")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(SettingsError) as error:
            read(path, Example)
        assert str(path) in str(error.value)
        assert words in str(error.value)
    path.write_text('{"name": "x"}')
    assert read(path, Example) == Example("x")


def test_unsupported_field_type_fails_at_first_use() -> None:
    """A dataclass with a type that the reader does not know fails when it is first used."""

    @dataclass(frozen=True)
    class Odd:
        when: complex

    Odd.__annotations__["when"] = complex
    with pytest.raises(TypeError):
        parse({"when": 1}, Odd)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"extender": {"address": "0.0.0.0"}}, "only on 127.0.0.1"),
        ({"extender": {"certificate": "/c"}}, "certificate, key and clientCa together"),
        ({"lease": {"durationSeconds": 5}}, "retrySeconds < renewSeconds < durationSeconds"),
        ({"policy": {"name": "best"}}, "best"),
        ({"policy": {"weights": {"beauty": 1}}}, "beauty"),
        ({"policy": 3}, "'policy' must be a JSON object"),
        ({"workers": {"cpu": 1}}, "must be text"),
        ({"workers": {"memory": "1 GB"}}, "must be an amount such as 100m or 8Gi"),
    ],
)
def test_senseless_combinations_are_refused(body: Any, words: str) -> None:
    """Combinations that make no sense or are not safe keep the scheduler from starting."""
    with pytest.raises(SettingsError) as error:
        parse(body, SchedulerSettings)
    assert words in str(error.value)


def test_empty_file_gives_the_defaults() -> None:
    """An empty file is one that works."""
    assert parse({}, SchedulerSettings).policy.name == "fgd"
    body = {"extender": {"address": "0.0.0.0", "certificate": "/c", "key": "/k", "clientCa": "/a"}}
    assert parse(json.loads(json.dumps(body)), SchedulerSettings).extender.secure


def test_relation_is_read() -> None:
    """Labels that name a switch, points, and speeds; without any, no switch is known."""
    body = {"relation": {"switchKeys": ["example.com/rack"], "unknown": 10, "speeds": {"r1": 400_000}}}
    found = parse(body, SchedulerSettings).relation
    assert (found.switch_keys, found.unknown, found.switch, found.speeds) == (
        ("example.com/rack",),
        10,
        30,
        {"r1": 400_000},
    )
    assert parse({"relation": {"switchKeys": []}}, SchedulerSettings).relation.switch_keys == ()
    assert SchedulerSettings().relation == Network()


@pytest.mark.parametrize(
    ("relation", "words"), [({"unknown": 101}, "'relation.unknown' must be"), ({"rack": 1}, "'rack'")]
)
def test_relation_that_makes_no_sense_is_refused(relation: Any, words: str) -> None:
    """With a sentence that names it."""
    with pytest.raises(SettingsError, match=re.escape(words)):
        parse({"relation": relation}, SchedulerSettings)


def test_line_and_priorities_are_read() -> None:
    """Bad values are refused with their key."""
    found = parse(
        {"line": {"patienceSeconds": 60}, "priorities": {"default": 3, "namespaces": {"a": 9}}}, SchedulerSettings
    )
    assert (found.line.patience_seconds, found.line.place_seconds) == (60, 10)
    assert [found.priorities.cap(name) for name in ("a", "b")] == [9, 3]
    assert SchedulerSettings().priorities.cap("a") == 9
    for body, words in (
        ({"line": {"patienceSeconds": 0}}, "'line.patienceSeconds' must be a number of at least 1"),
        ({"line": {"wishBurst": 0}}, "'line.wishBurst' must be a whole number of at least 1"),
        ({"priorities": {"default": 10}}, "'priorities.default' must be a whole number of at least 0 and at most 9"),
        ({"priorities": {"namespaces": {"a": -1}}}, "'priorities.namespaces.a' must be a whole number"),
    ):
        with pytest.raises(SettingsError, match=re.escape(words)):
            parse(body, SchedulerSettings)
