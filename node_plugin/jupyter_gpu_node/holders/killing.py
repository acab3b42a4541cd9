"""Ends processes, never others that have their pids by now, and waits a little for their end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

from jupyter_gpu_node.holders.rules.rights import Suspect
from jupyter_gpu_node.processes import proc

PATIENCE = 1.0
"""Seconds to wait for the end of a killed process."""

_log = logging.getLogger(__name__)


async def end(suspect: Suspect) -> None:
    """Send SIGKILL, which ends stopped processes too; nothing if another process has its pid by now."""
    try:
        with proc.open_pidfd(suspect.pid, suspect.start) as descriptor:
            if descriptor is not None:
                await _killed(descriptor)
    except OSError as error:
        _log.error("Process %d (%s) cannot be ended: %s", suspect.pid, suspect.command, error)


async def _killed(descriptor: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    loop.add_reader(descriptor, ended.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await ended.wait()
    finally:
        loop.remove_reader(descriptor)
