"""Pure: for how long a worker's kernel has surely had no client.

A socket hears of each connection when it is made, before its end has proved a key; and it hears that somebody has
proved one, but not by which connection. A stranger's connection ends when the time for a proof is over. So one that
lasts longer is a client's, and one that ends earlier was a client's if somebody proved a key meanwhile: a stranger who
comes again and again keeps no kernel.
"""

from __future__ import annotations

import math

PROOF = 6.0
"""Seconds after which a connection has proved its key: ZeroMQ ends those that did not within five."""


class ClientTimes:
    """The connections to a kernel, and when the last client was there. Times are in seconds of any clock."""

    def __init__(self, now: float) -> None:
        self._since: dict[int, float] = {}
        self._last = now
        """The last time at which a client was there for certain; the kernel's start counts as one."""
        self._proved = -math.inf
        """The time at which a key was proved last."""

    def made(self, connection: int, now: float) -> None:
        """Note a connection, of whomever."""
        self._since[connection] = now

    def proved(self, now: float) -> None:
        """Note that one of the connections is a client's."""
        self._last = self._proved = now

    def ended(self, connection: int, now: float) -> None:
        """Note the end of a connection."""
        since = self._since.pop(connection, now)
        if now - since > PROOF or self._proved >= since:
            self._last = now

    def alone(self, now: float) -> float:
        """Return the seconds for which there has surely been no client, until the first connection that may be one."""
        first = min(self._since.values(), default=now)
        if now - first > PROOF:
            self._last = now
        return max(0.0, first - self._last)
