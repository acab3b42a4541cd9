"""Lines that set variables, for the ``eval`` of shells. Pure.

A value is quoted, so that no shell runs any part of it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping

from jupyter_gpu.model.errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _sh(name: str, value: str | None) -> str:
    return f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"


def _fish(name: str, value: str | None) -> str:
    if value is None:
        return f"set -e {name}"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{quoted}'"


def _csh(name: str, value: str | None) -> str:
    # csh expands the history in single quotes, too; the next character decides, so each stands for itself.
    if value is None:
        return f"unsetenv {name};"
    quoted = value.replace("'", "'\\''").replace("!", "\\!")
    return f"setenv {name} '{quoted}';"


_LINES: Mapping[str, Callable[[str, str | None], str]] = {
    "sh": _sh,
    "bash": _sh,
    "zsh": _sh,
    "fish": _fish,
    "csh": _csh,
}
SHELLS = (*_LINES, "tcsh", "json")
"""Shells that `lines` knows."""


def lines(variables: Mapping[str, str | None], shell: str) -> str:
    """Return lines that set ``variables`` in ``shell``; None: removes.

    JSON: one object. csh: each line ends with a semicolon, as its ``eval`` makes one line of them. Raises
    InvalidRequest for a value that is no plain text.
    """
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or (value is not None and not value.isprintable()):
            raise InvalidRequest(
                f"The value of {name} cannot be given to a shell: it holds characters that cannot be printed.",
                field="shell",
            )
    if shell == "json":
        return json.dumps(variables, ensure_ascii=False)
    line = _LINES["csh" if shell == "tcsh" else shell]
    return "\n".join(line(name, value) for name, value in variables.items())
