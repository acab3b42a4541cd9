"""A server of ``park.sock`` in a thread of the tests, and what it hears."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from jupyter_gpu_node.parking.rules.members import Send
from jupyter_gpu_node.parking.rules.messages import FromGate, FromNode
from jupyter_gpu_node.parking.server.park_server import ConnectedGate, ParkServer
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.server.peer import Check, Peer

from .gate import PATIENCE

T = TypeVar("T")


def anyone(peer: Peer, pod: str) -> str:
    """Let every process use the socket."""
    return ""


class Serving:
    """A server for the pods of a folder: each has a directory of its name there."""

    def __init__(self, folder: Path, *pods: str, check: Check = anyone) -> None:
        self.folder = folder
        self.heard_all: list[tuple[str, ProcessId, FromGate]] = []
        self.gone: list[tuple[str, ProcessId]] = []
        self._pods = pods
        self._check = check
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self.server = self.do(lambda: ParkServer(self._check, self))
        self.set({pod: self.folder / pod for pod in self._pods})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Callable[[], T]) -> T:
        """Do it in the server's thread, and return what it returns."""

        async def works() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(works(), self._loop).result(PATIENCE)

    def set(self, wanted: Mapping[str, Path]) -> None:
        """Serve these pods."""
        self.do(lambda: self.server.set(wanted))

    def socket(self, pod: str) -> Path:
        """Return the path of a pod's socket."""
        return self.folder / pod / "shares" / "park.sock"

    def gates(self) -> tuple[ConnectedGate, ...]:
        """Return those that have introduced themselves."""
        return self.do(lambda: self.server.gates)

    def send(self, process: ProcessId, *messages: FromNode) -> None:
        """Send messages to a process."""
        self.do(lambda: self.server.send([Send(process, message) for message in messages]))

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until it holds."""
        end = time.monotonic() + PATIENCE
        while not self.do(condition):
            assert time.monotonic() < end, self.heard_all
            time.sleep(0.005)

    # --- what the server calls ----------------------------------------------------------------------------------------

    def heard(self, pod: str, process: ProcessId, message: FromGate) -> None:
        """Keep a message."""
        self.heard_all.append((pod, process, message))

    def disconnected(self, pod: str, process: ProcessId) -> None:
        """Keep the end of a connection."""
        self.gone.append((pod, process))
