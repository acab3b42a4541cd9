"""Limits on the rate of requests: a bucket of tokens for each client. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MOST = 10_000
"""Clients that are remembered; the one that was silent longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests that are allowed: ``burst`` at once, then ``per_second``."""

    per_second: float
    burst: float


class RateLimiter:
    """The buckets of all clients. A full bucket and none are the same, so forgetting costs nothing."""

    def __init__(self, rate: Rate, most: int = MOST) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → tokens, and when

    def wait(self, client: str, now: float, *, take: bool = True) -> float:
        """Take a token, and return 0; if there is none, return the seconds until there is one. ``now``: seconds.

        ``take``: false to look whether there is one.
        """
        rate = self._rate
        tokens, then = self._buckets.pop(client, (rate.burst, now))
        tokens = min(rate.burst, tokens + max(0.0, now - then) * rate.per_second)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed and take else tokens, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / rate.per_second
