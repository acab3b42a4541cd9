"""Effects of a cell on its namespace."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from jupyter_gpu.remote.rules import names
from jupyter_gpu.remote.watched import Watch
from tests.remote.spaces import Grid, space


def ran(code: str, needed: str = "", **there: Any) -> tuple[set[str], set[str], set[str], dict[str, Any]]:
    """Run a cell in a namespace; return what it assigned, deleted and changed, and what the namespace then has."""
    made = space(**there)
    watch = Watch(made, names.of_cell(code), set(needed.split()))
    with suppress(ZeroDivisionError):
        exec(code, made)
    outcome = watch.outcome()
    left = {name: value for name, value in made.items() if not name.startswith("__")}
    return set(outcome.assigned), set(outcome.deleted), set(outcome.changed), left


@pytest.mark.parametrize(
    ("code", "needed", "there", "expected"),
    [
        ("n = 2", "", {"n": 1}, ({"n"}, set(), set(), {"n": 2})),
        # the worker's n may be older than the notebook's: only an assignment counts
        ("if False: n = 2", "", {"n": 1}, (set(), set(), set(), {"n": 1})),
        ("if False: n = 2", "", {}, (set(), set(), set(), {})),
        # also where the same value is assigned
        ("n = 1", "", {"n": 1}, ({"n"}, set(), set(), {"n": 1})),
        ("n += 1", "n", {"n": 1}, ({"n"}, set(), set(), {"n": 2})),
        ("n", "n", {"n": 1}, (set(), set(), set(), {"n": 1})),
        ("del n", "n", {"n": 1}, (set(), {"n"}, set(), {})),
        ("n = 1; del n", "", {"n": 1}, (set(), {"n"}, set(), {})),
        ("try: 1 / 0\nexcept ZeroDivisionError as e: pass", "", {"e": 1}, (set(), {"e"}, set(), {})),
        # no error, so that e is what it was
        ("try: 1\nexcept ZeroDivisionError as e: pass", "", {"e": 1}, (set(), set(), set(), {"e": 1})),
        ("try: 1\nexcept ZeroDivisionError as e: pass", "", {}, (set(), set(), set(), {})),
        ("e = 1\nif False: del e", "", {}, ({"e"}, set(), set(), {"e": 1})),
        # what was assigned before an error comes back, as it would be here
        ("n = 2; 1 / 0; m = 3", "", {"m": 1}, ({"n"}, set(), set(), {"n": 2, "m": 1})),
        ("l.append(2)", "l", {"l": [1]}, (set(), set(), {"l"}, {"l": [1, 2]})),
        ("l.append(2); l = [3]", "l", {"l": [1]}, ({"l"}, set(), set(), {"l": [3]})),
        ("exec(t)", "t n", {"t": "n = 2", "n": 1}, ({"n"}, set(), set(), {"t": "n = 2", "n": 2})),
    ],
)
def test_outcome(
    code: str, needed: str, there: dict[str, Any], expected: tuple[set[str], set[str], set[str], dict[str, Any]]
) -> None:
    """Names that were assigned, deleted and changed, and the namespace afterwards."""
    assert ran(code, needed, **there) == expected


def test_changes_of_arrays_are_found() -> None:
    """Whatever their size."""
    assert ran("g.data[5] = 1", "g", g=Grid(bytearray(5 * 1024**2)))[2] == {"g"}
    assert ran("g.data[5]", "g", g=Grid(bytearray(5 * 1024**2)))[2] == set()


def test_values_that_take_long_to_compare_are_not() -> None:
    """And those that cannot be pickled; the notebook says so before the cell."""
    assert ran("l[0] = b''", "l", l=[b"x" * 2 * 1024**2])[2] == set()
    assert ran("l.append(1)", "l", l=[iter([]), (i for i in "")])[2] == set()
