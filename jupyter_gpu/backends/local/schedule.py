"""The time of the next reconcile that no event triggers, and the failures after which one is repeated."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator

from jupyter_gpu.model.errors import BackendUnavailable

from .records.store import StateStore, plain_errors

FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
"""Seconds between two scans for a device that should be closed: few at first, backing off."""
RETRY = 1.0
"""Seconds until something is tried again that failed, or that a dead pod prevents."""
LAST_RETRY = 60.0
"""The longest such pause, for what keeps failing."""

_log = logging.getLogger(__name__)


class Schedule:
    """The time of a pod's next reconcile, and what failed at the last one."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._pause = FIRST_PAUSE
        self._retry = RETRY
        self.due: float | None = None
        """On the clock of `time.monotonic`; None: only when something happens."""
        self.problem = ""
        """Failure of the last reconcile, in words; empty if there was none."""

    def restart(self) -> None:
        """Scan often again for devices that should be closed."""
        self._pause = FIRST_PAUSE

    def back_off(self) -> float:
        """Return the seconds until the next scan for a device that should be closed; more each time."""
        pause, self._pause = self._pause, min(self._pause * 1.5, LAST_PAUSE)
        return pause

    def plan(self, pauses: Iterable[float]) -> None:
        """Plan the next reconcile after the shortest of these; none if there are none."""
        pause = min(pauses, default=None)
        self.due = None if pause is None else time.monotonic() + pause

    def stop(self) -> None:
        """Plan no more."""
        self.due = None

    def succeeded(self) -> None:
        """Note that all went well."""
        self.problem = ""
        self._retry = RETRY

    def failed(self, error: BackendUnavailable) -> None:
        """Note a failure, and plan to try again."""
        if error.message != self.problem:
            _log.warning("%s", error.message)
        self.problem = error.message
        self.due = time.monotonic() + self._retry
        self._retry = min(self._retry * 2, LAST_RETRY)

    @contextlib.contextmanager
    def may_fail(self) -> Iterator[None]:
        """Show the failure of background work in the view, and try again later."""
        try:
            with plain_errors(self._store):
                yield
        except BackendUnavailable as error:
            self.failed(error)
