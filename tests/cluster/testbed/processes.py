"""Processes that outlive the command which started them, known by pid and start time.

A pid alone is not enough: after a crash or a restart of the machine another process may have it.
"""

import json
import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.testbed.commands import SECONDS, ClusterError, until

GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Process:
    """One process, past or present."""

    pid: int
    started: int
    """Clock ticks since the machine started."""
    boot: str
    """The boot of the machine in which it started."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process that has this pid now. Raises ProcessLookupError."""
        return cls(pid, _started(pid), _boot())

    @classmethod
    def read(cls, path: Path) -> "Process | None":
        """Read a file that `write` made; None where there is none, or half of one."""
        try:
            found = json.loads(path.read_text())
            return cls(int(found["pid"]), int(found["started"]), str(found["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Keep it for other commands."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(self)))
        scratch.replace(path)

    @property
    def alive(self) -> bool:
        """Whether any thread of it runs; one that ended and was not waited for does not."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # it may be a child of this very process
        try:
            return self.boot == _boot() and _started(self.pid) == self.started
        except ProcessLookupError:
            return False

    def send(self, number: signal.Signals) -> None:
        """A signal, to this process and no later one with its pid; nothing if it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """Ask it to end, kill it when the grace is over (0: at once) and return when it is gone."""
        if grace:
            self.send(signal.SIGTERM)
            self._wait(grace)
        if self.alive:
            self.send(signal.SIGKILL)
            self._wait(SECONDS)
        until(lambda: not self.alive, SECONDS, f"process {self.pid} to end after it was killed")

    def _wait(self, seconds: float) -> None:
        """Until it ended, for this long at most."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    select.select([descriptor], [], [], seconds)
            finally:
                os.close(descriptor)


def spawn(words: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a program by its path in a session of its own, its output appended to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(word) for word in words]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    own = {**os.environ, **(environment or {})}
    try:
        pid = os.posix_spawn(command[0], command, own, file_actions=actions, setsid=True)
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror}.") from error
    try:
        return Process.of(pid)
    except ProcessLookupError:
        return Process(pid, 0, _boot())  # ended already: a process that never lives


def end_of(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for a message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"


def _started(pid: int) -> int:
    """Return the start of the process. Raises ProcessLookupError if it is gone, or only waits to be reaped.

    The first thread of a killed process can be gone before the others, and these keep its sockets open.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        raise ProcessLookupError(pid) from error
    fields = text.rpartition(")")[2].split()  # the name before may hold anything, spaces and brackets too
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    if state in "ZX" and threads <= 1:
        raise ProcessLookupError(pid)
    return started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
