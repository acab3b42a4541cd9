"""Runs backends of any kind for a test, and waits for their views."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.view import View

PATIENCE = 60.0

B = TypeVar("B", bound=Backend)


@asynccontextmanager
async def running(backend: B) -> AsyncIterator[B]:
    """Start the backend, wait for its GPUs, and stop it in the end."""
    await backend.start()
    try:
        await reaches(backend, lambda view: view.total > 0)
        yield backend
    finally:
        await backend.stop()


async def reaches(backend: Backend, condition: Callable[[View], bool]) -> View:
    """Return the first view for which the condition holds."""
    found: asyncio.Queue[View] = asyncio.Queue()
    stop = backend.subscribe(found.put_nowait)
    try:
        view = backend.view()
        while not condition(view):
            view = await asyncio.wait_for(found.get(), PATIENCE)
        return view
    finally:
        stop()
