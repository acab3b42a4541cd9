"""Full-screen use of a terminal, which is restored however the program ends, and while it is stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO

from jupyter_gpu.model.terminal import Style

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Sequences that enter the alternate screen and hide the cursor, and that undo it."""


def style(out: TextIO, *, whole: bool = False, fallback: tuple[int, int] = (80, 24)) -> Style:
    """Return the style that ``out`` can show now; ``whole``: leave nothing out if there are too few lines."""
    columns, rows = _size(out, fallback)
    drawn_on = out.isatty() and os.environ.get("TERM") != "dumb"
    utf8 = (out.encoding or "").lower().replace("-", "") == "utf8"
    return Style(columns, None if whole else rows, drawn_on and not os.environ.get("NO_COLOR"), utf8)


def _size(out: TextIO, fallback: tuple[int, int]) -> tuple[int, int]:
    """Return the size by the terminal, not by ``COLUMNS``: a server that sets it, as JupyterLab's, sets the size at the
    start.
    """
    try:
        columns, rows = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):  # a pipe, a file
        columns, rows = 0, 0
    if not (columns and rows):  # a terminal that does not know, as a serial line
        columns, rows = shutil.get_terminal_size(fallback)
    return max(20, columns), max(4, rows)


@contextlib.contextmanager
def taken(out: TextIO, draw: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Use the whole terminal. ``draw`` is called when all must be drawn again; signals that end the program raise as
    Ctrl-C.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def resized(_number: int, _frame: FrameType | None) -> None:
        draw()

    def stop(_number: int, _frame: FrameType | None) -> None:
        _leave(out, before)
        os.kill(os.getpid(), signal.SIGSTOP)
        _enter(out, before)
        draw()

    before = _attributes()
    for number, handler in (
        (signal.SIGTERM, end),
        (signal.SIGHUP, end),
        (signal.SIGWINCH, resized),
        (signal.SIGTSTP, stop),
    ):
        signal.signal(number, handler)
    try:
        _enter(out, before)
        yield
    finally:
        _leave(out, before)


def _attributes() -> list[Any] | None:
    """Return the settings of the terminal; None if it is no terminal."""
    try:
        return termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError, OSError):
        return None


def _enter(out: TextIO, before: list[Any] | None) -> None:
    if before is not None:  # what is typed meanwhile is not shown
        termios.tcsetattr(sys.stdin, termios.TCSANOW, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
    out.write(ENTER)


def _leave(out: TextIO, before: list[Any] | None) -> None:
    with contextlib.suppress(OSError, termios.error):  # a terminal that is gone
        out.write(LEAVE)
        out.flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
