"""Checks of processes that may block the reader: they run in a thread, and the event loop waits only for a moment.

Reading the environment of a process takes its memory's lock, which the process can keep for seconds; and while it
replaces its program there is nothing to read. A process that could not be checked in time is refused, and gets the
answer when it connects again, as a gate does after some milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

PATIENCE = 0.005
"""Seconds that the event loop waits for a check …"""
REST = 1.0
"""… but not at all for so long after one that took longer."""
MOST = 256
"""Checks that are under way, or whose answer was not fetched."""
NOT_YET = "it could not be checked in time, and is checked again when it connects again"


class ProcessChecks:
    """Checks of the processes of one user: those of other users do not wait for them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, thread: ThreadPoolExecutor | None = None) -> None:
        self._clock = clock
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="check")
        self._asked: dict[Hashable, Future[str]] = {}
        self._slow = float("-inf")

    @property
    def unfetched(self) -> int:
        """Number of checks that are under way, or whose answer was not fetched."""
        return len(self._asked)

    def ask(self, key: Hashable, check: Callable[[], str]) -> str:
        """Return the answer of ``check``, or `NOT_YET`: then a later call with that key goes on with it."""
        future = self._asked.pop(key, None)
        if future is None:
            if len(self._asked) >= MOST and not self._forget():
                return NOT_YET
            future = self._thread.submit(check)
        try:
            return future.result(PATIENCE if self._clock() >= self._slow + REST else 0)
        except TimeoutError:
            self._slow = self._clock()
            self._asked[key] = future
            return NOT_YET

    def close(self) -> None:
        """Ask nothing more; what is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> bool:
        """Forget the answers that were not fetched; tell whether there were any."""
        done = [key for key, future in self._asked.items() if future.done()]
        for key in done:
            del self._asked[key]
        return bool(done)
