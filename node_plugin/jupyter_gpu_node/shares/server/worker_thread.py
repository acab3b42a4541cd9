"""A thread for work that blocks, beside an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerThread:
    """One thread, which runs its work in the order of the calls."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run work, and return its outcome to the event loop of the caller."""
        return asyncio.get_running_loop().run_in_executor(self._executor, functools.partial(work, *args, **kwargs))

    def close(self, *, cancel: bool = False) -> None:
        """Take no more work; ``cancel``: drop what has not begun."""
        self._executor.shutdown(wait=False, cancel_futures=cancel)
