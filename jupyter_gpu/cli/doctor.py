"""``jupyter gpu doctor``: checks an installation, and gives advice."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING

from jupyter_gpu.common import screen

from . import codes, options
from .output import say

if TYPE_CHECKING:
    from jupyter_gpu.doctor.rules.facts import Facts
    from jupyter_gpu.doctor.rules.findings import Finding
    from jupyter_gpu.model.view import View

_INDENT = " " * 9
_OTHER_VERSION = (
    "The server has another version of jupyter-gpu than this command, which cannot ask it. Install the same version in "
    "both; if that is done, restart the server."
)
_COLOURS = {"ok": "\x1b[32m", "note": "\x1b[33m", "problem": "\x1b[31m"}


def add(commands: options.Commands) -> None:
    """Add the command."""
    doctor = options.command(
        commands,
        "doctor",
        "say what is in order, what is not, and what to do; changes nothing",
        parents=[options.server(), options.output()],
        epilog="Ends with 0 if nothing stands in the way, else with 1. It works without a server, too.",
    )
    doctor.set_defaults(run=_doctor, reads_only=True)


def _doctor(given: argparse.Namespace) -> int:
    from jupyter_gpu.doctor.probe import collect_facts
    from jupyter_gpu.doctor.rules.findings import Level, judge

    there, view, lost = _ask(given)
    findings = (*judge(collect_facts(), there, view, lost), *_workers(given, view))
    wrong = sum(finding.level is Level.PROBLEM for finding in findings)
    if given.json:
        say({"problems": wrong, "findings": [finding.to_json() for finding in findings]})
    else:
        say("\n".join([*(line for finding in findings for line in _lines(finding)), "", _summary(wrong)]))
    return codes.ERROR if wrong else codes.DONE


def _ask(given: argparse.Namespace) -> tuple[Facts | None, View | None, str]:
    """Return the facts of the server, or why there are none."""
    from jupyter_gpu.doctor.rules.facts import Facts
    from jupyter_gpu.kernel.client import Call, get_status
    from jupyter_gpu.model.errors import GpuError, InvalidRequest

    try:
        client = options.client(given)
        there = client.exchange(Call("GET", "doctor")).ask(Facts.from_json)
    except InvalidRequest:  # it does not know the question
        return None, None, _OTHER_VERSION
    except GpuError as error:
        return None, None, str(error)
    try:
        return there, client.send(get_status()), ""
    except GpuError as error:  # it runs, and has no GPUs to tell of
        return there, None, str(error)


def _workers(given: argparse.Namespace, view: View | None) -> tuple[Finding, ...]:
    """Return the findings about workers on other nodes."""
    if view is None or view.elsewhere is None:
        return ()
    from jupyter_gpu.doctor.rules.ways import judge_ways
    from jupyter_gpu.doctor.ways import try_ways

    return tuple(judge_ways(view, try_ways(options.client(given))))


def _lines(finding: Finding) -> list[str]:
    style = screen.style(sys.stdout)
    width = min(100, style.width)
    word = f"{finding.level:<{len(_INDENT)}}"
    begin = f"{_COLOURS[finding.level]}{word}\x1b[0m" if style.colour else word
    text = _wrapped(finding.text, width)
    advice = _wrapped(finding.advice, width)
    return [begin + text[0], *(_INDENT + line for line in (*text[1:], *advice))]


def _wrapped(text: str, width: int) -> list[str]:
    room = max(20, width - len(_INDENT))
    return textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)


def _summary(wrong: int) -> str:
    return {0: "Nothing stands in the way.", 1: "1 problem."}.get(wrong, f"{wrong} problems.")
