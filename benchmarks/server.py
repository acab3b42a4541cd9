"""What the extension costs a Jupyter server: at its start, while nobody looks at the panel, and while somebody does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import websocket

from ._server import API, TOKEN, Server, simulated
from .figures import Figure

COMMAND = "scripts/bench server"
STARTS = 10
IDLE_SECONDS = 8.0


def run() -> Sequence[Figure]:
    """Start-up time, memory, and wake-ups while idle; each against the same server without the extension."""
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-", ignore_cleanup_errors=True) as home:
        return [*_starts(Path(home)), *_idle(Path(home))]


def _server(home: Path, name: str, extension: bool) -> Server:
    return Server(home / name, *simulated(home), extension=extension)


def _starts(home: Path) -> Sequence[Figure]:
    """By turns, so that what else the machine does falls on both. The first pair only warms the caches."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    memory: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(STARTS + 1):
        for extension in (True, False) if turn % 2 else (False, True):
            with _server(home, f"start-{turn}-{extension}", extension) as server:
                if turn == 0:
                    continue
                if extension:
                    server.call("GET", f"{API}/status")
                seconds[extension].append(server.started * 1000)
                memory[extension].append(_memory(server.process.pid) / 1e6)
    return [
        _more("server start-up, added", "ms", seconds, goal=50),
        _more("server memory, added", "MB", memory, goal=15),
    ]


def _more(name: str, unit: str, samples: dict[bool, list[float]], goal: float) -> Figure:
    differences = [ours - plain for ours, plain in zip(samples[True], samples[False], strict=True)]
    return Figure.of(name, unit, differences, COMMAND, goal=goal, baseline=samples[False])


def _idle(home: Path) -> Sequence[Figure]:
    """A hidden tab keeps its connection and has switched samples off."""
    with _server(home, "idle-ours", True) as ours, _server(home, "idle-plain", False) as plain:
        address = f"ws://127.0.0.1:{ours.port}{API}/stream"
        tab = websocket.create_connection(address, header=[f"Authorization: token {TOKEN}"], suppress_origin=True)
        tab.recv()
        tab.send('{"type":"samples","on":false}')
        hidden, without = _rates(ours, plain)
        tab.send('{"type":"samples","on":true}')
        shown, _ = _rates(ours, plain)
        tab.close()
    return [
        Figure("idle and hidden, wake-ups added", "1/s", hidden[0] - without[0], COMMAND, 0.2, without[0]),
        Figure("idle and hidden, CPU added", "ms/s", hidden[1] - without[1], COMMAND, 0.2, without[1]),
        Figure("charts in sight, wake-ups", "1/s", shown[0], COMMAND, baseline=hidden[0]),
        Figure("charts in sight, CPU", "ms/s", shown[1], COMMAND, baseline=hidden[1]),
    ]


def _rates(*servers: Server) -> list[tuple[float, float]]:
    """Of each server: wake-ups a second and milliseconds of CPU a second."""
    time.sleep(2)  # what follows a start or a switch is over then
    before = [(_wakeups(server.process.pid), _cpu(server.process.pid)) for server in servers]
    time.sleep(IDLE_SECONDS)
    after = [(_wakeups(server.process.pid), _cpu(server.process.pid)) for server in servers]
    return [((b[0] - a[0]) / IDLE_SECONDS, (b[1] - a[1]) / IDLE_SECONDS) for a, b in zip(before, after, strict=True)]


def _memory(pid: int) -> int:
    """Bytes: the proportional share of the process and of what it started."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(_memory(int(child)) for child in children)


def _threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _wakeups(pid: int) -> int:
    """How often a thread went to sleep, and so was woken, since the start."""
    statuses = [(thread / "status").read_text() for thread in _threads(pid)]
    lines = [line for status in statuses for line in status.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _cpu(pid: int) -> float:
    """Milliseconds on a CPU since the start."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in _threads(pid)) / 1e6
