"""Routes of what is looked at now and then: ``GET …/details``."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model.details import Details
from jupyter_gpu.routes import ApiHandler

from .recent import Recent

DETAILS = "jupyter_gpu_details"
"""Key in the settings of the web application: what is known of the GPUs beside their load."""
DETAILS_SECONDS = 2.0
"""For which it is good."""


class DetailsHandler(ApiHandler):
    """Limits, rates and memory by process of this server's GPUs."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """No older than some seconds. Nothing is measured unless somebody asks."""
        viewers = await self.viewers()
        found = self.settings.get(DETAILS)
        if not isinstance(found, Recent):
            found = self.settings[DETAILS] = Recent(viewers.backend.details, DETAILS_SECONDS)
        details: Details = await found.now()
        self.answer(details.to_json())


HANDLERS: list[tuple[str, type[Any]]] = [("details", DetailsHandler)]
"""By what stands after the version in their address."""
