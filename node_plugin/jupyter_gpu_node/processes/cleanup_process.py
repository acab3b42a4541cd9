"""A small process that cleans up when this one dies, however that happens: it gets the work beforehand.

It acts when the pipe to it ends, on everything that was announced and not released. Before an orderly end everything is
released, so no other signal is needed to tell the two apart.

It does not wait for a successor of this process. A successor would have to begin with the same work, and a late
clean-up must not undo what it does afterwards. Besides, a container whose first process was killed is soon killed
wholly: a clean-up process that waits in it never acts.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterable

PATIENCE = 1.0
"""Seconds that it gets to read, before another one replaces it."""
_CODE = """
import sys
{act}
held = set()
for line in sys.stdin.buffer:
    if line.endswith(b"\\n"):  # else its writer died in the middle
        (held.add if line[:1] == b"+" else held.discard)(line[1:-1])
for name in held:
    try:
        act(name)
    except Exception:  # such as for one that is gone
        pass
"""


class CleanupProcess:
    """The process and the pipe to it; started when first needed, and again if it ended. For one thread at a time.

    ``act``: the source of a function of that name, with one argument, and of its imports from the standard library.
    """

    def __init__(self, act: str, python: str = sys.executable) -> None:
        self._command = (python, "-I", "-S", "-c", _CODE.format(act=act))
        self._process: subprocess.Popen[bytes] | None = None
        self.held: set[bytes] = set()
        """Names that it acts on if this process dies."""

    @property
    def pid(self) -> int | None:
        """PID of the process that was started last."""
        return self._process.pid if self._process else None

    def hold(self, *names: bytes) -> None:
        """Have ``act`` called for them if this process dies from now on.

        Raises `OSError` if that cannot be guaranteed; the next call tries again, unless they are released.
        """
        if any(b"\n" in name for name in names):
            raise OSError(f"{names!r} cannot be held: a name must be one line.")
        self.held.update(names)
        if not self._tell(b"+", names):
            self._start()

    def release(self, *names: bytes) -> None:
        """Release them: ``act`` is no longer called for them."""
        if known := self.held.intersection(names):
            self.held -= known
            self._tell(b"-", known)

    def close(self) -> None:
        """End the process; it acts on what is still held."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        if not self.held:  # there is nothing to wait for, least of all a process that does not read
            self._process.kill()
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process = None

    def _start(self) -> None:
        self.close()  # it has ended, or is being killed
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,  # a signal to our group or terminal must not reach it
        )
        if not self._tell(b"+", self.held):
            raise OSError("The process that is to act for this one ended at once, or does not listen.")

    def _tell(self, sign: bytes, names: Iterable[bytes]) -> bool:
        """Send names, and tell whether they arrived; if not, kill the process: what it knows is outdated."""
        if self._process is None or self._process.poll() is not None:
            return False
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        try:
            for name in names:  # each wholly or not at all: shorter than a pipe's atomic size
                if not room.poll(PATIENCE * 1000):
                    raise TimeoutError
                os.write(pipe, sign + name + b"\n")
        except OSError:
            self._process.kill()
            return False
        return True
