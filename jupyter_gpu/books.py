"""The server's account of what it used, and the address that tells it. It costs a few sums at each change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from jupyter_server.auth.decorator import authorized
from tornado import web

from . import accounting
from .accounting import Account
from .backend import Backend
from .model.errors import BackendUnavailable
from .model.usage import Usage
from .model.view import Sample, View
from .routes import ApiHandler

BOOKS = "jupyter_gpu_books"
"""Key in the settings of the web application: the :class:`Books`."""


class Books:
    """The account of one server, from its start on.

    ``interval``: seconds between two samples; ``clock`` never goes back.
    """

    def __init__(self, backend: Backend, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._interval = clock, interval
        self._since, self._start = time.time(), clock()  # a time of day to show; no decision sees it
        self._account = Account(self._start)
        self._see(backend.view())
        self._unsubscribe = backend.subscribe(self._see)

    def hear(self, sample: Sample) -> None:
        """Count a sample that was taken for others."""
        self._account = accounting.sampled(self._account, sample, self._clock(), self._interval)

    def usage(self) -> Usage:
        """Tell what was used until now."""
        now = self._clock()
        self._account = accounting.advanced(self._account, now)
        return self._account.usage(self._since, now - self._start)

    def stop(self) -> None:
        """Count no more."""
        self._unsubscribe()

    def _see(self, view: View) -> None:
        self._account = accounting.seen(self._account, view, self._clock())


class UsageHandler(ApiHandler):
    """The use of GPUs since this server started."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer it with what the accounts of shares say just now."""
        viewers = await self.viewers()
        with contextlib.suppress(BackendUnavailable):  # then with what they said last
            await viewers.sampler.now()
        books: Books = self.settings[BOOKS]
        self.answer(books.usage().to_json())
