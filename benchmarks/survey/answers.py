"""Cases of a question, which a program answers one by one in lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

Case = Callable[[], object]
"""Answers by what it returns, or by calls of `say`; an exception is an answer, too."""
_BEGAN = time.monotonic()


def say(**answer: object) -> None:
    """Print a part of an answer."""
    print(json.dumps({"at": round(time.monotonic() - _BEGAN, 2), **answer}, default=str), flush=True)


def ask(cases: Mapping[str, Case], apart: str = "") -> None:
    """Answer the cases that the program's arguments name: by their whole name, or else its beginning; none: all.

    ``apart``: the name of the program, where each case is to have a process of its own: what one does to the driver
    is not to decide what another finds.
    """
    names = list(dict.fromkeys(_chosen(sys.argv[1:], cases)))
    if not apart or len(names) == 1:
        _answer(cases, names)
        return
    say(cases=names)
    for name in names:
        say(begins=name)
        done = subprocess.run([sys.executable, "-m", apart, name], check=False)
        if done.returncode:
            say(case=name, error=f"ended with status {done.returncode}")


def _chosen(wanted: Sequence[str], cases: Mapping[str, Case]) -> Iterator[str]:
    if not wanted:
        yield from cases
    for one in wanted:
        yield from [one] if one in cases else (name for name in cases if name.startswith(one))


def _answer(cases: Mapping[str, Case], names: Sequence[str]) -> None:
    if len(names) > 1:
        say(cases=names)
    for name in names:
        say(begins=name)
        try:
            say(case=name, answer=cases[name]())
        except Exception as error:
            say(case=name, error=f"{type(error).__name__}: {error}"[:600])
