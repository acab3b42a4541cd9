"""Reasons why the cluster cannot be reached, by the part that needs it; a reason that lasts is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

GRACE = 0.5
"""Seconds that the API server may be away before the view says so: a connection that is cut is harmless."""


class Trouble:
    """The reasons by source. ``tell`` is called with one that lasts `GRACE` seconds, and with "" as soon as there is
    none.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._reasons: dict[str, str] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def set(self, source: str, why: str) -> None:
        """Set the reason of ``source``; ``why`` is empty if there is none."""
        before = self._reasons.get(source, "")
        self._reasons[source] = why
        if why == before:
            return
        if not any(self._reasons.values()):
            self.silence()
            self._tell("")
        elif self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(GRACE, self._told)

    def silence(self) -> None:
        """Call ``tell`` no more."""
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None

    def _told(self) -> None:
        self._alarm = None
        self._tell(next(filter(None, self._reasons.values()), ""))
