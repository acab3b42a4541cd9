"""The command of a process that runs until it is told to stop: its log, its signals and its exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine

from jupyter_gpu.common.settings_file import SettingsError

from .credentials import NoCredentials

Run = Callable[[asyncio.Event], Coroutine[object, object, None]]
"""Runs a process until the event."""


def serve(run: Run, log: logging.Logger, last_words: str) -> int:
    """Run a process; return 0 after SIGTERM, 1 when something broke, 2 for settings that can't be used."""
    level = os.environ.get("JUPYTER_GPU_LOG", "INFO").upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_until_signal(run))
    except (SettingsError, NoCredentials) as error:
        print(error, file=sys.stderr)
        return 2
    except Exception:
        log.exception(last_words)
        return 1
    return 0


async def _until_signal(run: Run) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(stop)
