"""Pure: when the next process that stands by is started.

A while after one was taken. If one ends before that, or can't start, it is after a pause, which doubles each time until
one was of use again.
"""

from __future__ import annotations

AFTER = 1.0
"""Seconds from the moment when one is taken to the start of the next."""
FIRST_PAUSE, LAST_PAUSE = 1.0, 300.0
"""Seconds from the end of one that nobody took to the start of the next."""


class StandbyTimes:
    """The time of the next start. ``due``: when the first may start, in seconds of any clock."""

    def __init__(self, due: float) -> None:
        self._due, self._pause = due, FIRST_PAUSE

    def wait(self, now: float) -> float:
        """Return the seconds until one is to be started, if none stands by."""
        return max(0.0, self._due - now)

    def taken(self, now: float) -> None:
        """Note that one was asked for, whether or not there was one."""
        self._due = max(self._due, now + AFTER)

    def worked(self) -> None:
        """Note that one was of use."""
        self._pause = FIRST_PAUSE

    def failed(self, now: float) -> None:
        """Note that one could not be started, or ended."""
        self._due = now + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE)
