"""The server's account of its use of GPUs, which costs a few sums at each change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.view import Sample, View
from jupyter_gpu.server.rules import accounting
from jupyter_gpu.server.rules.accounting import HoldingAccount

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.usage import Usage


class UsageAccount:
    """The account of one server, from its start on.

    ``interval``: seconds between two samples; ``clock`` never goes back.
    """

    def __init__(self, backend: Backend, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._interval = clock, interval
        self._since, self._start = time.time(), clock()  # a time of day to show; no decision sees it
        self._account = HoldingAccount(self._start)
        self._see(backend.view())
        self._unsubscribe = backend.subscribe(self._see)

    def count(self, sample: Sample) -> None:
        """Count a sample that was taken for others."""
        self._account = accounting.sampled(self._account, sample, self._clock(), self._interval)

    def usage(self) -> Usage:
        """Return what was used until now."""
        now = self._clock()
        self._account = accounting.advanced(self._account, now)
        return self._account.usage(self._since, now - self._start)

    def stop(self) -> None:
        """Stop counting."""
        self._unsubscribe()

    def _see(self, view: View) -> None:
        self._account = accounting.seen(self._account, view, self._clock())
