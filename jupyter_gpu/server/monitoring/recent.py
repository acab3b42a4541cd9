"""Shares one answer among all requests within a short time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last answer of ``take``, kept for ``seconds``; a failure is not kept."""

    def __init__(self, take: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._take = take
        self.seconds = seconds
        self._last = float("-inf")
        self._task: asyncio.Task[T] | None = None

    async def now(self) -> T:
        """Return the last answer, or a new one; raises what ``take`` raises."""
        now = asyncio.get_running_loop().time()
        task = self._task
        if task is None or (task.done() and (now - self._last >= self.seconds or _failed(task))):
            self._last = now
            task = self._task = asyncio.get_running_loop().create_task(_call(self._take))
            task.add_done_callback(_failed)  # the caller may be gone
        return await asyncio.shield(task)  # a caller that is cancelled does not cancel it for the others


async def _call(take: Callable[[], Awaitable[T]]) -> T:
    return await take()


def _failed(task: asyncio.Task[T]) -> bool:
    return task.cancelled() or task.exception() is not None
