"""Lines are counted in the tests of decisions, and in no others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.counting import COUNTED, is_counted, modules_in, uncounted


@pytest.mark.parametrize("path", COUNTED)
def test_counted_path_has_tests(path: str) -> None:
    """A file that was moved or removed takes its lines with it."""
    found = Path(path)
    assert found.is_file() or list(found.rglob("test_*.py"))


def test_no_path_is_counted_twice() -> None:
    """A path below another would say nothing, and the list is in order."""
    assert list(COUNTED) == sorted(set(COUNTED))
    assert [path for path in COUNTED if any(path.startswith(f"{other}/") for other in COUNTED)] == []


def test_only_whole_names_count() -> None:
    """A folder counts with all below it, not with others whose names begin alike."""
    assert is_counted("tests/model/limits/test_limit.py::test_x[a/b]")
    assert is_counted("tests/kube/test_pure.py::test_x")
    assert not is_counted("tests/models/test_x.py::test_x")
    assert not is_counted("tests/kube/test_client.py::test_pure")


def test_uncounted_tests_stand_where_others_are_counted() -> None:
    """Elsewhere the marker would say nothing."""
    marker = ".".join(("mark", "uncounted"))
    marked = (str(path) for path in Path("tests").rglob("test_*.py") if marker in path.read_text())
    assert [path for path in marked if not is_counted(path)] == []


def test_all_modules_of_a_folder_are_found(tmp_path: Path) -> None:
    """Their names begin with the outermost package, and folders are modules, too."""
    inner = tmp_path / "part" / "outer" / "rules" / "deep"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent, inner.parent.parent):
        (folder / "__init__.py").touch()
    (inner / "one.py").touch()
    assert list(modules_in(inner.parent)) == ["outer.rules", "outer.rules.deep", "outer.rules.deep.one"]


@pytest.fixture
def tracer() -> Iterator[Any]:
    """Return a function that is told of calls, in this thread and in those that start."""

    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        return None

    before, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(tracer)
    threading.settrace(tracer)
    yield tracer
    threading.settrace(of_threads)
    sys.settrace(before)


def test_nothing_is_counted_meanwhile(tracer: Any) -> None:
    """Neither in this thread nor in one that starts and goes on; afterwards counting goes on."""
    found: list[Any] = []
    goes_on = threading.Event()

    def work() -> None:
        found.append(sys.gettrace())
        goes_on.wait()
        found.append(sys.gettrace())

    with uncounted():
        found.append(sys.gettrace())
        thread = threading.Thread(target=work)
        thread.start()
    goes_on.set()
    thread.join()
    assert found == [None, None, None]
    assert (sys.gettrace(), threading.gettrace()) == (tracer, tracer)
