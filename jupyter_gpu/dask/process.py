"""``python -m jupyter_gpu.dask.process``: Dask's scheduler, a worker or a keeper of results, the child of a program.

Its first line of standard input says which (`words`); the end of that pipe ends it, also if the program was killed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import signal
import ssl
import sys
from contextlib import redirect_stdout
from typing import Any

import dask
from distributed.security import Security

from jupyter_gpu.common.rules import visible
from jupyter_gpu.dask.comm import PlaceBackend
from jupyter_gpu.dask.gateway import NotebookGateway
from jupyter_gpu.dask.nodes import ResultKeeper, UserScheduler, UserWorker
from jupyter_gpu.dask.printed import Printed
from jupyter_gpu.dask.rules.targets import HERE
from jupyter_gpu.dask.rules.words import Keep, Ready, Schedule, Work
from jupyter_gpu.remote.rules.control import MAX_BYTES, read

PAGES = ("scheduler.prometheus", "scheduler.info", "scheduler.json", "health", "statics")
SETTINGS = {
    "distributed.scheduler.active-memory-manager.start": True,  # it moves what a worker has that retires
    "distributed.scheduler.active-memory-manager.policies": [{"class": "jupyter_gpu.dask.retiring.ReduceCopies"}],
    "distributed.scheduler.allowed-failures": 1,  # a task that ends its worker would end more of them
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.comm.timeouts.connect": "20s",
    "distributed.diagnostics.nvml": False,  # NVML opens every GPU and keeps it open, also in the scheduler
    # What changes nothing, and needs no package that may be missing.
    "distributed.scheduler.http.routes": [f"distributed.http.{name}" for name in PAGES],
    "distributed.worker.http.routes": [],
}
"""A process that vanished is noticed soon."""
DEATH = 20.0
"""Seconds that a worker lives without a scheduler."""
LAST = 5
"""Seconds that the end of a process may take."""


def security(pem: bytes) -> Any:
    """Return the settings by which only those with the same key are let in, in all roles."""
    text = pem.decode()
    roles = {f"tls_{role}_{part}": text for role in ("client", "scheduler", "worker") for part in ("cert", "key")}
    made: Any = Security  # it has no types
    return made(require_encryption=True, tls_ca_file=text, tls_min_version=ssl.TLSVersion.TLSv1_3, **roles)


async def serve(word: Schedule | Work | Keep, answer: int) -> None:
    """Run until the pipe or the node itself ends. ``answer``: the descriptor for `Ready`."""
    keys = security(base64.b64decode(word.certificate))
    leash = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, leash.set)
    common: dict[str, Any] = {"security": keys, "protocol": word.scheme}
    gateway: NotebookGateway | None = None
    if isinstance(word, Schedule):
        gateway = NotebookGateway(base64.b64decode(word.certificate))
        await gateway.start()
        PlaceBackend(word.scheme, HERE, gateway.port).register()
        node: Any = UserScheduler(next(iter(word.pages), None), gateway, host=HERE, **common)
    elif isinstance(word, Keep):
        PlaceBackend(word.scheme, HERE, word.gateway).register()
        common |= {"nthreads": 1, "memory_limit": 0, "death_timeout": DEATH}
        name = f"results/{secrets.token_hex(3)}"  # an earlier one may still be about to end
        node = ResultKeeper(word.scheduler, name=name, host=HERE, **common)
    else:
        sys.path[:] = word.path or sys.path
        visible.choose(os.environ, word.visible)  # nothing has asked for it yet
        PlaceBackend(word.scheme, word.place, word.gateway).register()
        # Memory has no limit of its own: it is the program's, or the pod's, whose memory a worker's is.
        common |= {"nthreads": 1, "memory_limit": 0, "resources": {"GPU": 1}, "death_timeout": DEATH}
        node = UserWorker(word.scheduler, name=word.name, host=word.place, **common)
    async with node:
        with os.fdopen(answer, "wb") as pipe:
            pipe.write(Ready(node.address, gateway.port if gateway else 0).dump() + b"\n")
        ends = [asyncio.create_task(leash.wait()), asyncio.create_task(node.finished())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        signal.alarm(LAST)  # nobody may be left who would kill it, and none whom it could tell that it leaves
    if gateway:
        gateway.close()


def main() -> None:
    """Read what to be, and be it."""
    with open(0, "rb", buffering=0, closefd=False) as line:
        word = read(line.readline(MAX_BYTES), Schedule, Work, Keep)
    assert isinstance(word, Schedule | Work | Keep)
    answer = os.dup(1)
    os.dup2(2, 1)  # nobody reads that pipe any more: whoever printed much into it would wait for ever
    with dask.config.set(SETTINGS), redirect_stdout(Printed()):
        asyncio.run(serve(word, answer))


if __name__ == "__main__":
    main()
