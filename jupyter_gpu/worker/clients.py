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

from jupyter_gpu.remote.rules.client_times import ClientTimes

TICK = 0.5
"""Seconds between two looks at the time."""
_MONITORED = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Clients:
    """The connections to a socket that was bound just now. ``interrupt``, ``end``: seconds without a client.

    What is told of connections is read at any time: ZeroMQ waits where a thousand such words wait, and so would all
    sockets of the kernel, also where it stands by and a stranger connects again and again.
    """

    def __init__(self, socket: zmq.Socket[Any], interrupt: int, end: int) -> None:
        self._socket, self._interrupt, self._end = socket, interrupt, end
        self._monitor = socket.get_monitor_socket(_MONITORED)
        self._closed = threading.Event()
        self._times = ClientTimes(time.monotonic())
        self._call: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="clients", daemon=True)
        self._thread.start()

    def watch(self, interrupt: Callable[[], None]) -> None:
        """Interrupt and end the kernel from now on: ``interrupt`` is called from another thread."""
        self._times = ClientTimes(time.monotonic())
        self._call = interrupt

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._thread.join()
        self._socket.disable_monitor()  # first: ZeroMQ waits for one that reads, too
        self._monitor.close(linger=0)

    def _run(self) -> None:
        interrupted = False
        while not self._closed.is_set():
            if self._monitor.poll(int(1000 * TICK)):
                self._note(**recv_monitor_message(self._monitor))
            if (interrupt := self._call) is None:
                continue
            alone = self._times.alone(time.monotonic())
            if alone < self._interrupt:
                interrupted = False
            elif not interrupted:
                interrupted = True
                interrupt()
            if alone >= self._end:
                os.killpg(os.getpgrp(), signal.SIGKILL)

    def _note(self, event: int, value: int, **_: Any) -> None:
        now = time.monotonic()
        if event == zmq.EVENT_ACCEPTED:
            self._times.made(int(value), now)
        elif event == zmq.EVENT_DISCONNECTED:
            self._times.ended(int(value), now)
        else:
            self._times.proved(now)
