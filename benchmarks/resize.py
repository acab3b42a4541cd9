"""From the request to the moment when a running kernel can open the GPU, on simulated GPUs guarded by the real kernel.

A real Jupyter server, a real IPython kernel. The kernel tries `open()` about every 0.15 ms and notes when it begins to
succeed and when it begins to fail; both processes read the same monotonic clock. The records lie where servers keep
them by default: in memory, on most machines.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_gpu.common.state_dir import default_path

from .lib.figures import CannotRunError, Figure
from .lib.jupyter_server import API, Server, simulated

COMMAND = "scripts/bench resize"
TURNS = 200
WARM_UP = 20

IN_KERNEL = """
import os, socket, threading, time
def watch(path, address):
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.connect(address)
    opened = False
    while True:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
            now = True
        except OSError:
            now = False
        if now != opened:
            opened = now
            told.send(f"{{int(now)}} {{time.monotonic_ns()}}".encode())
        time.sleep(0.0001)  # a busy loop would take a CPU from the server that is measured
threading.Thread(target=watch, args=({path!r}, {address!r}), daemon=True).start()
"""


def run() -> Sequence[Figure]:
    """Measure growing and shrinking by one GPU; the baseline is a GET of the status on the same connection, in turn."""
    if os.geteuid():
        raise CannotRunError("device rules need root")
    with (
        tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-", ignore_cleanup_errors=True) as home,
        tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-", dir=default_path().parent) as records,
        Server(Path(home), *simulated(Path(records))) as server,
    ):
        return _measure(server, Path(home))


def _measure(server: Server, home: Path) -> Sequence[Figure]:
    line = server.connection()
    view = server.call("PUT", f"{API}/request", {"gpus": 1}, on=line)
    if view["mode"] != "enforced":
        raise CannotRunError("the operating system does not guard devices here")
    path = view["gpus"][0]["path"]
    kernel = server.kernel()
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.settimeout(30)
    address = str(home / "ear")
    ear.bind(address)
    try:
        kernel.execute(IN_KERNEL.format(path=path, address=address))
        _heard(ear, True)
        grow, shrink, baseline = [], [], []
        for _ in range(TURNS + WARM_UP):
            shrink.append(_timed(server, line, ear, 0))
            began = time.monotonic_ns()
            server.call("GET", f"{API}/status", on=line)
            baseline.append((time.monotonic_ns() - began) / 1e6)
            grow.append(_timed(server, line, ear, 1))
    finally:
        ear.close()
        kernel.stop_channels()
        line.close()
    del grow[:WARM_UP], shrink[:WARM_UP], baseline[:WARM_UP]
    return [
        Figure.of("PUT until open() succeeds in the kernel, p50", "ms", grow, COMMAND, goal=5, baseline=baseline),
        Figure.of(
            "PUT until open() succeeds in the kernel, p99", "ms", grow, COMMAND, at=99, goal=20, baseline=baseline
        ),
        Figure.of("PUT until open() fails in the kernel, p50", "ms", shrink, COMMAND, baseline=baseline),
    ]


def _timed(server: Server, line: Any, ear: socket.socket, gpus: int) -> float:
    """Return the milliseconds from before the request to the kernel's first other result of ``open()``."""
    began = time.monotonic_ns()
    server.call("PUT", f"{API}/request", {"gpus": gpus}, on=line)
    return (_heard(ear, bool(gpus)) - began) / 1e6


def _heard(ear: socket.socket, opened: bool) -> int:
    word, moment = ear.recv(64).split()
    if (word == b"1") != opened:
        raise RuntimeError(
            f"the kernel could {'' if opened else 'still '}open the GPU when it should {'' if opened else 'not'}"
        )
    return int(moment)
