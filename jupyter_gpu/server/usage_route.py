"""The route of the server's use of GPUs since it started: ``GET …/usage``."""

from __future__ import annotations

import contextlib

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model.errors import BackendUnavailable

from .handlers import RestHandler
from .keys import USAGE_ACCOUNT
from .usage_account import UsageAccount


class UsageHandler(RestHandler):
    """The use of GPUs since this server started."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the use, and the latest accounts of shares."""
        viewers = await self.viewers()
        with contextlib.suppress(BackendUnavailable):  # then the last accounts are returned
            await viewers.sampler.now()
        account: UsageAccount = self.settings[USAGE_ACCOUNT]
        self.answer(account.usage().to_json())
