"""Cost of the extension for a Jupyter server: at its start, without a viewer of the panel, and with one."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import websocket

from .lib.figures import Figure
from .lib.jupyter_server import API, TOKEN, Server, simulated

COMMAND = "scripts/bench server"
STARTS = 20
"""Pairs, of each way to measure."""
IDLE_SECONDS = 8.0


def run() -> Sequence[Figure]:
    """Measure start-up time, memory, and wake-ups while idle; each against the same server without the extension."""
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-", ignore_cleanup_errors=True) as home:
        return [*_starts(Path(home)), *_idle(Path(home))]


def _server(home: Path, name: str, extension: bool, via: Sequence[str] = ()) -> Server:
    return Server(home / name, *simulated(home), extension=extension, via=via)


def _starts(home: Path) -> Sequence[Figure]:
    """Yield pairs of starts with and without the extension; the first one only warms the caches.

    In two ways. Both at once on one core, by CPU time: other load slows both in the same milliseconds, so that pairs
    agree on a busy machine, too. And in turn, by the wall clock, which includes the waits; there a pair is seconds
    apart, and means little on a machine that is not quiet.
    """
    worked = _Pairs()
    for turn in range(STARTS + 1):
        worked.add(turn, *_at_once(home, turn))
    waited, memory = _Pairs(), _Pairs()
    for turn in range(STARTS + 1):
        for extension in (True, False) if turn % 2 else (False, True):
            with _server(home, f"start-{turn}-{extension}", extension) as server:
                if extension:
                    server.call("GET", f"{API}/status")
                waited.one(turn, extension, server.started * 1000)
                memory.one(turn, extension, _memory(server.process.pid) / 1e6)
    return [
        worked.figure("server start-up, processor time added", "ms", goal=50),
        waited.figure("server start-up, added by the wall clock", "ms"),
        memory.figure("server memory, added", "MB", goal=15),
    ]


def _at_once(home: Path, turn: int) -> tuple[float, float]:
    """Return the CPU milliseconds until the first answer, with the extension and without, together on one core."""
    core = str(max(os.sched_getaffinity(0)))

    def start(extension: bool) -> float:
        with _server(home, f"pair-{turn}-{extension}", extension, via=("taskset", "-c", core)) as server:
            return server.worked * 1000

    with ThreadPoolExecutor(2) as pool:
        started = {extension: pool.submit(start, extension) for extension in ((True, False), (False, True))[turn % 2]}
    return started[True].result(), started[False].result()


class _Pairs:
    """Measurements with the extension and without, in pairs."""

    def __init__(self) -> None:
        self._samples: dict[bool, list[float]] = {True: [], False: []}

    def one(self, turn: int, extension: bool, value: float) -> None:
        """Add half a pair."""
        if turn:
            self._samples[extension].append(value)

    def add(self, turn: int, ours: float, plain: float) -> None:
        """Add a pair."""
        self.one(turn, True, ours)
        self.one(turn, False, plain)

    def figure(self, name: str, unit: str, goal: float | None = None) -> Figure:
        """Return the figure of the median of the differences, with its interval."""
        ours, plain = self._samples[True], self._samples[False]
        differences = [a - b for a, b in zip(ours, plain, strict=True)]
        return Figure.of(name, unit, differences, COMMAND, goal=goal, baseline=plain, sure=True)


def _idle(home: Path) -> Sequence[Figure]:
    """Run an idle server with a hidden tab that keeps its connection and has switched samples off."""
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
    """Return for each server the wake-ups a second and the milliseconds of CPU a second."""
    time.sleep(2)  # lets the effects of a start or a switch end
    before = [(_wakeups(server.process.pid), _cpu(server.process.pid)) for server in servers]
    time.sleep(IDLE_SECONDS)
    after = [(_wakeups(server.process.pid), _cpu(server.process.pid)) for server in servers]
    return [((b[0] - a[0]) / IDLE_SECONDS, (b[1] - a[1]) / IDLE_SECONDS) for a, b in zip(before, after, strict=True)]


def _memory(pid: int) -> int:
    """Return the bytes of the process and its children (proportional set size)."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(_memory(int(child)) for child in children)


def _threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _wakeups(pid: int) -> int:
    """Return how often threads went to sleep, and so were woken, since the start."""
    statuses = [(thread / "status").read_text() for thread in _threads(pid)]
    lines = [line for status in statuses for line in status.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _cpu(pid: int) -> float:
    """Return the milliseconds on a CPU since the start."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in _threads(pid)) / 1e6
