"""The clocks of a scheduler process, which tests replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """A clock for durations, and one for the time of day."""

    elapsed: Callable[[], float] = time.monotonic
    """Returns seconds, and never goes back."""
    now: Callable[[], float] = time.time
    """Returns the seconds since 1970."""
