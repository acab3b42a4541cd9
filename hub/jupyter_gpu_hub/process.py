"""The service's process: all parts, joined. If one that should run for ever ends, the process ends and is restarted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tornado.netutil import bind_sockets

from jupyter_gpu.common.parents import started
from jupyter_gpu.common.parts import first_to_end
from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.kube import Kube, credentials
from jupyter_gpu_hub.login import Login

from .rules.removed import OBJECT
from .settings import HubServiceSettings, MachineSettings, check_environment, hub_name, listen_on
from .state.hub_api import HubAddress, HubApi
from .state.machine.files import Paths
from .state.machine.store import MachineStore
from .state.parent import until_gone
from .state.site import Site
from .web.app import application, server

_log = logging.getLogger(__name__)


async def run(settings: HubServiceSettings, stop: asyncio.Event, environ: Mapping[str, str] = os.environ) -> None:
    """Run until ``stop``, or until the hub that started this process is gone.

    Raises `SettingsError`, `NoCredentials`, and what ended it otherwise.
    """
    check_environment(environ)
    parent = os.getppid()
    hub = (parent, started(parent)) if is_hub(parent) else None
    async with _site(settings, environ) as site:
        web = server(application(site, Login.instance(settings), settings))
        host, port = listen_on(settings, environ)
        web.add_sockets(bind_sockets(port, host))
        _log.info("Limits of hub %r, on %s port %d.", site.hub, host, port)
        parts: dict[str, Coroutine[object, object, object]] = {"the site": site.run(), "stop": stop.wait()}
        if hub:
            parts["the hub"] = until_gone(*hub)
        try:
            if "the hub" in await first_to_end(parts):
                _log.info("The hub that started this service has ended.")
        finally:
            web.stop()
            await site.feed.close()
            await web.close_all_connections()


@asynccontextmanager
async def _site(settings: HubServiceSettings, environ: Mapping[str, str]) -> AsyncIterator[Site]:
    """Yield the site over the store that the settings choose."""
    hub = HubApi(_address(environ))
    if settings.store == "machine":
        name = hub_name(settings, environ, "")
        machine = MachineStore(machine_paths(settings.machine), name, settings.zone)
        yield Site(machine, hub, name, settings, mirrored=machine.mirrored)
        return
    async with Kube(credentials.load(settings.kubeconfig), user_agent="jupyter-gpu-hub") as kube:
        yield Site(kube, hub, hub_name(settings, environ, kube.namespace), settings)


def machine_paths(settings: MachineSettings) -> Paths:
    """Return the places of a machine's files. Raises `SettingsError` where servers would not trust what is written."""
    state = settings.state or default_path()
    found = Paths(settings.limits, state, settings.folder / f"{OBJECT}.json")
    try:
        owners = found.owners
    except OSError as error:
        raise SettingsError(
            f"The state directory {state} can't be used ({error.strerror}): start the process that counts GPU-hours "
            "first, which makes it."
        ) from None
    if os.geteuid() not in owners:
        raise SettingsError(
            f"Servers would not use limits that user {os.geteuid()} writes: have a hub that runs as root start this "
            "service."
        )
    return found


def is_hub(pid: int) -> bool:
    """Tell whether a process is a hub: the parent of a service that a hub starts, and of no other."""
    try:
        return b"jupyterhub" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _address(environ: Mapping[str, str]) -> HubAddress:
    return HubAddress(
        url=environ["JUPYTERHUB_API_URL"],
        token=environ["JUPYTERHUB_API_TOKEN"],
        key=environ.get("JUPYTERHUB_SSL_KEYFILE", ""),
        certificate=environ.get("JUPYTERHUB_SSL_CERTFILE", ""),
        authorities=environ.get("JUPYTERHUB_SSL_CLIENT_CA", ""),
    )
