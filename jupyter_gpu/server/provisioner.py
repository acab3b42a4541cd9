"""Prepares every kernel for GPUs that are attached while it runs, without configuration by its user.

A kernel provisioner (entry point ``jupyter-gpu``) is the public way to do that: it adds environment variables and, for
Python kernels run by ipykernel, one argument that loads `startup`. The server extension makes it the default; a kernel
spec that names its own provisioner keeps that one. What the user has set in the environment or the kernel spec wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from jupyter_gpu.common import attached, rendezvous
from jupyter_gpu.common.rules import visible
from jupyter_gpu.server.rules import launching

from .keys import STARTING, VISIBLE_BY
from .programs import attached_file, backend_of, endpoint_of, hint_of

ENVIRONMENT = {
    # is_available() asks NVML, which looks again each time, and not CUDA, which looks once.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # The order of nvidia-smi, of the panel and of `gpu.devices`.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
# Without the working directory, as in ipykernel_launcher.
_PROBE = "import sys; del sys.path[0]; import importlib.util as u; sys.exit(u.find_spec('jupyter_gpu') is None)"
_PROBE_SECONDS = 10.0
_SLOW, _NO_SECONDS = 1.0, 300.0
"""Seconds from which on a probe counts as slow, and for which its "no" is kept then: the package may be installed."""


class GpuProvisioner(LocalProvisioner):
    """A provisioner that starts kernels on this machine as the stock one does, ready for GPUs."""

    unguarded = ""
    """Why the kernel has no CUDA guard; empty: it has one, or is not a Python kernel."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare the environment and the command of the kernel, at each start and restart."""
        await wait_until_started(self._server())
        kwargs = await super().pre_launch(**kwargs)
        env: dict[str, str] = kwargs["env"]
        for name, value in ENVIRONMENT.items():
            env.setdefault(name, value)
        try:
            if endpoint := endpoint_of(self._server()):
                env[rendezvous.FILE] = endpoint.file
            if path := attached_file(self._server()):
                env[attached.VARIABLE] = path
                env.setdefault(visible.NAMED_BY, self._server().web_app.settings.get(VISIBLE_BY, "uuid"))
                env.update(await prepared_by(self._server(), env))
                _apply(env, visible.start(env, os.environ, hint_of(self._server())))
            if self.kernel_spec.language == "python":
                kwargs["cmd"] = await self._guarded(kwargs["cmd"], env)
        except Exception:  # a kernel without the guard is better than no kernel
            self.log.warning("The kernel starts without the CUDA guard of jupyter-gpu.", exc_info=True)
        return kwargs

    async def _guarded(self, command: list[str], env: dict[str, str]) -> list[str]:
        """Return ``command``, with the guard if that is possible."""
        launch = launching.read(command)
        self.unguarded = ""
        if launch is None:
            why = "it is not known how its command starts ipykernel"
        elif await has_jupyter_gpu(launch, env):
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


async def wait_until_started(server: Any) -> None:
    """Wait until the GPUs are guarded: no kernel may start before, also if a server is embedded in a program."""
    settings = getattr(getattr(server, "web_app", None), "settings", {})
    starting: asyncio.Task[None] | None = settings.get(STARTING)
    if starting is not None:
        await asyncio.wait([starting])


def _apply(env: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value


async def prepared_by(server: Any, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the backend of ``server`` adds to a kernel with the environment ``env``."""
    backend = backend_of(server)
    prepared = dict(getattr(backend, "environment", {}))
    if search_path := getattr(backend, "search_path", None):
        prepared.update(await search_path(env))
    return prepared


_known: dict[tuple[str, ...], tuple[bool, float]] = {}


async def has_jupyter_gpu(launch: launching.Launch, env: dict[str, str]) -> bool:
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
