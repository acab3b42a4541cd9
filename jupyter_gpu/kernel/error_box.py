"""The display of our errors in a cell and in an IPython console: cause and advice, what the server has, the line.

In a notebook the whole traceback is one click away; ``%tb``, ``%debug`` and other tools have it as well. Plain Python
shows its usual traceback.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from jupyter_gpu.model.errors import GpuError, InvalidRequest, NotPermitted, ServerUnreachable

_WIDTH = 88
_BOLD, _PLAIN = "\x1b[1;31m", "\x1b[0m"
_OURS, _IPYTHON = str(Path(__file__).parents[1]), "/site-packages/IPython/"
_MAGIC = re.compile(r"(.*)get_ipython\(\)\.run_line_magic\('gpu', ('.*'|\".*\")\)")
"""The call into which IPython turns ``%gpu``; and ``%%gpu`` if the cell runs in this kernel (``cell 2``)."""
_CELL_MAGIC = re.compile(r"get_ipython\(\)\.run_cell_magic\('gpu', ('(?:[^'\\]|\\.)*'|\"[^\"]*\"), .*")
_WITHOUT_STATE = (InvalidRequest, NotPermitted, ServerUnreachable)
"""Errors that need no state of the server, or whose server would not answer."""
_PATIENCE = 1.0


def install() -> None:
    """Make IPython show our errors in this way, by the method that it calls on an error."""
    GpuError._render_traceback_ = _render  # type: ignore[attr-defined]


def _render(error: GpuError) -> list[str]:
    frame = sys._getframe(1)  # noqa: SLF001 - IPython does not say otherwise whether `%tb` asks
    again = frame.f_code.co_name == "showtraceback" and frame.f_locals.get("running_compiled_code") is False
    if again:
        return _whole(error).splitlines()
    shown = frame.f_code.co_name == "showtraceback"
    kernel = shown and _offer(error)
    return box(error, _have(error), "" if kernel else "%tb shows the whole traceback.")


def box(error: GpuError, have: str, more: str) -> list[str]:
    """Return the lines of the box."""
    kind = type(error).__name__
    text = textwrap.wrap(f"{kind}: {error}", _WIDTH, break_on_hyphens=False, break_long_words=False) or [kind]
    lines = [text[0].replace(kind, f"{_BOLD}{kind}{_PLAIN}", 1), *(f"  {line}" for line in text[1:])]
    notes: list[str] = getattr(error, "__notes__", [])
    facts = [*(f"Your server has: {have}" for _ in [0] if have), *_where(error), *notes, *([more] if more else [])]
    return [*lines, *(f"  {fact}" for fact in facts)]


def _where(error: GpuError) -> Iterator[str]:
    """Find the line of the user's own code."""
    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        if entry.line and not entry.filename.startswith(_OURS) and _IPYTHON not in entry.filename:
            yield f"Line {entry.lineno}: {_typed(entry.line)}"
            return


def _typed(line: str) -> str:
    """Return a magic as it is written in the cell."""
    if match := _CELL_MAGIC.match(line):
        return f"%%gpu {ast.literal_eval(match[1])}".rstrip()
    match = _MAGIC.fullmatch(line)
    if match is None:
        return line
    words: str = ast.literal_eval(match[2])
    if words.startswith("cell"):
        return f"%%gpu {words.removeprefix('cell').strip()}".rstrip()
    return f"{match[1]}%gpu {words}".rstrip()


def _have(error: GpuError) -> str:
    if isinstance(error, _WITHOUT_STATE):
        return ""
    from jupyter_gpu import gpu  # the public name: `api` imports this module by `client`

    try:
        return gpu.sentence(_PATIENCE)
    except Exception:  # to show an error must not fail
        return ""


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _whole(error: GpuError) -> str:
    shell = _shell()
    lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=1)
    return "\n".join(lines)


def _offer(error: GpuError) -> bool:
    """Show, in a notebook, the folded traceback and a button for the panel. Return whether this is a notebook."""
    shell = _shell()
    if getattr(shell, "kernel", None) is None:
        return False
    text = "".join(traceback.format_exception(error))

    def show(*_: object) -> None:
        shell.events.unregister("post_run_cell", show)
        _publish(text)

    callback: Callable[..., None] = show
    shell.events.register("post_run_cell", callback)
    return True


def _publish(text: str) -> None:
    from IPython.display import display

    markup = (
        f"<details><summary>The whole traceback</summary><pre>{escape(text)}</pre></details>"
        # Only with the JupyterLab extension: its style shows the button, and hides what to type instead.
        '<button hidden class="jp-gpu-Open" data-commandlinker-command="jupyter-gpu:show-panel" '
        'data-commandlinker-args="{}">Open GPUs</button>'
        '<p class="jp-gpu-Type">Type <code>gpu</code> in a cell to see and change your GPUs.</p>'
    )
    plain = "%tb shows the whole traceback."
    display({"text/html": markup, "text/plain": plain}, raw=True)  # type: ignore[no-untyped-call]


install()
