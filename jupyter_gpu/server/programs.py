"""The facts about GPUs that a server passes to the programs that it starts: kernels, terminals and others."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.common import attached, rendezvous

from . import terminals
from .keys import ATTACHED_WRITER, BACKEND, LOCAL_ENDPOINT, VISIBLE_BY


def endpoint_of(server: Any) -> Any:
    """Return the endpoint by which the kernels of ``server`` find it; None if they must search for it."""
    return getattr(getattr(server, "web_app", None), "settings", {}).get(LOCAL_ENDPOINT)


def attached_file(server: Any) -> str | None:
    """Return the path of ``server``'s file of `attached`, kept up to date from now on; None without GPUs."""
    settings = getattr(getattr(server, "web_app", None), "settings", None)
    if settings is None:
        return None
    if ATTACHED_WRITER not in settings:
        backend = backend_of(server)
        if backend is None:
            return None
        endpoint = settings.get(LOCAL_ENDPOINT)
        alone = Path(server.runtime_dir) / f"jupyter-gpu-{rendezvous.here()}-{os.getpid()}.attached"
        writer = attached.AttachedWriter(endpoint.attached if endpoint else alone)
        writer(backend.view())
        backend.subscribe(writer)
        atexit.register(writer.remove)
        settings[ATTACHED_WRITER] = writer
    return str(settings[ATTACHED_WRITER].path)


def hint_of(server: Any) -> attached.Hint:
    """Return the current hint for programs of ``server``, which must have an `attached_file`."""
    backend = backend_of(server)
    assert backend is not None
    return attached.Hint.of(backend.view())


def prepare_terminals(server: Any) -> None:
    """Show terminals of ``server`` its GPUs. Call it when all extensions are loaded."""
    if path := attached_file(server):
        named_by = server.web_app.settings.get(VISIBLE_BY, "uuid")
        terminals.prepare(server, path, lambda: hint_of(server), named_by)


def forget_terminals(server: Any) -> None:
    """Undo `prepare_terminals`: the program around a server may go on."""
    if writer := server.web_app.settings.get(ATTACHED_WRITER):
        terminals.forget(str(writer.path))


def backend_of(server: Any) -> Backend | None:
    """Return the backend of ``server``; None before it has started."""
    found: Backend | None = server.web_app.settings.get(BACKEND)
    return found
