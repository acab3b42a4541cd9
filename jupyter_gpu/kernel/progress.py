"""A progress bar while a call waits: in the output of a cell, or one line in a terminal."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jupyter_gpu.model.view import View


class Progress(Protocol):
    """A display of a wait."""

    @property
    def visible(self) -> bool:
        """Whether a user can see it, so that it is worth showing the elapsed time each second."""

    def show(self, view: View) -> None:
        """Show that the wait goes on."""

    def say(self, text: str) -> None:
        """Show a sentence that must not be lost."""

    def close(self, view: View) -> None:
        """End the display; ``view`` is the last one."""


class Silent:
    """A display of important sentences only."""

    visible = False

    def show(self, view: View) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Write to standard error."""
        print(text, file=sys.stderr)

    def close(self, view: View) -> None:
        """Do nothing."""


class Terminal(Silent):
    """A display of one line that is overwritten again and again."""

    visible = True

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._open = False

    def show(self, view: View) -> None:
        """Write the line with the elapsed time."""
        self._write(f"{bar(view)} {line(view, self._started)}")
        self._open = True

    def say(self, text: str) -> None:
        """Write the text in place of the line."""
        self._write("")
        super().say(text)

    def close(self, view: View) -> None:  # noqa: ARG002 - as in Progress
        """Clear the line: the result is printed by the caller."""
        if self._open:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


class Notebook(Silent):
    """A bar in the output of the cell, replaced in place; a saved notebook keeps the last line."""

    visible = True

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._handle: Any = None

    def show(self, view: View) -> None:
        """Show the bar; the first call adds it."""
        self._publish(line(view, self._started), html(view, self._started))

    def close(self, view: View) -> None:
        """Show the last line instead of the bar, if there was one."""
        if self._handle is not None:
            text = line(view, self._started)
            self._publish(text, f"<div>{escape(text)}</div>")

    def _publish(self, text: str, markup: str) -> None:
        from IPython.display import display

        data = {"text/plain": text, "text/html": markup}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)


def in_kernel() -> bool:
    """Tell whether this code runs in a Jupyter kernel, so that its output can be rich."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def choose() -> Progress:
    """Return the display for the place where this code runs."""
    if in_kernel():
        return Notebook()
    try:
        return Terminal() if sys.stderr.isatty() else Silent()
    except (AttributeError, ValueError):  # no standard error, or a closed one
        return Silent()


def line(view: View, started: float) -> str:
    """Return the state in words, and the seconds that the wait has taken."""
    from jupyter_gpu.model.sentence import sentence

    return f"{sentence(view)} · {time.monotonic() - started:.0f} s"


def bar(view: View, width: int = 12) -> str:
    """Return a bar of text."""
    done, whole = _measure(view)
    filled = width * done // whole
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def html(view: View, started: float) -> str:
    """Return a bar for the page, with its meaning for screen readers."""
    done, whole = _measure(view)
    text = escape(line(view, started))
    return (
        f'<div><progress max="{whole}" value="{done}" aria-label="{text}" style="vertical-align: middle"></progress> '
        f"<span>{text}</span></div>"
    )


def _measure(view: View) -> tuple[int, int]:
    """Return the progress: GPUs attached of those wanted, or closed of those given back."""
    now = view.status
    if now.attached > now.requested or now.draining:
        leaving = max(now.draining, now.attached - now.requested, 1)
        return 0, leaving
    return min(now.attached, now.requested), max(now.requested, 1)
