"""The route of the server's facts for ``jupyter gpu doctor``: ``GET …/doctor``."""

from __future__ import annotations

import asyncio

from jupyter_server.auth.decorator import authorized
from tornado import web

from .handlers import RestHandler
from .keys import STATE_DIR


class FactsHandler(RestHandler):
    """The facts that ``jupyter gpu doctor`` asks the server for."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the facts. NVML stays out of this process."""
        from jupyter_gpu.doctor import probe

        kernels = probe.kernels_of(self.settings["kernel_manager"])
        state: str = self.settings[STATE_DIR]
        self.answer((await asyncio.to_thread(probe.collect_facts, state, kernels, driver=False)).to_json())
