"""Commands that start Python with ipykernel, changed to add an argument or to ask that Python a question. Pure.

Kernel specs name Python itself, or a launcher: ``conda run -n x python …``, ``uv run python …``, ``env A=b python …``,
``bash -c "source x && exec python …"``, ``python -m nb_conda_kernels.runner … python …``. Commands that may start it on
another machine or in a container (``srun``, ``ssh``, ``docker run``) are left alone: a question would start them twice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

ARGUMENT = "--IPKernelApp.extra_extensions=jupyter_gpu.startup"
_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?t?)?(\.exe)?")
_CHOOSERS = frozenset({"env", "nice", "conda", "mamba", "micromamba", "uv", "pixi", "poetry", "pipenv", "hatch"})
_ELSEWHERE = frozenset(
    ("srun", "sbatch", "salloc", "qsub", "bsub", "mpirun", "mpiexec", "ssh", "docker", "podman", "nerdctl", "enroot",
     "kubectl", "singularity", "apptainer", "shifter", "ch-run", "bwrap", "chroot", "nsenter", "sudo", "su", "runuser")
)  # fmt: skip
_RUNNER = ("-m", "nb_conda_kernels.runner")
_SHELL = re.compile(r"(ba|da|z|k)?sh")
_SHELL_RUNS = re.compile(r"-[a-z]*c")
_MODULES = ("ipykernel_launcher", "ipykernel")
_MODULE = re.compile(r"\s(-m\s+ipykernel(_launcher)?)(?![\w.])")
_BREAK = re.compile(r"[;&|\n(){}]|\bexec\b")
_OPTIONS_WITH_A_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})


class Launch(NamedTuple):
    """A command that starts Python with ipykernel."""

    before: tuple[str, ...]
    """The words before the module, the last of them Python or an option of it."""
    after: tuple[str, ...]
    text: str = ""
    """Text of a shell's ``-c``, which stands between them, up to ``-m``; empty without a shell."""
    rest: str = ""
    """The rest of that text, from ``-m`` on."""

    @property
    def direct(self) -> str:
        """Python, if the command begins with it; else empty."""
        return self.before[0] if not self.text and _is_python(self.before[0]) and _RUNNER[1] not in self.before else ""

    def guarded(self) -> list[str]:
        """Return the command with the argument that loads the guard."""
        if not self.text:
            return [*self.before, *self.after, ARGUMENT]
        module = _MODULE.match(" " + self.rest)
        assert module
        end = module.end() - 1
        return [*self.before, f"{self.text}{self.rest[:end]} {ARGUMENT}{self.rest[end:]}", *self.after]

    def asking(self, code: str) -> list[str]:
        """Return a command that runs ``code`` in the same Python."""
        if not self.text:
            return [*self.before, "-c", code]
        return [*self.before, f"{self.text}-c {shlex.quote(code)}"]


def read(command: Sequence[str]) -> Launch | None:
    """Parse a ``command`` that starts ipykernel; None for any other, and if it has the argument already."""
    if not command or any(ARGUMENT in word for word in command):
        return None
    if _SHELL.fullmatch(_name(command[0])):
        return _read_shell(command)
    at = _module(command)
    if at is None or not _may_run(command[:at]):
        return None
    return Launch(tuple(command[:at]), tuple(command[at:]))


def _read_shell(command: Sequence[str]) -> Launch | None:
    at = next((i for i, word in enumerate(command[1:-1], 1) if _SHELL_RUNS.fullmatch(word)), None)
    if at is None or not all(word.startswith("-") for word in command[1:at]):
        return None
    text = command[at + 1]
    found = list(_MODULE.finditer(text))
    if len(found) != 1:
        return None
    begin = found[0].start(1)
    try:
        words = shlex.split(_BREAK.split(text[:begin])[-1])
    except ValueError:  # it is within quotes
        return None
    if not words or not _may_run(words):
        return None
    return Launch(tuple(command[: at + 1]), tuple(command[at + 2 :]), text[:begin], text[begin:])


def _module(command: Sequence[str]) -> int | None:
    """Return the index of ``-m ipykernel_launcher`` as Python runs it, not as an argument of another program."""
    for i in range(1, len(command) - 1):
        if command[i] == "-m" and command[i + 1] in _MODULES and _python(command[:i]) is not None:
            return i
    return None


def _python(words: Sequence[str]) -> int | None:
    """Return the index of Python if all later words are its options."""
    at = len(words) - 1
    while at > 0 and (words[at].startswith("-") or words[at - 1] in _OPTIONS_WITH_A_VALUE):
        at -= 1
    return at if at >= 0 and _is_python(words[at]) and "-m" not in words[at:] else None


def _may_run(words: Sequence[str]) -> bool:
    """Tell whether Python is the last command, and the words before it only choose which Python."""
    at = _python(words)
    if at is None:
        return False
    before = words[:at]
    if any(_name(word) in _ELSEWHERE for word in before):
        return False
    if not before or tuple(before[1:3]) == _RUNNER:
        return not before or _is_python(before[0])
    chosen = next((word for word in before if "=" not in word), "env")
    return _name(chosen) in _CHOOSERS


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(_name(word)) is not None


def _name(word: str) -> str:
    return word.rpartition("/")[2]
