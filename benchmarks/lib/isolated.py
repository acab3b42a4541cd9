"""Runs a benchmark in a process of its own, with a time limit: one that hangs is ended and named; others go on."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .figures import CannotRunError, Figure

LIMIT_SECONDS = 900.0
"""The limit of a benchmark without ``LIMIT_SECONDS`` of its own. The longest takes about 500 s on two quiet cores."""
GRACE_SECONDS = 30.0
"""Seconds between the interrupt, after which a benchmark cleans up, and the kill."""
_ROOT = Path(__file__).parents[2]


class BrokenError(Exception):
    """A benchmark that ended with an error, or did not end in time; the message says which."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a benchmark, or why it could not run here."""

    figures: tuple[Figure, ...] = ()
    missing: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the outcome as JSON, for :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Read what :meth:`to_json` returned."""
        return cls(tuple(Figure(**figure) for figure in data["figures"]), data["missing"])


def measure(name: str) -> Outcome:
    """Run a benchmark, or one part of it (`pairs:warm`). Raises BrokenError."""
    module, _ = _named(name)
    limit = getattr(module, "LIMIT_SECONDS", LIMIT_SECONDS)
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-") as folder:
        found = Path(folder) / "outcome.json"
        status = run([sys.executable, "-m", "benchmarks.lib.isolated", name, str(found)], limit)
        if status:
            raise BrokenError(f"{name} ended with status {status}")
        return Outcome.from_json(json.loads(found.read_text()))


def parts(name: str) -> tuple[str, ...]:
    """Return the parts that a benchmark has beside what it measures as a whole."""
    return tuple(getattr(importlib.import_module(f"benchmarks.{name}"), "PARTS", ()))


def _named(name: str) -> tuple[ModuleType, Callable[[], Sequence[Figure]]]:
    """Return the module of a benchmark, and what measures it or the part that is named."""
    whole, _, part = name.partition(":")
    module = importlib.import_module(f"benchmarks.{whole}")
    return module, module.PARTS[part] if part else module.run


def run(command: Sequence[str], limit: float, grace: float = GRACE_SECONDS) -> int:
    """Run a command and end all that it started; return its status. Raises BrokenError after ``limit`` seconds."""
    process = subprocess.Popen(command, cwd=_ROOT, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        raise BrokenError(f"it did not end within {limit:g} s and was ended") from None
    finally:
        _end(process, grace)


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Interrupt a process, wait while it cleans up, and kill what is left of its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(name: str, found: Path) -> None:
    """Run a benchmark in this process, and write its outcome to a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        outcome = Outcome(tuple(_named(name)[1]()))
    except CannotRunError as error:
        outcome = Outcome(missing=str(error))
    found.write_text(json.dumps(outcome.to_json()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
