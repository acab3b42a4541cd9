"""The preparation of every kernel for GPUs that come while it runs, with no configuration by its user.

A kernel provisioner (entry point ``jupyter-gpu``) is the public place for that: it adds environment variables and, for
Python kernels run by ipykernel, one argument that loads `startup`. The server extension makes it the default; a kernel
spec that names its own provisioner keeps that one. What the user has set in the environment or the kernel spec wins.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from . import attached, discover, launching, terminals, visible
from .backend import Backend

ENVIRONMENT = {
    # is_available() asks NVML, which looks again each time, and not CUDA, which looks once.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # The order of nvidia-smi, of the panel and of `gpu.devices`.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
# As ipykernel_launcher does it, without the working directory.
_PROBE = "import sys; del sys.path[0]; import importlib.util as u; sys.exit(u.find_spec('jupyter_gpu') is None)"
_PROBE_SECONDS = 10.0
_SLOW, _NO_SECONDS = 1.0, 300.0
"""Seconds from which a question was slow, and for which its "no" is then believed: what is missing may be installed."""
_SETTING = "jupyter_gpu_attached_file"
_VISIBLE_BY = "jupyter_gpu_visible_by"
_VIEWERS, _STARTING, _DOOR = "jupyter_gpu_viewers", "jupyter_gpu_starting", "jupyter_gpu_door"
"""Keys as in `routes`, which is not imported here: kernels without the extension do not need it."""


class GpuProvisioner(LocalProvisioner):
    """A provisioner that starts kernels on this machine as the stock one does, ready for GPUs."""

    unguarded = ""
    """Reason the kernel has no CUDA guard; empty: it has one, or is not of Python."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare the environment and the command of the kernel, at each start and restart."""
        await taken_up(self._server())
        kwargs = await super().pre_launch(**kwargs)
        env: dict[str, str] = kwargs["env"]
        for name, value in ENVIRONMENT.items():
            env.setdefault(name, value)
        try:
            if door := door_of(self._server()):
                env[discover.FILE] = door.file
            if path := attached_file(self._server()):
                env[attached.VARIABLE] = path
                env.setdefault(visible.NAMED_BY, self._server().web_app.settings.get(_VISIBLE_BY, "uuid"))
                env.update(await prepared_by(self._server(), env))
                _apply(env, visible.start(env, os.environ, hint_of(self._server())))
            if self.kernel_spec.language == "python":
                kwargs["cmd"] = await self._guarded(kwargs["cmd"], env)
        except Exception:  # a kernel without the guard is better than no kernel
            self.log.warning("The kernel starts without the CUDA guard of jupyter-gpu.", exc_info=True)
        return kwargs

    async def _guarded(self, command: list[str], env: dict[str, str]) -> list[str]:
        """Return ``command``, with the guard where that is possible."""
        launch = launching.read(command)
        self.unguarded = ""
        if launch is None:
            why = "it is not known how its command starts ipykernel"
        elif await has_us(launch, env):
            return launch.guarded()
        else:
            why = "its Python has no jupyter_gpu"
        self.unguarded = why
        self.log.info(
            "Kernel %s starts without the CUDA guard: %s. It is set up when jupyter_gpu is imported there.",
            self.kernel_id,
            why,
        )
        return command

    def _server(self) -> Any:
        """Return the Jupyter server: parent of the kernel manager's parent; None for a kernel outside a server."""
        return getattr(getattr(self.parent, "parent", None), "parent", None)


async def taken_up(server: Any) -> None:
    """Wait until the GPUs are guarded: no kernel may be older, also where a server is embedded in a program."""
    settings = getattr(getattr(server, "web_app", None), "settings", {})
    starting: asyncio.Task[None] | None = settings.get(_STARTING)
    if starting is not None:
        await asyncio.wait([starting])


def door_of(server: Any) -> Any:
    """Return the door by which the kernels of ``server`` find it; None: they look for it."""
    return getattr(getattr(server, "web_app", None), "settings", {}).get(_DOOR)


def attached_file(server: Any) -> str | None:
    """Return the path of ``server``'s file of `attached`, kept from now on; None if it has no GPUs to tell of."""
    settings = getattr(getattr(server, "web_app", None), "settings", None)
    if settings is None:
        return None
    if _SETTING not in settings:
        backend = _backend(server)
        if backend is None:
            return None
        door = settings.get(_DOOR)
        alone = Path(server.runtime_dir) / f"jupyter-gpu-{discover.here()}-{os.getpid()}.attached"
        writer = attached.Writer(door.attached if door else alone)
        writer(backend.view())
        backend.subscribe(writer)
        atexit.register(writer.remove)
        settings[_SETTING] = writer
    return str(settings[_SETTING].path)


def hint_of(server: Any) -> attached.Hint:
    """Return the hint for programs of ``server`` now; only where it has an `attached_file`."""
    backend = _backend(server)
    assert backend is not None
    return attached.Hint.of(backend.view())


def prepare_terminals(server: Any) -> None:
    """Have what ``server`` starts beside kernels know its GPUs: as soon as all its extensions are loaded."""
    if path := attached_file(server):
        named_by = server.web_app.settings.get(_VISIBLE_BY, "uuid")
        terminals.prepare(server, path, lambda: hint_of(server), named_by)


def forget_terminals(server: Any) -> None:
    """Undo :func:`prepare_terminals`: the program around a server may go on."""
    if writer := server.web_app.settings.get(_SETTING):
        terminals.forget(str(writer.path))


def _backend(server: Any) -> Backend | None:
    found: Backend | None = getattr(server.web_app.settings.get(_VIEWERS), "backend", None)
    return found


def _apply(env: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value


async def prepared_by(server: Any, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the backend of ``server`` wants a kernel with the environment ``env`` to have."""
    backend = _backend(server)
    prepared = dict(getattr(backend, "environment", {}))
    if search_path := getattr(backend, "search_path", None):
        prepared.update(await search_path(env))
    return prepared


_known: dict[tuple[str, ...], tuple[bool, float]] = {}


async def has_us(launch: launching.Launch, env: dict[str, str]) -> bool:
    """Tell whether the Python of ``launch`` can import this package: kernels of other environments often cannot."""
    if launch.direct == sys.executable:
        return True
    question = launch.asking(_PROBE)
    key = tuple(question)
    answer, until = _known.get(key, (False, 0.0))
    if time.monotonic() >= until:
        began = time.monotonic()
        answer = await _asked(question, env)
        now = time.monotonic()
        _known[key] = (answer, math.inf if answer else now + (_NO_SECONDS if now - began > _SLOW else 0.0))
    return answer


async def _asked(question: list[str], env: dict[str, str]) -> bool:
    process = await asyncio.create_subprocess_exec(
        *question,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return await asyncio.wait_for(process.wait(), _PROBE_SECONDS) == 0
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too
        await process.wait()
        return False
