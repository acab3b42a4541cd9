"""Kernels of a notebook's pod, as a page uses them; who has a device open; a network that is cut between two pods."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tornado.websocket import websocket_connect

from jupyter_gpu.model.gpu import Device
from tests.cluster.whole import pods

SECONDS = 90.0
"""Patience with a cell: a worker may have to start first."""

LAST = 5.0
"""Seconds for the end of a connection."""


class CellFailed(Exception):
    """An error of a cell: its name and its text."""


class Cell:
    """A cell that runs, in a thread that waits for its end."""

    def __init__(self, kernel: NotebookKernel, code: str) -> None:
        self._kernel, self._code = kernel, code
        self._printed, self._error = "", ""
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def says(self, words: str) -> None:
        """Wait until it has printed these words."""
        with self._changed:
            assert self._changed.wait_for(lambda: words in self._printed or not self._thread.is_alive(), SECONDS)
        assert words in self._printed, self._error or self._failed

    def result(self) -> str:
        """Return what it printed, once it has ended. Raises `CellFailed`."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), f"The cell does not end. It printed: {self._printed}"
        if self._failed is not None:
            raise self._failed
        if self._error:
            raise CellFailed(self._error)
        return self._printed.strip()

    def _follow(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # raised in the test
            self._failed = error
        with self._changed:
            self._changed.notify_all()

    async def _run(self) -> None:
        channels = await websocket_connect(self._kernel.channels)
        header = {"msg_id": "run", "msg_type": "execute_request", "session": "test", "username": "", "version": "5.3"}
        content = {"code": self._code, "silent": False, "allow_stdin": False, "store_history": True}
        request = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
        await channels.write_message(json.dumps(request))
        try:
            while (text := await channels.read_message()) is not None:
                message = json.loads(text)
                if message["parent_header"].get("msg_id") == "run" and self._is_over(message):
                    return
            raise ConnectionError("The server hung up.")
        finally:
            channels.close()
            with suppress(TimeoutError):  # a server that is gone does not answer
                async with asyncio.timeout(LAST):
                    while await channels.read_message() is not None:
                        pass

    def _is_over(self, message: dict[str, object]) -> bool:
        kind, found = message["msg_type"], message["content"]
        assert isinstance(found, dict)
        with self._changed:
            if kind == "stream" and found["name"] == "stdout":
                self._printed += found["text"]
            elif kind == "error":
                self._error = f"{found['ename']}: {found['evalue']}"
            self._changed.notify_all()
        return kind == "status" and found["execution_state"] == "idle"


class NotebookKernel:
    """A new kernel of the notebook at an address."""

    def __init__(self, address: str) -> None:
        self._server = f"{address}:8888"
        self._id = self.ask("POST", "api/kernels", {"name": "python3"})["id"]

    @property
    def channels(self) -> str:
        """Address of its WebSocket."""
        return f"ws://{self._server}/api/kernels/{self._id}/channels?token={pods.TOKEN}"

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Return the answer of its server."""
        headers = {"Authorization": f"token {pods.TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self._server}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found: dict[str, object] = json.loads(answer.read() or "{}")
        return found

    def interrupt(self) -> None:
        """Interrupt what runs, as a page does."""
        self.ask("POST", f"api/kernels/{self._id}/interrupt")

    def start(self, code: str) -> Cell:
        """Run a cell, and do not wait for its end."""
        return Cell(self, code)

    def run(self, code: str) -> str:
        """Return what a cell prints. Raises `CellFailed`."""
        return Cell(self, code).result()


def openers(device: Device) -> set[int]:
    """Return the processes of this machine that have a device open, by the kernel of the operating system."""
    number = os.makedev(device.major, device.minor)
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                with suppress(OSError):
                    if descriptor.stat().st_rdev == number:
                        found.add(int(folder.name))
    return found


def group_of(pid: int) -> str:
    """Return the control groups of a process, as the kernel of the operating system tells."""
    return Path(f"/proc/{pid}/cgroup").read_text()


@contextmanager
def cut(pid: int, peer: str) -> Iterator[None]:
    """Drop all that a pod hears from a peer, and says to it, without a word, until the end of the block."""
    rules = (("INPUT", "-s", peer), ("OUTPUT", "-d", peer))
    inside = ("nsenter", "-t", str(pid), "-n", "iptables", "-w")
    for chain, *rule in rules:
        subprocess.run((*inside, "-I", chain, *rule, "-j", "DROP"), check=True)
    try:
        yield
    finally:
        for chain, *rule in rules:
            subprocess.run((*inside, "-D", chain, *rule, "-j", "DROP"), check=True)
