"""The arbiter's server with real clients: the cost of a lease, the time between two, and the harm of a connecting loop.

The baseline of a lease is the simplest thing that does the job: a server that knows no shares and gives the GPU to the
client that asked first, in the same language, with the same messages, without an event loop's framework.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from jupyter_gpu_node.shares.rules.protocol import DONE, GRANT, Ask, Done, Grant, encode
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer, PlacedShare
from jupyter_gpu_node.shares.server.peer import beside_us
from jupyter_gpu_node.shares.server.store import ShareStore

from .lib.figures import Figure, percentile

COMMAND = "scripts/bench arbiter"
ROUNDS, SECONDS = 5, 4.0
HOLD = 1_000
"""Microseconds of a lease where the time between two is measured: the server has pauses then, as in real use."""
PATIENCE = 30.0
"""Seconds after which a client that hears nothing, or does not end, breaks the benchmark."""
WINDOW, WINDOWS = 0.5, 160
"""Seconds of each window, and how many: in half of them a third pod connects in a loop (`_looping`)."""
GPU = "GPU-0"
_FORM = struct.Struct("<BBHIQQQ")
_ROOT = Path(__file__).parents[1]


def run() -> Sequence[Figure]:
    """Measure 2 and 10 shares that always want the GPU, with leases given back at once and leases of a millisecond."""
    return [*(figure for shares in (2, 10) for figure in _figures(shares)), *_connects()]


def _figures(shares: int) -> Iterator[Figure]:
    """Measure our server and the simple one in turn in each round, so that both run on the same machine conditions."""
    ours, simple, rates = [], [], []
    for _ in range(ROUNDS):
        cost, rate, _ = _measure("serve", shares, 0)
        ours.append(cost)
        rates.append(rate)
        simple.append(_measure("fifo", shares, 0)[0])
    name = f"arbiter: CPU of the server for a lease, {shares} shares"
    rate = percentile(rates, 50)
    yield Figure.of(f"{name} ({rate:,.0f} leases/s)", "µs", ours, COMMAND, goal=100, baseline=simple)
    _, _, gaps = _measure("serve", shares, HOLD)
    _, _, plain = _measure("fifo", shares, HOLD)
    yield Figure.of(f"arbiter: from one share to the next, {shares} shares", "µs", gaps, COMMAND, baseline=plain)


def _measure(kind: str, shares: int, hold: int) -> tuple[float, float, list[float]]:
    """Return the CPU µs of a lease, the leases a second, and the µs from each lease's end to the next one's begin."""
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-") as folder, _server(kind, folder, shares) as pid:
        pods = [Path(folder, f"pod-{number}", "shares", f"{GPU}.sock") for number in range(shares)]
        clients = [_started("client", str(path), str(SECONDS), str(hold)) for path in pods]
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()  # it is connected
        before = _spent(pid)
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(b"go\n")
            client.stdin.flush()
        said = [client.communicate(timeout=SECONDS + PATIENCE)[0] for client in clients]
        spent = _spent(pid) - before
    leases = sorted((begin, end) for text in said for begin, end in zip(*[iter(array("q", text))] * 2, strict=True))
    gaps = [(begin - end) / 1000 for (_, end), (begin, _) in pairwise(leases)]
    if any(gap < 0 for gap in gaps):
        raise AssertionError("Two shares had the GPU at one time.")
    return spent * 1e6 / len(leases), len(leases) / SECONDS, gaps


def _connects() -> Iterator[Figure]:
    """Measure what two shares lose, and what the server spends, while a program of a third pod connects in a loop.

    The loop is stopped and continued every second, so both states meet the same server, the same clients and the same
    noise. It gains by the stops: the allowance of a pod fills up again meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-") as folder, _server("serve", folder, 3) as pid:
        *pods, third = [Path(folder, f"pod-{number}", "shares", f"{GPU}.sock") for number in range(3)]
        clients = [_started("client", str(path), str(WINDOW * WINDOWS), str(HOLD)) for path in pods]
        loop = _started("connect", str(third))
        for program in (*clients, loop):
            assert program.stdout is not None
            program.stdout.readline()
        time.sleep(2 * WINDOW)  # its reserve is used up
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(b"go\n")
            client.stdin.flush()
        windows, spent = _alternate(loop, pid)
        said = [client.communicate(timeout=WINDOW * WINDOWS + PATIENCE)[0] for client in clients]
        loop.kill()
        loop.communicate()
    leases = [lease for text in said for lease in zip(*[iter(array("q", text))] * 2, strict=True)]
    held = [sum(max(0, min(end, to) - max(begin, since)) for begin, end in leases) for since, to in windows]
    losses = [100 - 100 * with_it / without for without, with_it in _pairs(held)]
    more = [(with_it - without) * 100 / WINDOW for without, with_it in _pairs(spent)]
    beside = "beside a loop of connections in a third pod"
    name = f"arbiter: GPU time that two shares lose {beside}"
    yield Figure.of(name, "%", losses, COMMAND, goal=0.5, sure=True)
    yield Figure.of(f"arbiter: CPU of the server {beside}", "% of a core", more, COMMAND, goal=2, sure=True)


def _looping(number: int) -> bool:
    """Return whether the third pod connects in that window: off, on, on, off, so that a drift cancels out."""
    return number % 4 in (1, 2)


def _pairs(figures: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the figures of neighbouring windows, without and with the loop."""
    for number in range(0, len(figures), 2):
        first, second = figures[number : number + 2]
        yield (second, first) if _looping(number) else (first, second)


def _alternate(loop: subprocess.Popen[bytes], server: int) -> tuple[list[tuple[int, int]], list[float]]:
    """Run windows without and with the loop, in turn; return their times in ns, and the server's CPU seconds."""
    windows, spent = [], []
    for number in range(WINDOWS - 2):  # the clients end with the last
        loop.send_signal(signal.SIGCONT if _looping(number) else signal.SIGSTOP)
        since, before = time.monotonic_ns(), _spent(server)
        time.sleep(WINDOW)
        windows.append((since, time.monotonic_ns()))
        spent.append(_spent(server) - before)
    return windows, spent


def _spent(pid: int) -> float:
    """Return the seconds of CPU that the threads of a process used so far (`schedstat` has nanoseconds)."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'node_plugin'}"}
    command = [sys.executable, "-m", "benchmarks.arbiter", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@contextmanager
def _server(kind: str, folder: str, shares: int) -> Iterator[int]:
    process = _started(kind, folder, str(shares))
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


# --- in processes of their own ----------------------------------------------------------------------------------------


async def _serve(folder: Path, shares: int) -> None:
    logging.basicConfig(filename=folder / "log")
    server = ArbiterServer(ShareStore(folder / "state"), beside_us)
    pods = [f"pod-{number}" for number in range(shares)]
    await server.set({GPU: {pod: PlacedShare(Terms(1000 // shares), folder / pod) for pod in pods}})
    print("ready", flush=True)
    await asyncio.Event().wait()


def _fifo(folder: Path, shares: int) -> None:
    """Serve clients in the order in which they ask."""
    poll, ears, lines = select.epoll(), {}, {}
    for number in range(shares):
        path = folder / f"pod-{number}" / "shares" / f"{GPU}.sock"
        path.parent.mkdir(parents=True)
        ear = socket.socket(socket.AF_UNIX)
        ear.bind(str(path))
        ear.listen()
        ears[ear.fileno()] = ear
        poll.register(ear, select.EPOLLIN)
    print("ready", flush=True)
    waiting: deque[int] = deque()
    numbers: dict[int, int] = {}
    holder: int | None = None
    while True:
        for fd, _ in poll.poll():
            if fd in ears:
                line, _ = ears[fd].accept()
                lines[line.fileno()] = line
                numbers[line.fileno()] = 0
                poll.register(line, select.EPOLLIN)
                continue
            data = b""
            with suppress(ConnectionResetError):
                data = lines[fd].recv(1024)
            if not data:  # it may have the GPU, or wait for it
                poll.unregister(fd)
                lines.pop(fd).close()
                waiting = deque(other for other in waiting if other != fd)
                holder = None if holder == fd else holder
            for _, kind, _, _, _, _, _ in _FORM.iter_unpack(data):
                holder = None if kind == DONE else holder
                waiting.append(fd)
            while holder is None and waiting:
                holder = waiting.popleft()
                numbers[holder] += 1
                with suppress(OSError, KeyError):
                    lines[holder].send(encode(Grant(20_000, numbers[holder])))
                    continue
                holder = None


def _client(path: str, seconds: float, hold: int) -> None:
    """Want the GPU all the time; write the times at which leases began and ended, in nanoseconds."""
    times = array("q")
    clock = time.monotonic_ns
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE)
        line.connect(path)
        print("connected", flush=True)
        sys.stdin.readline()
        end = clock() + int(seconds * 1e9)
        last = 0
        line.sendall(encode(Ask(hold)))
        while (now := clock()) < end:
            for _, kind, _, _, _, number, _ in _FORM.iter_unpack(line.recv(1024)):
                if kind == GRANT and number > last:  # otherwise it crossed our answer
                    now = clock()
                    last = number
                    if hold:
                        time.sleep(hold / 1e6)
                    answer = encode(Done(hold, 0, number))
                    times.extend((now, clock()))
                    line.sendall(answer)
    sys.stdout.buffer.write(times.tobytes())


def _connect(path: str) -> None:
    """Connect and disconnect for ever."""
    print("ready", flush=True)
    while True:
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(path)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "connect":
        _connect(rest[0])
    elif what == "client":
        _client(rest[0], float(rest[1]), int(rest[2]))
    elif what == "serve":
        asyncio.run(_serve(Path(rest[0]), int(rest[1])))
    else:
        _fifo(Path(rest[0]), int(rest[1]))
