"""Questions to a service that answers slowly: few at once, few that wait, and none for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """No answer in time, or too many requests wait for one."""


@dataclass(eq=False, slots=True)
class _Question(Generic[T]):
    answer: asyncio.Task[T]
    sent: bool = False


class Questions(Generic[T]):
    """Questions by key. Requests about one key share a question, and at most one about it is open at a time.

    ``at_once``: questions that are open together. ``waiting``: requests that wait for an answer, all together.
    ``seconds``: longest time from a question to the end of its answer, with the time for which it stands in line.
    """

    def __init__(self, *, at_once: int, waiting: int, seconds: float) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._most = waiting
        self._seconds = seconds
        self._newest: dict[str, _Question[T]] = {}
        self.waiting = 0
        """Requests that wait for an answer now."""

    @property
    def busy(self) -> bool:
        """Whether a new question would have to stand in line."""
        return self._slots.locked()

    async def ask(self, key: str, send: Callable[[], Awaitable[T]], *, anew: bool = False) -> T:
        """Return the answer to ``send``, or to a question about the same key that is under way.

        ``anew``: only to a question that was not sent before this call. Raises `BusyError`, and what ``send`` raises.
        """
        if self.waiting >= self._most:
            raise BusyError
        question = self._newest.get(key)
        if question is None or question.answer.done() or (anew and question.sent):
            question = self._put(key, send, question)
        self.waiting += 1
        try:
            return await asyncio.shield(question.answer)
        finally:
            self.waiting -= 1

    def _put(self, key: str, send: Callable[[], Awaitable[T]], before: _Question[T] | None) -> _Question[T]:
        async def run() -> T:
            try:
                async with asyncio.timeout(self._seconds):
                    if before is not None:
                        await asyncio.wait([before.answer])
                    async with self._slots:
                        question.sent = True
                        return await send()
            except TimeoutError:
                raise BusyError from None
            finally:
                if self._newest.get(key) is question:
                    del self._newest[key]

        question = _Question(asyncio.create_task(run()))
        question.answer.add_done_callback(_look)
        self._newest[key] = question
        return question


def _look(answer: asyncio.Task[T]) -> None:
    """Look at an error that no request waits for any more, so that nothing is logged about it."""
    if not answer.cancelled():
        answer.exception()
