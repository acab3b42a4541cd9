"""`gpu.at_least`: one reservation of the server for each block.

GPUs are given back in a thread of its own, so that no interrupt and no cancelled task can prevent it. That thread
retries while the server does not answer. If this process ends before, the server notices that by itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from jupyter_gpu.common.rules import proc_stat
from jupyter_gpu.model.errors import GpuError, NotPermitted, ServerUnreachable
from jupyter_gpu.model.reservation import ReservationOwner

from .client import Client, delete_reservation
from .waiting import Patience, Steps, take

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from jupyter_gpu.kernel.reports.status import GpuStatus

    from .api import Runner

GRACE = 5.0
"""Seconds that the end of a block waits for the server's answer."""
_PATIENCE = 600.0
"""Seconds for which giving back is retried; after that, only the end of this process gives back."""


class AtLeast:
    """See `ServerGpus.at_least`. One instance can be entered again, also inside itself."""

    def __init__(self, gpu: Runner, milli: int, patience: Callable[[], Patience], *, together: bool = False) -> None:
        self._gpu, self._milli, self._patience, self._together = gpu, milli, patience, together
        self._keys: list[tuple[int, str]] = []

    def __enter__(self) -> GpuStatus:
        key = secrets.token_hex(16)
        try:
            status = self._gpu.run(self._take(key))
            self._keys.append((os.getpid(), key))
        except BaseException as error:
            job = GiveBack(self._gpu.client, key)
            if not isinstance(error, ServerUnreachable):
                job.wait()
            raise
        return status

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if job := self._give_back():
            job.wait()
            job.report(error)

    async def __aenter__(self) -> GpuStatus:
        key = secrets.token_hex(16)
        try:
            status = await self._gpu.arun(self._take(key))
            self._keys.append((os.getpid(), key))
        except BaseException as error:
            job = GiveBack(self._gpu.client, key)
            if not isinstance(error, ServerUnreachable):
                await job.wait_async()
            raise
        return status

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if job := self._give_back():
            await job.wait_async()
            job.report(error)

    def _take(self, key: str) -> Steps:
        return take(key, self._milli, owner(), self._patience(), together=self._together)

    def _give_back(self) -> GiveBack | None:
        pid, key = self._keys.pop()
        # A process that was forked inside the block leaves it, too; what is held is its parent's.
        return GiveBack(self._gpu.client, key) if pid == os.getpid() else None


class GiveBack:
    """The giving back of one reservation; begins at once."""

    def __init__(self, client: Client, key: str) -> None:
        self._client, self._key = client, key
        self._problem: GpuError | None = None
        self._done = threading.Event()
        self._waiter: Callable[[], None] = lambda: None
        threading.Thread(target=self._run, name="jupyter-gpu-give-back", daemon=True).start()

    def wait(self) -> None:
        """Wait until it is done, at most `GRACE` seconds; an interrupt ends the wait only."""
        self._done.wait(GRACE)

    async def wait_async(self) -> None:
        """Do the same without blocking the event loop."""
        import asyncio

        loop, told = asyncio.get_running_loop(), asyncio.Event()
        self._waiter = lambda: _call(loop, told.set)
        if not self._done.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), GRACE)

    def report(self, error: BaseException | None) -> None:
        """Report what went wrong: as a note on ``error``, which is the user's own, or as a warning."""
        problem = self._problem
        if self._done.is_set() and problem is None:
            return
        text = (
            str(problem)
            if self._done.is_set()
            else "The Jupyter server does not answer, so what this block of gpu.at_least held is given back later: as "
            "soon as the server answers, or when this process ends."
        )
        if error is not None:
            error.add_note(text)
        else:
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _run(self) -> None:
        try:
            if self._finds_server():
                self._ask()
        except GpuError as problem:
            self._problem = problem
        finally:
            self._done.set()
            self._waiter()

    def _finds_server(self) -> bool:
        """Tell whether there is a server that could have the reservation."""
        try:
            return bool(self._client.server)
        except GpuError:
            return False

    def _ask(self) -> None:
        end, pause = time.monotonic() + _PATIENCE, 0.1
        while True:
            try:
                self._client.send(delete_reservation(self._key))
            except ServerUnreachable:
                if time.monotonic() > end:
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def _call(loop: AbstractEventLoop, job: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
        loop.call_soon_threadsafe(job)


def owner() -> ReservationOwner:
    """Return this process as the owner of a reservation.

    Raises `NotPermitted` if `/proc` cannot be read.
    """
    try:
        started = proc_stat.parse(Path("/proc/self/stat").read_bytes()).start
        return ReservationOwner(os.getpid(), started, os.stat("/proc/self/ns/pid").st_ino, _kernel())  # noqa: PTH116 - no path
    except (OSError, ValueError, IndexError) as error:
        raise NotPermitted(
            f"gpu.at_least needs /proc to say which process this is ({error}). Use gpu.resize(), and gpu.release() "
            "at the end."
        ) from None


def _kernel() -> str | None:
    """Return the id of the kernel that this process is, from the name of its connection file; None for others."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    path = str(getattr(getattr(getattr(shell, "kernel", None), "parent", None), "connection_file", ""))
    name = path.rpartition("/")[2]
    return name.removeprefix("kernel-").removesuffix(".json")[:256] if name.startswith("kernel-") else None
