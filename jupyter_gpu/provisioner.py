"""Prepares every kernel for GPUs that come while it runs, with no configuration by its user.

A kernel provisioner (entry point ``jupyter-gpu``) is the public place for that: it adds environment variables and, for
Python kernels run by ipykernel, one argument that loads `startup`. The server extension makes it the default; a kernel
spec that names its own provisioner keeps that one. What the user has set in the environment or the kernel spec wins.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from . import attached
from .backend import Backend

ARGUMENT = "--IPKernelApp.extra_extensions=jupyter_gpu.startup"
ENVIRONMENT = {
    # is_available() asks NVML, which looks again each time, and not CUDA, which looks once.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # The order of nvidia-smi, of the panel and of `gpu.devices`.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")
# As ipykernel_launcher does it, without the working directory.
_PROBE = "import sys; del sys.path[0]; import importlib.util as u; sys.exit(u.find_spec('jupyter_gpu') is None)"
_PROBE_SECONDS = 10.0
_SETTING = "jupyter_gpu_attached_file"
_VIEWERS, _STARTING = "jupyter_gpu_viewers", "jupyter_gpu_starting"
"""As in `routes`, which is not imported here: kernels without the extension do not need it."""


class GpuProvisioner(LocalProvisioner):
    """Starts kernels on this machine, as the stock provisioner does, ready for GPUs."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """At each start and restart: the environment and the command of the kernel."""
        await taken_up(self._server())
        kwargs = await super().pre_launch(**kwargs)
        env: dict[str, str] = kwargs["env"]
        for name, value in ENVIRONMENT.items():
            env.setdefault(name, value)
        try:
            if path := attached_file(self._server()):
                env[attached.VARIABLE] = path
                env.update(await prepared_by(self._server(), env))
            command: list[str] = kwargs["cmd"]
            if self.kernel_spec.language == "python" and runs_ipykernel(command) and await _has_us(command[0], env):
                kwargs["cmd"] = [*command, ARGUMENT]
        except Exception:  # a kernel without the guard is better than no kernel
            self.log.warning("The kernel starts without the CUDA guard of jupyter-gpu.", exc_info=True)
        return kwargs

    def _server(self) -> Any:
        """The Jupyter server: parent of the kernel manager's parent; None for a kernel outside a server."""
        return getattr(getattr(self.parent, "parent", None), "parent", None)


def runs_ipykernel(command: Sequence[str]) -> bool:
    """Whether ``command`` is ``python … -m ipykernel_launcher …``; options of Python may stand between."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):  # noqa: PTH119 - an argument, no path
        return False
    after_m = [command[i + 1] for i, word in enumerate(command[:-1]) if word == "-m"]
    return bool(after_m) and after_m[0] in ("ipykernel_launcher", "ipykernel") and ARGUMENT not in command


async def taken_up(server: Any) -> None:
    """Until the GPUs are guarded: no kernel may be older than that, also where a server is embedded in a program."""
    settings = getattr(getattr(server, "web_app", None), "settings", {})
    starting: asyncio.Task[None] | None = settings.get(_STARTING)
    if starting is not None:
        await asyncio.wait([starting])


def attached_file(server: Any) -> str | None:
    """Path of the file of `attached` of ``server``, which is kept from now on; None if it has no GPUs to tell of."""
    settings = getattr(getattr(server, "web_app", None), "settings", None)
    if settings is None:
        return None
    if _SETTING not in settings:
        backend: Backend | None = getattr(settings.get(_VIEWERS), "backend", None)
        if backend is None:
            return None
        writer = attached.Writer(Path(server.runtime_dir) / f"jupyter-gpu-{os.getpid()}.json")
        writer(backend.view())
        backend.subscribe(writer)
        atexit.register(writer.remove)
        settings[_SETTING] = writer
    return str(settings[_SETTING].path)


async def prepared_by(server: Any, env: Mapping[str, str]) -> dict[str, str]:
    """What the backend of ``server`` wants a kernel with the environment ``env`` to have in it."""
    backend = getattr(server.web_app.settings.get(_VIEWERS), "backend", None)
    prepared = dict(getattr(backend, "environment", {}))
    if search_path := getattr(backend, "search_path", None):
        prepared.update(await search_path(env))
    return prepared


_known: dict[str, bool] = {}


async def _has_us(python: str, env: dict[str, str]) -> bool:
    """Whether ``python`` can import this package: kernels of other environments often cannot."""
    if python == sys.executable:
        return True
    if not _known.get(python):  # what is missing may be installed later, so only a yes is kept
        process = await asyncio.create_subprocess_exec(
            *(python, "-c", _PROBE),
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            _known[python] = await asyncio.wait_for(process.wait(), _PROBE_SECONDS) == 0
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
    return _known[python]
