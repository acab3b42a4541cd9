"""Waits of the pods of a shared GPU beside a guest, which runs while they do nothing, and without it.

In simulated time, for owners that use a part of what is guaranteed to them, and with the server of the arbiter and
programs of their own: rounds with and without a guest, in turn, so that both meet the same machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev

from benchmarks.lib.simulated_gpu import ProgramUse, SimulatedProgram, Simulation, hog
from jupyter_gpu_node.shares.rules.protocol import GRANT, Ask, Done, encode
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer, PlacedShare
from jupyter_gpu_node.shares.server.peer import beside_us
from jupyter_gpu_node.shares.server.store import ShareStore

from .lib.figures import Figure, percentile

COMMAND = "scripts/bench lending"
GOAL = 1.072
"""The most that an owner may wait beside a guest, as a multiple of what it waits without one."""
OWNERS = ("ann", "bob")
OWNERS_KERNEL = 250
"""Microseconds of their kernels."""
Bursts = Sequence[tuple[int, int]]
GUEST = "eve"
GPU = "GPU-0"
ROUNDS, SECONDS = 6, 4.0
_MS, _SIMULATED = 1_000, 300
DRAWINGS = 4
"""Sets of owners that are drawn, each without and with a guest: what one of them shows is off by up to a tenth."""
_T = 3.182
"""Student's t of 97.5 % for one less than `DRAWINGS`."""
_FORM = struct.Struct("<BBHIQQQ")
_ROOT = Path(__file__).parents[1]


def run() -> Sequence[Figure]:
    """Measure for about three minutes."""
    usual = (figure for part in (0.1, 0.2, 0.3, 0.4, 0.71) for figure in _simulated(part, _MS))
    longer = _simulated(0.2, 10 * _MS)
    alone = (figure for part in (0.1, 0.3) for figure in _simulated(part, _MS, milli=1))
    return [*usual, *longer, *alone, *_real()]


# --- in simulated time ------------------------------------------------------------------------------------------------


def _simulated(part: float, kernel: int, milli: int = 0) -> Iterator[Figure]:
    """Compare two owners of half a GPU that use ``part`` of it on average, in bursts, without and with a guest.

    ``milli``: 1 is in place of the guest a share of memory alone, as one machine has it.
    """
    sets = [drawn(part, number, _SIMULATED) for number in range(DRAWINGS)]
    uses = [[simulate(bursts, _SIMULATED, guest=guest, milli=milli) for guest in (None, kernel)] for bursts in sets]
    who = "memory alone" if milli else "guest"
    name = f"lending: owners at {part:.0%} of their shares, {who} with kernels of {kernel // _MS} ms"
    for at in (50, 99):
        pairs = [[percentile(waits(use), at) for use in pair] for pair in uses]
        before, after = (mean(values) for values in zip(*pairs, strict=True))
        goal = GOAL * before if at == 99 and not milli else None
        yield Figure(f"{name}: wait, p{at} (simulated)", "ms", after, COMMAND, goal, before)
        if at == 99:
            ratios = [longer / shorter for shorter, longer in pairs]
            off = 100 * _T * stdev(ratios) / DRAWINGS**0.5
            yield Figure(f"{name}: 95 % interval of the ratio of these, each way (simulated)", "%", off, COMMAND)
    before, after = (mean(percentile(_times(pair[at]), 99) for pair in uses) for at in (0, 1))
    yield Figure(f"{name}: wait and burst, p99 (simulated)", "ms", after, COMMAND, None, before)
    whole = DRAWINGS * _SIMULATED * 1_000_000
    idle = 100 - 100 * sum(use.work for without, _ in uses for use in without.values()) / whole
    used = 100 * sum(with_it[GUEST].work for _, with_it in uses) / whole
    yield Figure(f"{name}: time that it has, of what they leave (simulated)", "%", used, COMMAND, None, idle)


def simulate(
    bursts: Mapping[str, Bursts], seconds: int, *, guest: int | None, milli: int = 0
) -> Mapping[str, ProgramUse]:
    """Run the owners' bursts, beside a guest with kernels of that length, one in flight, if any.

    ``milli``: that of the guest; if it has any, two kernels are in flight, as nothing tells its programs otherwise.
    """
    half = 500 - milli
    programs = {name: SimulatedProgram(half, jobs, OWNERS_KERNEL, silent=True) for name, jobs in bursts.items()}
    more = {GUEST: hog(milli, seconds, guest, lead=None if milli else 0)} if guest else {}
    return Simulation(programs | more, Timing(), handover=100).run(seconds * 1_000_000)


def drawn(part: float, number: int, seconds: int) -> dict[str, Bursts]:
    """Draw one burst of each owner for each period, at any moment of it: (moment, GPU time), in microseconds."""
    return {name: tuple(_bursts(random.Random(f"{name} {number}"), part * 50 * _MS, seconds)) for name in OWNERS}


def _bursts(draw: random.Random, long: float, seconds: int) -> Iterator[tuple[int, int]]:
    for period in range(10 * seconds):
        moment = 100 * _MS * period + draw.randrange(100 * _MS)
        yield moment, max(OWNERS_KERNEL, round(draw.gammavariate(2, long / 2)))


def _times(uses: Mapping[str, ProgramUse]) -> list[float]:
    """Return how long each burst took from its moment to its end, in ms: what users of a service see."""
    return [time / _MS for name in OWNERS for time in uses[name].times]


def waits(uses: Mapping[str, ProgramUse]) -> list[float]:
    """Return how long each burst waited from its moment until its first kernel ran, in ms."""
    return [wait / _MS for name in OWNERS for wait in uses[name].waits]


# --- with the server --------------------------------------------------------------------------------------------------


def _real() -> Iterator[Figure]:
    found: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-bench-") as folder, _program("serve", folder):
        for number in range(2 * ROUNDS):
            guest = number % 4 in (1, 2)  # a drift of the machine meets both
            found[guest] += _round(Path(folder), number, guest=guest)
    for at in (50, 99):
        before, after = (percentile(found[guest], at) for guest in (False, True))
        name = f"lending: owners wait beside a guest, p{at} (server, programs of their own)"
        yield Figure(name, "ms", after, COMMAND, GOAL * before if at == 99 else None, before)


def _round(folder: Path, number: int, *, guest: bool) -> list[float]:
    """Return the waits of both owners, in ms, for some seconds with or without a guest."""
    pods = [*OWNERS, *([GUEST] if guest else [])]
    programs = [_started("guest" if pod == GUEST else "owner", str(_path(folder, pod)), str(number)) for pod in pods]
    try:
        said = [program.communicate(timeout=SECONDS + 60)[0] for program in programs[: len(OWNERS)]]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    return [wait / 1e6 for text in said for wait in array("q", text)]


def _path(folder: Path, pod: str) -> Path:
    return folder / pod / "shares" / f"{GPU}.sock"


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'node_plugin'}"}
    command = [sys.executable, "-m", "benchmarks.lending", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


@contextmanager
def _program(*arguments: str) -> Iterator[None]:
    process = _started(*arguments)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # it is ready
        yield
    finally:
        process.kill()
        process.communicate()


# --- in processes of their own ----------------------------------------------------------------------------------------


async def _serve(folder: Path) -> None:
    logging.basicConfig(filename=folder / "log")
    server = ArbiterServer(ShareStore(folder / "state"), beside_us)
    terms = {**dict.fromkeys(OWNERS, Terms(500)), GUEST: Terms(0, 2**30)}
    await server.set({GPU: {pod: PlacedShare(one, folder / pod) for pod, one in terms.items()}})
    print("ready", flush=True)
    await asyncio.Event().wait()


def _owner(path: str, seed: str) -> None:
    """Work in bursts with pauses, in kernels of up to 20 ms; write how long each waited, in nanoseconds."""
    draw, waits, clock = random.Random(f"{path} {seed}"), array("q"), time.monotonic_ns
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        end = clock() + int(SECONDS * 1e9)
        while clock() < end:
            time.sleep(draw.uniform(0.01, 0.06))
            asked = clock()
            line.sendall(encode(Ask(0)))
            number = _granted(line)
            waits.append(clock() - asked)
            time.sleep(draw.uniform(0.002, 0.02))
            line.sendall(encode(Done(None, 0, number)))
    sys.stdout.buffer.write(waits.tobytes())


def _guest(path: str) -> None:
    """Work all the time in kernels of 1 ms, two in flight; give the GPU back when it is asked for, or at the end."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(encode(Ask(0)))
        while True:
            number = _granted(line)
            end = time.monotonic() + 0.003
            while time.monotonic() < end and not select.select([line], [], [], 0)[0]:
                time.sleep(0.001)
            time.sleep(0.001)
            line.sendall(encode(Done(0, 0, number)))


def _granted(line: socket.socket) -> int:
    """Wait for a lease; return its number."""
    while True:
        data = line.recv(1024)
        if not data:
            raise SystemExit("The server closed the connection.")
        numbers = [number for _, kind, _, _, _, number, _ in _FORM.iter_unpack(data) if kind == GRANT]
        if numbers:
            return int(numbers[-1])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(_serve(Path(rest[0])))
    elif what == "owner":
        _owner(rest[0], rest[1])
    else:
        _guest(rest[0])
