"""A kernel of the worker, as the first process has it: a child process, its pipes, and whose it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import IO

from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.remote.rules.control import Allow, Started, Take, Word


@dataclass
class Kernel:
    """One kernel of the worker."""

    process: subprocess.Popen[bytes]
    ended: int
    """Its pidfd, which can be read when it has ended."""
    report: IO[bytes]
    """The pipe from which `Started` is read."""
    errors: IO[bytes]
    """A file with all that it printed before it was ready."""
    port: int
    """The first of its ports; 0: any."""
    owner: ReservationOwner | None = None
    """The process that it is for; None: it stands by for the next one."""
    folder: str = ""
    """The folder where it is to run; empty while it stands by."""
    stood_by: bool = False
    """Whether it had been started before anybody needed it."""
    started: Started | None = None
    waiting: list[bytes] = field(default_factory=list)
    """The clients that wait for `Started`."""

    def give(self, owner: ReservationOwner, folder: str) -> None:
        """Give it to a process, once: it answers with `Started`."""
        assert self.owner is None
        self.owner, self.folder = owner, folder
        self.tell(Take(folder))

    def allow(self, keys: tuple[str, ...]) -> None:
        """Have it accept these keys from now on."""
        self.tell(Allow(keys))

    def tell(self, word: Word) -> None:
        """Send it a word."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word.dump() + b"\n")
        except BrokenPipeError:  # it has ended
            pass
        except BlockingIOError:  # it is stuck, and must not go on with an old key
            self.kill()

    def kill(self) -> None:
        """End it, and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close its descriptors."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.ended)
        self.report.close()
        self.errors.close()

    def last_words(self) -> str:
        """Return the last line that it printed before it was ready, and how it ended."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 4096))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it printed nothing'} (status {self.process.returncode})"
