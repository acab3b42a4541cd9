"""Errors that the driver reports by itself (XIDs), told to the inventory as they come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

from . import nvml
from .inventory import Inventory

COMMAND = (sys.executable, "-P", "-m", "jupyter_gpu_node.nvml_events")
RETRY = 60.0
"""Seconds until the driver is asked again for what it could not tell."""


async def follow_driver(inventory: Inventory, *, simulated: bool) -> None:
    """Until cancelled. NVML's events block, and a broken driver may hang: so they are read by a process of its own."""
    while True:
        if not simulated:
            await _one_process(inventory)
        await asyncio.sleep(RETRY)


async def _one_process(inventory: Inventory) -> None:
    child = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        env={**os.environ, nvml.MARK: "1"},  # it has all GPUs open and uses none
    )
    assert child.stdout is not None
    try:
        async for line in child.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                inventory.broke(str(event["uuid"]), int(event["xid"]))
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
