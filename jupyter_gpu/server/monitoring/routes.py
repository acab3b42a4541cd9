"""Routes that are rarely used: ``GET …/details`` and ``GET …/machine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model.errors import NotPermitted
from jupyter_gpu.server.handlers import RestHandler
from jupyter_gpu.server.keys import DETAILS, MACHINE, SHOW_MACHINE

from .recent import Recent

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import Details
    from jupyter_gpu.model.machine import Machine

DETAILS_SECONDS = 2.0
"""Seconds for which details are kept."""
MACHINE_SECONDS = 1.0
"""Seconds for which the view of the machine is kept."""


class DetailsHandler(RestHandler):
    """Limits, rates and memory by process of this server's GPUs."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with details that are at most some seconds old. Nothing is measured without a request."""
        viewers = await self.viewers()
        found = self.settings.get(DETAILS)
        if not isinstance(found, Recent):
            found = self.settings[DETAILS] = Recent(viewers.backend.details, DETAILS_SECONDS)
        details: Details = await found.now()
        self.answer(details.to_json())


class MachineHandler(RestHandler):
    """All GPUs of the machine, the servers that have them, and those that wait."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with what the administrator lets users see."""
        viewers = await self.viewers()
        shown = self.settings[SHOW_MACHINE]
        if shown == "nobody":
            raise NotPermitted(
                "This server does not show who uses the machine: c.GpuExtension.show_machine is 'nobody'."
            )
        found = self.settings.get(MACHINE)
        if not isinstance(found, Recent):
            from jupyter_gpu.model.machine import Shown

            wanted = Shown(shown)
            found = self.settings[MACHINE] = Recent(lambda: viewers.backend.machine(wanted), MACHINE_SECONDS)
        machine: Machine = await found.now()
        self.answer(machine.to_json())
