"""``jupyter gpu env`` and ``jupyter gpu run``: programs see their GPUs through their environment.

``run`` becomes the command that it runs: signals, exit status and job control are the command's own, and so are pid and
start time, by which the server knows the owner of the GPUs. The server takes them back when the command ends, for any
reason.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from jupyter_gpu.cli.rules.shells import SHELLS, lines
from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules import visible

from . import options

if TYPE_CHECKING:
    from jupyter_gpu.model.view import View

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses as in shells."""
_ASKED = (visible.NAMED_BY, visible.ORDER)
"""Variables that decide how GPUs are named."""
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
NONE = "No GPU is attached, so programs see none. {how} takes one."
SIMULATED = "The GPUs are simulated: CUDA does not know them, and CUDA_VISIBLE_DEVICES stays as it is."


def add(commands: options.Commands) -> None:
    """Add the commands of this module."""
    server = [options.server()]
    env = commands.add_parser(
        "env",
        parents=server,
        help="print CUDA_VISIBLE_DEVICES for a shell",
        description="Print lines that give a shell, and what it starts, the GPUs that are attached now.",
        epilog='In bash and zsh: eval "$(jupyter gpu env)"; in fish: jupyter gpu env --shell fish | source; '
        "in csh: eval `jupyter gpu env --shell csh`. What comes later needs it again.",
    )
    env.add_argument("--shell", choices=SHELLS, default="sh", help="how the lines are written (%(default)s)")
    env.set_defaults(run=print_environment)
    run = commands.add_parser(
        "run",
        parents=server,
        usage="jupyter gpu run [--gpus N] [--timeout SECONDS] [--by uuid|index] [--url URL | --connect] [--json] "
        "-- command ...",
        help="run a command with the GPUs that are attached, or with more while it runs",
        description="Run a command that sees the GPUs of the server. The exit status is the command's.",
        epilog="Before it runs: exit codes as of the other commands; 126: it cannot be run; 127: there is none.",
    )
    run.add_argument("--gpus", metavar="N", help="have at least so many while it runs: 2, 0.5 or 500m")
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting for them after this time")
    run.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    run.set_defaults(run=run_command, parser=run)
    for one in (env, run):
        one.add_argument("--by", choices=("uuid", "index"), help="how GPUs are named; default: as the server has it")
        one.add_argument("--json", action="store_true", help="errors, and the output of env, as JSON")


def print_environment(given: argparse.Namespace) -> int:
    """Run ``jupyter gpu env``; raises `GpuError`."""
    view = options.gpus(given).status().view
    environ = _with(given.by, {name: os.environ[name] for name in _ASKED if name in os.environ})
    found = shell_variables(environ, Hint.of(view))
    text = lines(found, "json" if given.json else given.shell)
    if text:
        print(text, flush=True)
    _say(view, "jupyter gpu resize 1")
    return 0


def run_command(given: argparse.Namespace) -> int:
    """Run ``jupyter gpu run``; returns only without running it. Raises `GpuError`."""
    words = given.words[1:] if given.words[:1] == ["--"] else given.words
    if not words:
        given.parser.error("a command is missing: jupyter gpu run --gpus 1 -- python train.py")
    import shutil

    program = shutil.which(words[0])
    if program is None:  # before anything is taken for it
        print(f"jupyter gpu run: {words[0]}: there is no such command, or it may not be run.", file=sys.stderr)
        return NOT_FOUND
    gpu, environ = options.gpus(given), _with(given.by, os.environ)
    # It is given back by the end of this process, which is the end of the command.
    status = gpu.status() if given.gpus is None else gpu.at_least(given.gpus, timeout=given.timeout).__enter__()
    for name, value in visible.changes(environ, Hint.of(status.view)).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    if not status.view.simulated:
        _say(status.view, "--gpus 1")
    return _become(program, words, environ)


def _become(program: str, words: list[str], environ: Mapping[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        _replace(program, words, environ)
    except OSError as error:
        print(f"jupyter gpu run: {program} cannot be run: {error.strerror}.", file=sys.stderr)
        return NOT_EXECUTABLE


def _replace(program: str, words: list[str], environ: Mapping[str, str]) -> NoReturn:
    os.execve(program, words, environ)  # noqa: S606 - what its user asks for


def shell_variables(environ: Mapping[str, str], hint: Hint) -> dict[str, str | None]:
    """Return the variables by which a shell's programs see exactly what is attached, whatever it had before; pure.

    If the system guards the GPUs, the list is the same and changes nothing.
    """
    if hint.simulated:
        return {}
    ordered = {visible.ORDER: visible.BUS_ORDER, **environ}
    found: dict[str, str | None] = {}
    for vendor, names in visible.VARIABLES.items():
        if vendor in hint.vendors:
            value = visible.value_of(vendor, hint, ordered, None)
            found |= dict(zip(names, (value, value, None), strict=True))
    found |= visible.hip_changes(environ, hint, found.get(visible.ROCR))
    order = visible.VISIBLE in found and visible.ORDER not in environ
    return {**({visible.ORDER: visible.BUS_ORDER} if order else {}), **found}


def outdated(view: View, inherited: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return a warning if the variables that this process ``inherited`` from its shell are outdated, else ""; pure.

    A program without our gate has only what the shell had when it was opened. ``environ``: the other variables.
    """
    from jupyter_gpu.model.view import Mode

    before = inherited.get(visible.VISIBLE)
    if view.mode is not Mode.SOFT or before is None or before != inherited.get(visible.OURS):
        return ""
    asked = {name: environ[name] for name in _ASKED if name in environ}
    now = visible.changes({**asked, **inherited}, Hint.of(view))
    if now.get(visible.VISIBLE, before) == before:
        return ""
    return 'This shell has CUDA_VISIBLE_DEVICES from before. To follow: eval "$(jupyter gpu env)"'


def _with(by: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    return dict(environ) if by is None else {**environ, visible.NAMED_BY: by}


def _say(view: View, how: str) -> None:
    """Inform the user on standard error, as a shell reads standard output."""
    if view.simulated:
        print(SIMULATED, file=sys.stderr)
    elif not Hint.of(view).gpus:
        print(NONE.format(how=f"'{how}'" if how.startswith("jupyter") else how), file=sys.stderr)
