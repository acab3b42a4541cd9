"""Rate limit of connections to the shares of one pod: each costs the server a quarter of a millisecond. Pure.

Connections in a loop, on purpose or because programs end at once, take that time from the turns of all others. So each
user of a pod has a rate, with a reserve for programs of many processes. Connections beyond it are closed unread, and
only a limited number of those is accepted at all. One user cannot use up the allowance of another user of the pod.
"""

from __future__ import annotations

RATE = 20
"""Connections of one user in a second, in the long run: half a hundredth of a core."""
RESERVE = 320
"""Connections that may come at once: all that one share can have, and some more."""
USERS = 64
"""Most users that are distinguished; further ones count as one."""
PAUSE = 0.1
"""Seconds for which nothing is taken after some were refused."""


class Pace:
    """The pace of one pod. Times are seconds."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[float, float]] = {}
        """Connections that each user has left, and the time of that count."""
        self.until = 0.0
        """Time before which nothing is taken."""

    @property
    def users(self) -> int:
        """Number of users that are remembered."""
        return len(self._left)

    def takes(self, user: int, now: float) -> bool:
        """Count a connection of that user; tell whether it is allowed."""
        if user not in self._left and len(self._left) >= USERS:
            self._forget(now)
            user = user if len(self._left) < USERS else -1
        left = self._has(user, now)
        latest = max(now, self._left.get(user, (0.0, now))[1])  # no time counts twice, should the clock go back
        self._left[user] = (left - 1 if left >= 1 else left, latest)
        if left < 1:
            self.refused(now)
        return left >= 1

    def refused(self, now: float) -> None:
        """Note that a connection was closed at once: the next ones wait."""
        self.until = now + PAUSE

    def rests(self, now: float) -> bool:
        """Tell whether nothing is left to remember."""
        self._forget(now)
        return not self._left

    def _has(self, user: int, now: float) -> float:
        left, at = self._left.get(user, (RESERVE, now))
        return min(RESERVE, left + RATE * max(0.0, now - at))

    def _forget(self, now: float) -> None:
        self._left = {user: one for user, one in self._left.items() if self._has(user, now) < RESERVE}
