"""Questions that may hang for ever, as those about a dying GPU can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Patience(Generic[T]):
    """Asks in a thread of its own, and waits for the answer for ``deadline`` seconds.

    A thread that hangs is left behind. Until it ends, nothing more is asked. One caller at a time.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._thread: threading.Thread | None = None

    def ask(self, question: Callable[[], T]) -> T | None:
        """Return the answer; None: there is none in time. ``question`` must not raise."""
        if self._thread is not None and self._thread.is_alive():
            return None
        answers: list[T] = []
        self._thread = threading.Thread(target=lambda: answers.append(question()), name="gpu-files", daemon=True)
        self._thread.start()
        self._thread.join(self._deadline)
        return answers[0] if answers else None
