"""A process of this program's own: the same Python and packages, held to the same GPUs, and ended with the program.

Words go by pipes. The end of its input tells it to end, also if this program is killed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys


class OwnProcess:
    """A process that runs a module of ours, from its first word on. Without ``word`` it waits for `tell`."""

    def __init__(self, module: str, word: bytes = b"") -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the callers name modules of ours
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the program
        )
        if word:
            self.tell(word)

    def tell(self, word: bytes) -> None:
        """Say the first word."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(word + b"\n")

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def forget(self) -> None:
        """Leave it to the process that started it: this one was forked, and must not keep the pipe open."""
        self._end_input()
        self._process.returncode = 0  # it is no child of ours: nothing is to be waited for

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
