"""The choice of lines that coverage counts: counting makes a test two to four times as slow."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def uncounted() -> Iterator[None]:
    """Count no lines, neither here nor in threads that start meanwhile."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)


@contextmanager
def counted_lines(item: pytest.Item) -> Iterator[None]:
    """Count all lines that the test runs, none (marker `uncounted`), or those of the first examples (``after``)."""
    marker, tracer = item.get_closest_marker("uncounted"), sys.gettrace()
    if marker is None or tracer is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        if examples := marker.kwargs.get("after"):
            _count_examples(item, examples, patch)
        else:
            sys.settrace(None)
        try:
            yield
        finally:
            sys.settrace(tracer)


def _count_examples(item: pytest.Item, examples: int, patch: pytest.MonkeyPatch) -> None:
    """Have the property's test stop the counting after so many examples."""
    function = getattr(item, "obj", None)
    if machine := getattr(function, "_hypothesis_state_machine_class", None):
        patch.setattr(machine, "teardown", _stopping(machine.teardown, examples))
    elif handle := getattr(function, "hypothesis", None):
        patch.setattr(handle, "inner_test", _stopping(handle.inner_test, examples))


def _stopping(test: Callable[..., Any], examples: int) -> Callable[..., Any]:
    """Return what does the same, and stops the counting when it has been called so many times."""
    calls = 0

    @functools.wraps(test)
    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > examples:
            sys.settrace(None)
        return test(*arguments, **named)

    return called
