"""A service that a hub starts ends with it: it would keep its port, and answer with a secret that is no longer good."""

from __future__ import annotations

import asyncio
import os

from jupyter_gpu.common.parents import started

EVERY = 1.0
"""Seconds between two looks."""


async def until_gone(pid: int, since: int) -> None:
    """Return when our parent is not the process ``pid`` that began at ``since`` (ticks since the boot)."""
    while os.getppid() == pid and started(pid) == since:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(EVERY)
