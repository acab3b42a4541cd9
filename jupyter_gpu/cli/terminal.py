"""A whole terminal for one program, which is afterwards as it was: however that ends, and while it is stopped."""

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

from ..model.terminal import Style

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""To the other screen, without a cursor, and back."""


def style(out: TextIO) -> Style:
    """Tell what the terminal can show now."""
    columns, rows = shutil.get_terminal_size((80, 24))
    colour = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return Style(max(20, columns), max(4, rows), colour, (out.encoding or "").lower().replace("-", "") == "utf8")


@contextlib.contextmanager
def taken(out: TextIO, draw: Callable[[], None]) -> Iterator[None]:
    """Have all of it; ``draw`` is called where everything must be drawn again. Signals that end it come as Ctrl-C."""

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
    """Read how what is typed is treated; None: nobody types."""
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
