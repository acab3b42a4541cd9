"""``%%gpu 2``: a cell with GPUs of its own, in this kernel if its CUDA can use them, else in a worker.

Whether this kernel can run it is decided before IPython reads the cell. If so, it is the cell that it is, with a line
in place of the magic that holds the GPUs until its end; so top-level ``await``, line numbers and its last value stay as
ever. Only that line learns from which node the GPUs come. If it is another one, the line has the rest of the cell run
there, and then ends the cell.
"""

from __future__ import annotations

import bdb
import inspect
import linecache
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_gpu.kernel.arguments import fields, seconds
from jupyter_gpu.model.errors import GpuError, InvalidRequest
from jupyter_gpu.model.message import gettext

if TYPE_CHECKING:
    from jupyter_gpu.model.view import View
    from jupyter_gpu.remote.rules.names import CellNames

WORD = "%%gpu"
_SAME = 0.5
"""Seconds within which the same cell is asked about again; a decision is used once more, and then made anew."""


@dataclass(frozen=True)
class Options:
    """The words after ``%%gpu``."""

    gpus: str = "1"
    fresh: bool = False
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    timeout: float | None = None


class Decided(NamedTuple):
    """A decision where a cell runs, by its number and lines."""

    key: tuple[int, tuple[str, ...]]
    lines: list[str]
    at: float


_latest: list[Decided] = []
"""The latest one, unless it was used again."""


def read(line: str) -> Options:
    """Read the words; raises `InvalidRequest`."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise InvalidRequest(f"'{WORD} {line}': {message}. See %%gpu?")

    parser = Parser(prog=WORD, add_help=False)
    parser.add_argument("gpus", nargs="?", default="1")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("-i", "--in", dest="inputs", action="append", default=[])
    parser.add_argument("-o", "--out", dest="outputs", action="append", default=[])
    parser.add_argument("--timeout", type=float)
    try:
        given = parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise InvalidRequest(f"'{WORD} {line}' cannot be read: {error}.") from None
    except InvalidRequest as error:
        raise error.with_traceback(None)  # noqa: B904 - it is the same; where argparse found it helps nobody
    return Options(given.gpus, given.fresh, _names(given.inputs), _names(given.outputs), seconds(given.timeout))


def _names(words: Sequence[str]) -> frozenset[str]:
    """Return the names in ``-i a,b -i c``; raises `InvalidRequest`."""
    names = frozenset(name for word in words for name in word.split(",") if name)
    for name in sorted(names):
        if not name.isidentifier():
            raise InvalidRequest(gettext("'%1' is not the name of a variable: -i and -o take names.", name))
    return names


def in_place(shell: Any, lines: list[str], first: int) -> list[str]:
    """Return the lines of a cell as this kernel runs it; those that were given if it runs in a worker.

    Its first line that is not empty is the magic. ipykernel asks twice for a cell without ``await``: the first answer
    counts, as the server is asked for it.
    """
    key = shell.execution_count, tuple(lines)
    known = _latest.pop() if _latest else None
    if known is not None and known.key == key and time.monotonic() - known.at < _SAME:
        return known.lines
    found = _in_place(shell, lines, first)
    _latest.append(Decided(key, found, time.monotonic()))
    return found


def _in_place(shell: Any, lines: list[str], first: int) -> list[str]:
    words = lines[first].strip().removeprefix(WORD)
    body = "".join(lines[first + 1 :])
    if not _compiles(shell, _source(words, body)):
        return [*lines[:first], f"# {WORD}{words}\n", *lines[first + 1 :]]  # IPython says what is wrong
    try:
        options = read(shell.var_expand(words, 1))
        if options.fresh or not can_use(int(fields(options.gpus)["milli"])):
            return lines
    except Exception:  # the magic says what is wrong
        return lines
    return [*lines[:first], f"get_ipython().run_line_magic('gpu', {f'cell{words}'!r})\n", *lines[first + 1 :]]


def _source(words: str, body: str) -> str:
    """Return the cell with its magic as a comment, so that lines have their numbers; other magics must come first."""
    return body if body.lstrip().startswith("%%") else f"# {WORD} {words.strip()}\n{body}"


def _compiles(shell: Any, source: str) -> bool:
    from jupyter_gpu.remote.rules import names

    try:
        names.parsed(shell.transform_cell(source), shell.compile.flags)
    except SyntaxError:
        return False
    return True


def can_use(milli: int) -> bool:
    """Tell whether CUDA in this process can use what is attached, and what must come for an amount."""
    from jupyter_gpu.kernel.api import gpu
    from jupyter_gpu.kernel.cuda.guard import guard

    mine = guard()
    try:
        view = gpu.status().view
    except GpuError:  # the request for GPUs says so
        return True
    return mine.can_use_new or (not mine.notice() and view.here >= milli)


class _RanThere(bdb.BdbQuit):
    """The end of a cell that ran on another node: IPython stops at it and shows nothing."""

    def _render_traceback_(self) -> list[str]:
        """Return no lines: IPython would else spend tens of milliseconds on a traceback that nobody reads."""
        return []


def hold(shell: Any, line: str) -> None:
    """Hold GPUs until the end of the cell that runs; if they are on another node, run the rest of it there."""
    from jupyter_gpu.kernel.api import gpu

    options = read(line)
    before = gpu.status().view
    held = ExitStack()
    view = held.enter_context(gpu.at_least(options.gpus, timeout=options.timeout, together=True)).view
    if view.workers and view.here < int(fields(options.gpus)["milli"]):
        with held:
            _run(shell, _rest(shell, line), options, (before, view))
        _end(shell)
    if gpu._calls is not None:  # noqa: SLF001 - it is ours
        with ExitStack() as refused:
            refused.push(held)
            gpu._calls.before_here(lambda: _names_of(shell, _rest(shell, line)))  # noqa: SLF001
            refused.pop_all()
    inner = 0  # cells that a magic in this cell runs

    def begin(*_: object) -> None:
        nonlocal inner
        inner += 1

    def end(*_: object) -> None:
        nonlocal inner
        inner -= 1
        if inner < 0:
            shell.events.unregister("pre_run_cell", begin)
            shell.events.unregister("post_run_cell", end)
            held.close()

    callbacks: dict[str, Callable[..., None]] = {"pre_run_cell": begin, "post_run_cell": end}
    for event, callback in callbacks.items():
        shell.events.register(event, callback)


def _rest(shell: Any, line: str) -> str:
    """Return what follows the line that holds the GPUs, with the line numbers that it has here."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals is not shell.user_global_ns:
        frame = frame.f_back
    assert frame is not None  # the line is one of a cell
    lines = linecache.getlines(frame.f_code.co_filename)
    return "\n" * (frame.f_lineno - 1) + _source(line, "".join(lines[frame.f_lineno :]))


def _names_of(shell: Any, source: str) -> CellNames:
    from jupyter_gpu.remote.rules import names

    return names.of_cell(shell.transform_cell(source), shell.compile.flags, shell.transform_cell)


def _end(shell: Any) -> None:
    """End the cell that runs as one that was successful."""

    def forget(result: Any) -> None:
        shell.events.unregister("post_run_cell", forget)
        if result is not None and isinstance(result.error_in_exec, _RanThere):
            result.error_in_exec = None
            shell.last_execution_succeeded = True
            getattr(shell.history_manager, "exceptions", {}).pop(result.execution_count, None)

    shell.events.register("post_run_cell", forget)
    raise _RanThere


def run(shell: Any, line: str, body: str) -> None:
    """Run a cell in a worker; raises what it raises."""
    _run(shell, _source(line, body), read(line))


def _run(shell: Any, source: str, options: Options, held: tuple[View, View] | None = None) -> None:
    from jupyter_gpu.kernel.api import gpu
    from jupyter_gpu.remote.errors import not_installed

    try:
        from jupyter_gpu.remote.cell import CellCode
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    code = CellCode(source, _names_of(shell, source), shell.displayhook.prompt_count, options.inputs, options.outputs)
    gpu._remote().cell(code, options.gpus, options.timeout, held)  # noqa: SLF001 - it is ours
