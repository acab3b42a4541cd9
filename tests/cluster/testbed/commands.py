"""Running commands, waiting for a condition, and the one error of this package."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SECONDS = 60.0
"""Patience with anything that should take some seconds: machines that test are busy."""


class ClusterError(Exception):
    """Something about the cluster cannot be done; the message says what, why and what to do."""


class CommandFailed(ClusterError):
    """A command ended with an error; `output` is all that it wrote."""

    def __init__(self, words: Sequence[str], status: int, output: str) -> None:
        super().__init__(f"`{' '.join(words)}` failed (status {status}):\n{output[-4000:].strip()}")
        self.status = status
        self.output = output


class Hopeless(ClusterError):
    """The awaited condition cannot come true any more."""


def run(
    *words: str | Path,
    stdin: str | None = None,
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a command and return its standard output. Raises CommandFailed."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command,
            input=stdin or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(
            f"{command[0]} is not installed. `scripts/cluster up` installs what a cluster needs."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(command)}` did not end within {seconds:.0f} s.") from error
    if done.returncode:
        raise CommandFailed(command, done.returncode, done.stdout + done.stderr)
    return done.stdout


def until(condition: Callable[[], T], seconds: float = SECONDS, what: str = "", *, every: float = 0.1) -> T:
    """The first true answer of the condition, asked again and again; an exception of it means "not yet", but for
    Hopeless. Raises ClusterError when the time is over, with `what` was waited for and the last exception.
    """
    end = time.monotonic() + seconds
    while True:
        last: Exception | None = None
        try:
            if answer := condition():
                return answer
        except Hopeless:
            raise
        except Exception as error:
            last = error
        if time.monotonic() > end:
            why = f": {last}" if last else ""
            raise ClusterError(f"Waited {seconds:.0f} s for {what or 'a condition'}, in vain{why}") from last
        time.sleep(every)
