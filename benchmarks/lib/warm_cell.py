"""The time of a warm cell on another node: from its start to its first line, in turn with a local ``gpu.resize``.

The pods of a notebook and of its worker are processes of this machine: a real server with the cluster's backend, a real
kernel, a real worker. What the hub's service, the scheduler and the node plugins do is done by one thread, which looks
every millisecond; no API server is asked. So both times are shorter than in a cluster, by the same hops.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tests.kernel.kernels import Kernel
    from tests.worker.two_pods import TwoPods

_PAUSE = 0.001
_RESIZE = "began = time.perf_counter(); gpu.resize(1); print(time.perf_counter() - began)"
_READY = 20.0


class _Folders:
    """A place for folders, as pytest has it."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def mktemp(self, name: str) -> Path:
        made = self._base / name
        made.mkdir()
        return made


def measure(rounds: int, *, standby: bool = True) -> tuple[list[float], list[float]]:
    """Return the milliseconds of a warm cell, and those of a local resize, of rounds in turn after two more."""
    from tests.kernel.servers import await_
    from tests.worker.two_pods import two_pods

    cells, resizes = [], []
    with _short_folder() as folder, two_pods(cast("Any", _Folders(folder)), standby=standby) as pods:
        pods.pause = _PAUSE
        assert pods.server is not None
        with pods.server.kernel() as kernel:
            kernel.run("from jupyter_gpu import gpu; import time")
            for _ in range(rounds + 2):
                resizes.append(1000 * float(kernel.run(_RESIZE)))
                kernel.run("gpu.release(timeout=30)")
                if standby:
                    _await_standby(pods)
                cells.append(1000 * _first_line(kernel, "%%gpu 2\nprint('first')"))
                kernel.run("gpu.release(timeout=30)")
                await_(lambda: not pods.kernels)
    return cells[2:], resizes[2:]


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jgb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _await_standby(pods: TwoPods) -> None:
    """Wait until the kernel that stands by listens and rests."""
    assert pods.pod is not None
    ports = range(pods.pod.port + 1, pods.pod.port + 33)
    until = time.monotonic() + _READY
    while not any(_listens(port) for port in ports):
        if time.monotonic() > until:
            raise RuntimeError("no kernel stands by")
        time.sleep(0.02)
    time.sleep(0.5)


def _listens(port: int) -> bool:
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


def _first_line(kernel: Kernel, code: str) -> float:
    """Return the seconds until the first output of a cell, which runs to its end."""
    heard: list[float] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            heard.append(time.perf_counter())

    began = time.perf_counter()
    reply = kernel.client.execute_interactive(code, timeout=60, output_hook=hear)["content"]
    if reply["status"] != "ok" or not heard:
        raise RuntimeError(f"the cell failed: {reply}")
    return heard[0] - began
