"""A real Jupyter server of this Python, with a home of its own, to be measured."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_client.blocking.client import BlockingKernelClient

from tests.cluster.testbed import ports

TOKEN = "benchmark"
API = "/jupyter-gpu/api/v1"
START_SECONDS = 60.0


class Server:
    """``jupyter server`` with or without the extension, and nothing else but its dependencies.

    ``options`` are arguments of its command line. ``via``: a command that starts it, such as ``nice``.
    """

    def __init__(self, home: Path, *options: str, extension: bool = True, via: Sequence[str] = ()) -> None:
        self.home = home
        (self.port,) = ports.free(1)
        self.started = 0.0
        """Seconds from the start of the process to its first answer."""
        self.worked = 0.0
        """Seconds of processor time that it took until then, all its threads together."""
        self._command = [
            *via,
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"),
            *(f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"),
            f"--ServerApp.jpserver_extensions={{'jupyter_gpu': {extension}}}",
            *(options if extension else ()),
        ]

    def __enter__(self) -> Self:
        for name in ("config", "data", "runtime", "work"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        own = {
            "HOME": str(self.home),
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "JUPYTER_NO_CONFIG": "1",  # no other extension of this environment
            "IPYTHONDIR": str(self.home / "ipython"),
        }
        began = time.monotonic()
        with (self.home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self.home / "work", env={**os.environ, **own}, stdout=log, stderr=log
            )
        try:
            self._await_answer(began)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.started = time.monotonic() - began
        self.worked = time.clock_gettime(processor_clock(self.process.pid))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _await_answer(self, began: float) -> None:
        while True:
            try:
                self.call("GET", "/api")
            except (ConnectionError, http.client.HTTPException):
                if self.process.poll() is not None or time.monotonic() - began > START_SECONDS:
                    raise RuntimeError(f"The server did not start:\n{(self.home / 'log').read_text()}") from None
                time.sleep(0.002)
            else:
                return

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection to keep open for many calls."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.connect()
        assert connection.sock is not None
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def call(self, verb: str, path: str, body: Any = None, on: http.client.HTTPConnection | None = None) -> Any:
        """Return the JSON of the answer; raise RuntimeError unless it is a success."""
        connection = on or self.connection()
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            if on is None:
                connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{verb} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text) if text else None

    def kernel(self) -> BlockingKernelClient:
        """Start a Python kernel and return its client, whose channels the caller stops."""
        started = self.call("POST", "/api/kernels", {"name": "python3"})
        (connection,) = (self.home / "runtime").glob(f"kernel-{started['id']}.json")
        client = BlockingKernelClient(connection_file=str(connection))
        client.load_connection_file()
        client.start_channels()
        for attempt in range(10):
            try:
                client.wait_for_ready(timeout=60)
                break
            except RuntimeError:  # on a busy machine a late heartbeat looks like a dead kernel
                if attempt == 9:
                    raise
        return client


def processor_clock(pid: int) -> int:
    """Return the clock of a process's CPU time, for `time.clock_gettime` (clock_getcpuclockid(3))."""
    return (~pid << 3) | 2


def simulated(home: Path, count: int = 4) -> tuple[str, ...]:
    """Return options for simulated GPUs with a state directory inside ``home``."""
    return (f"--GpuExtension.simulated_gpus={count}", f"--GpuExtension.state_dir={home / 'gpus'}")
