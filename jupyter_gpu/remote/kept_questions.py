"""Connections to the first processes of workers that are kept for the next question: a new one costs some milliseconds.

A question is asked again over a new connection if the kept one turns out to have ended: each of them (`control`) does
nothing the second time that it did the first time.
"""

from __future__ import annotations

import threading
import time

from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import PATIENCE, Answer, Questions, WorkerAddress
from jupyter_gpu.remote.rules.control import Word

IDLE = 60.0
"""Seconds after which a connection without a question is closed."""


class KeptQuestions:
    """The connections of this process, one for each worker at most that nobody uses now. For any thread."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._resting: dict[WorkerAddress, tuple[Questions, float]] = {}
        """With the time since when each rests."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def ask(self, address: WorkerAddress, word: Word, patience: float = PATIENCE) -> Answer:
        """Ask the first process of a worker; raises `WorkerRefused` and `WorkerLost`."""
        if (kept := self._taken(address)) is not None:
            try:
                return self._asked(address, kept, word, patience)
            except WorkerLost:  # perhaps it is this connection alone
                pass
        return self._asked(address, Questions(address, patience), word, patience)

    def close(self) -> None:
        """End those that nobody uses."""
        with self._lock:
            resting, self._resting = self._resting, {}
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for kept, _ in resting.values():
            kept.close()

    def _asked(self, address: WorkerAddress, asking: Questions, word: Word, patience: float) -> Answer:
        """Ask, and keep the connection if no answer can come any more."""
        try:
            answer = asking.ask(word, patience)
        except WorkerRefused:
            self._rest(address, asking)
            raise
        except BaseException:
            asking.close()
            raise
        self._rest(address, asking)
        return answer

    def _taken(self, address: WorkerAddress) -> Questions | None:
        with self._lock:
            kept, _ = self._resting.pop(address, (None, 0.0))
        if kept is not None and kept.ended:
            kept.close()
            return None
        return kept

    def _rest(self, address: WorkerAddress, asking: Questions) -> None:
        with self._lock:
            before, _ = self._resting.pop(address, (None, 0.0))
            self._resting[address] = asking, time.monotonic()
            if self._timer is None:
                self._start_timer()
        if before is not None:
            before.close()

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._idle, self._end_idle)
        self._timer.daemon = True
        self._timer.start()

    def _end_idle(self) -> None:
        until = time.monotonic() - self._idle
        with self._lock:
            ended = [(address, kept) for address, (kept, since) in self._resting.items() if since <= until]
            for address, _ in ended:
                del self._resting[address]
            self._timer = None
            if self._resting:
                self._start_timer()
        for _, kept in ended:
            kept.close()
