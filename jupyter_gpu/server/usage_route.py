"""The address that tells what the server used since it started: ``GET …/usage``."""

from __future__ import annotations

import contextlib

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model.errors import BackendUnavailable

from .routes import BOOKS, ApiHandler
from .usage_account import UsageAccount


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
        books: UsageAccount = self.settings[BOOKS]
        self.answer(books.usage().to_json())
