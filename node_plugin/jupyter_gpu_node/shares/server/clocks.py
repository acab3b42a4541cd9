"""The clocks of time shares."""

from __future__ import annotations

import time


def microseconds() -> int:
    """Return the time by which GPUs are shared, which never goes back, whatever happens to the time of day."""
    return time.monotonic_ns() // 1000


def milliseconds() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000
