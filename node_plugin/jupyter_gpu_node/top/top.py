"""``jupyter-gpu-node top``: the use of the time shares of this machine's GPUs, live, from the files of its servers.

`view` decides what is shown, `history` what happened between two readings; here are the files, the terminal and the
time. It reads what the user may read, changes nothing and asks no server, so that it also works where
one hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from jupyter_gpu.common import screen
from jupyter_gpu_node.top.rules import history as histories
from jupyter_gpu_node.top.rules import view
from jupyter_gpu_node.top.rules.history import History, ObservedShare

from . import files

TITLE = "Time shares"
_SIZE = (100, 40)
"""Columns and lines where nothing tells them."""

Show = Callable[[Sequence[ObservedShare], Mapping[str, str], int], str]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = parser().parse_args(words)
    missing = [state for state in options.state or () if not state.is_dir()]
    if missing:
        print(f"There is no directory {missing[0]}; --state names the state directory of a server.", file=sys.stderr)
        return 2
    out, live = sys.stdout, sys.stdout.isatty() and not (options.once or options.json)
    show = _json if options.json else _screen(out) if live else _text(out)
    try:
        with screen.taken(out) if live else contextlib.nullcontext():
            for text in _screens(options.state or files.DEFAULTS, options.interval, show, once=options.once):
                out.write(text)
                out.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="jupyter-gpu-node top",
        description="Who uses the time shares of this machine's GPUs. Ctrl-C ends it.",
        epilog="Shown is what the user may read: on one machine root sees all. NO_COLOR switches colours off.",
    )
    made.add_argument("--once", action="store_true", help="show one interval and end")
    made.add_argument("--json", action="store_true", help="an object for each interval, one a line")
    made.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="SECONDS", help="from 0.2 to 3600 (%(default)s)"
    )
    made.add_argument(
        "--state",
        type=Path,
        action="append",
        metavar="DIR",
        help="state directory of a server; can be repeated (those of the node plugin and of Jupyter servers here)",
    )
    return made


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.2 <= (value := float(text)) <= 3600:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.2 to 3600")


def _screens(states: Sequence[Path], interval: float, show: Show, *, once: bool) -> Iterator[str]:
    """Yield the text to write, one reading of the files after the other.

    The first one knows no use yet: it is left out where only one is wanted.
    """
    history, due, first = History(), time.monotonic(), True
    while True:
        now = time.time_ns() // 1_000_000
        seen = history.update(files.read(states), now)
        if not (once and first and seen):
            yield show(seen, files.names(states, (one.pod for one in seen)), now)
            if once:
                return
        first = False
        due = max(due + interval, time.monotonic())
        time.sleep(max(0, due - time.monotonic()))


def _json(seen: Sequence[ObservedShare], names: Mapping[str, str], now: int) -> str:
    shares = [{"name": names.get(one.pod), **histories.to_json(one)} for one in seen]
    return json.dumps({"time": now / 1000, "shares": shares}) + "\n"


def _text(out: TextIO) -> Show:
    def show(seen: Sequence[ObservedShare], names: Mapping[str, str], now: int) -> str:
        style = screen.style(out, whole=True, fallback=_SIZE)
        return "\n".join(view.lines(_title(now), seen, names, style, now)) + "\n"

    return show


def _screen(out: TextIO) -> Show:
    def show(seen: Sequence[ObservedShare], names: Mapping[str, str], now: int) -> str:
        shown = view.lines(_title(now), seen, names, screen.style(out, fallback=_SIZE), now)
        return "\x1b[H" + "\x1b[K\r\n".join(shown) + "\x1b[K\x1b[J"

    return show


def _title(now: int) -> str:
    return f"{TITLE} at {time.strftime('%H:%M:%S', time.localtime(now / 1000))}"
