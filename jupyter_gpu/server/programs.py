"""The facts about its GPUs that a server gives to all programs it starts, kernels and others."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.common import attached, rendezvous

from . import terminals

VISIBLE_BY = "jupyter_gpu_visible_by"
_VIEWERS, _LOCAL_ENDPOINT = "jupyter_gpu_viewers", "jupyter_gpu_local_endpoint"
"""Keys as in `routes`, which is not imported here: kernels without the extension do not need it."""
_SETTING = "jupyter_gpu_attached_file"


def endpoint_of(server: Any) -> Any:
    """Return the endpoint by which the kernels of ``server`` find it; None: they search for it."""
    return getattr(getattr(server, "web_app", None), "settings", {}).get(_LOCAL_ENDPOINT)


def attached_file(server: Any) -> str | None:
    """Return the path of ``server``'s file of `attached`, kept from now on; None without GPUs."""
    settings = getattr(getattr(server, "web_app", None), "settings", None)
    if settings is None:
        return None
    if _SETTING not in settings:
        backend = backend_of(server)
        if backend is None:
            return None
        endpoint = settings.get(_LOCAL_ENDPOINT)
        alone = Path(server.runtime_dir) / f"jupyter-gpu-{rendezvous.here()}-{os.getpid()}.attached"
        writer = attached.AttachedWriter(endpoint.attached if endpoint else alone)
        writer(backend.view())
        backend.subscribe(writer)
        atexit.register(writer.remove)
        settings[_SETTING] = writer
    return str(settings[_SETTING].path)


def hint_of(server: Any) -> attached.Hint:
    """Return the hint for programs of ``server`` now; only where it has an `attached_file`."""
    backend = backend_of(server)
    assert backend is not None
    return attached.Hint.of(backend.view())


def prepare_terminals(server: Any) -> None:
    """Give terminals of ``server`` its GPUs, as soon as all its extensions are loaded."""
    if path := attached_file(server):
        named_by = server.web_app.settings.get(VISIBLE_BY, "uuid")
        terminals.prepare(server, path, lambda: hint_of(server), named_by)


def forget_terminals(server: Any) -> None:
    """Undo `prepare_terminals`: the program around a server may go on."""
    if writer := server.web_app.settings.get(_SETTING):
        terminals.forget(str(writer.path))


def backend_of(server: Any) -> Backend | None:
    """Return the backend of ``server``; None before it has started."""
    found: Backend | None = getattr(server.web_app.settings.get(_VIEWERS), "backend", None)
    return found
