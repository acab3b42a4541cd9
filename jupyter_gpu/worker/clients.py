"""The clients of a worker's kernel: while there is none, what runs is interrupted after a while, and then it ends.

The network between two nodes may be cut and come back, and then the notebook connects again. One that was killed does
not; nobody else would end the kernel, which may have GPUs open.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

TICK = 0.5
"""Seconds between two looks at the time."""
_MONITORED = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED


class Clients:
    """The connections to a socket that was bound just now. ``interrupt``, ``end``: seconds without one."""

    def __init__(self, socket: zmq.Socket[Any], interrupt: int, end: int) -> None:
        self._interrupt, self._end = interrupt, end
        self._monitor = socket.get_monitor_socket(_MONITORED)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, interrupt: Callable[[], None]) -> None:
        """Begin: ``interrupt`` is called from another thread."""
        self._thread = threading.Thread(target=self._run, args=(interrupt,), name="clients", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._monitor.close(linger=0)

    def _run(self, interrupt: Callable[[], None]) -> None:
        connected: set[int] = set()
        left, interrupted = time.monotonic(), False
        while not self._closed.is_set():
            if self._monitor.poll(int(1000 * TICK)):
                event = recv_monitor_message(self._monitor)
                change = connected.add if event["event"] == zmq.EVENT_ACCEPTED else connected.discard
                change(int(event["value"]))
            if connected:
                left, interrupted = time.monotonic(), False
            alone = time.monotonic() - left
            if alone >= self._interrupt and not interrupted:
                interrupted = True
                interrupt()
            if alone >= self._end:
                os.killpg(os.getpgrp(), signal.SIGKILL)
