"""Clean-up when this process dies, however it dies: by a small process of its own that knows the work before.

It acts when the pipe to it ends, on everything that was announced to it and not released. An orderly end is one before
which everything was released: so nothing but the pipe has to distinguish the two.

It waits for no successor. One would have to begin by doing the same, and what a successor does later must not be undone
by a late deputy. And a container whose first process was killed is killed wholly soon after: a deputy that waits in it
never acts.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterable

PATIENCE = 1.0
"""Seconds that it gets to read, before another one takes its place."""
_CODE = """
import sys
{act}
held = set()
for line in sys.stdin.buffer:
    if line.endswith(b"\\n"):  # else whoever wrote it died in the middle
        (held.add if line[:1] == b"+" else held.discard)(line[1:-1])
for name in held:
    try:
        act(name)
    except Exception:  # such as one that is gone
        pass
"""


class CleanupProcess:
    """The process and the pipe to it; started when it is needed first, and anew if it ended. For one thread at a time.

    ``act``: the source of a function of that name, with one argument, and of its imports from the standard library.
    """

    def __init__(self, act: str, python: str = sys.executable) -> None:
        self._command = (python, "-I", "-S", "-c", _CODE.format(act=act))
        self._process: subprocess.Popen[bytes] | None = None
        self._held: set[bytes] = set()

    @property
    def pid(self) -> int | None:
        """PID of the process that was started last."""
        return self._process.pid if self._process else None

    def hold(self, *names: bytes) -> None:
        """Have ``act`` called for them if this process dies from now on.

        Raises `OSError` if that cannot be promised; the next call tries it again, unless they are released.
        """
        if any(b"\n" in name for name in names):
            raise OSError(f"{names!r} cannot be told of.")
        self._held.update(names)
        if not self._tell(b"+", names):
            self._start()

    def release(self, *names: bytes) -> None:
        """Release them: ``act`` is not to be called for them any more."""
        if known := self._held.intersection(names):
            self._held -= known
            self._tell(b"-", known)

    def close(self) -> None:
        """End the process; it acts on what is held still."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        if not self._held:  # nothing is to be waited for, least of all one that does not read
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
            start_new_session=True,  # what ends this process by its group or a terminal is not for it
        )
        if not self._tell(b"+", self._held):
            raise OSError("The process that is to act for this one ended at once, or does not listen.")

    def _tell(self, sign: bytes, names: Iterable[bytes]) -> bool:
        """Send names to the deputy, and tell whether it got them; if not, it never acts: what it knows is outdated."""
        if self._process is None or self._process.poll() is not None:
            return False
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        try:
            for name in names:  # each at once or not at all: it is shorter than a pipe's atomic size
                if not room.poll(PATIENCE * 1000):
                    raise TimeoutError
                os.write(pipe, sign + name + b"\n")
        except OSError:
            self._process.kill()
            return False
        return True
