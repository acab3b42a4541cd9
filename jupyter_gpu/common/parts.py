"""Parts of a process that run at the same time, until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping


async def first_to_end(parts: Mapping[str, Coroutine[object, object, object]]) -> frozenset[str]:
    """Run parts until one ends, cancel the others and wait for their end; return the names of those that ended.

    Raises what one of them raised.
    """
    tasks = {asyncio.create_task(part, name=name) for name, part in parts.items()}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return frozenset(task.get_name() for task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
