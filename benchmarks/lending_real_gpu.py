"""Waits of two owners of a real GPU beside a guest that computes while they rest, and without it.

The programs are PyTorch's, under the gate. They run on from round to round, with and without the guest in turn, so that
both meet the same processes; the owners' bursts are those of the simulation (`lending`), the same with the guest and
without. ``JUPYTER_GPU_TEST_FIGURES`` names a file for what each round found, as JSON.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .lending import GOAL, GUEST, OWNERS, OWNERS_KERNEL, Bursts, drawn, simulate, waits
from .lib.figures import CannotRunError, Figure, percentile
from .real_gpu import Bench

_COMMAND = "scripts/bench lending_real_gpu"
_PROGRAM = Path(__file__).with_name("programs") / "lent_program.py"
_SECONDS, _ROUNDS = 8, 2
"""Seconds of a round; pairs of rounds, each with bursts of its own."""
_CASES = ((0.1, 1), (0.2, 1), (0.3, 1), (0.4, 1))
"""Part of its share that each owner uses, and milliseconds of the guest's kernels."""
_GUEST_MEMORY = 8 << 30


def run() -> Sequence[Figure]:
    """Measure for about two minutes and a half."""
    python = os.environ.get("JUPYTER_GPU_TEST_TORCH")
    if not python or not Path("/dev/nvidiactl").exists():
        raise CannotRunError("it needs an NVIDIA GPU, and JUPYTER_GPU_TEST_TORCH to name a Python with PyTorch for it")
    with tempfile.TemporaryDirectory(prefix="g") as folder, ExitStack() as stack:
        shares: dict[str, int | tuple[int, int]] = {**dict.fromkeys(OWNERS, 500), GUEST: (0, _GUEST_MEMORY)}
        commands = dict.fromkeys(shares, ())
        started = Bench(python, Path(folder), _PROGRAM).start(stack, shares, commands, gated=True)
        started.await_ready()
        rounds = _Rounds(started)
        return [figure for part, kernel in _CASES for figure in _compare(rounds, part, kernel)]


class _Rounds:
    """Rounds of the programs that run."""

    def __init__(self, started: Any) -> None:
        self._started = started
        self._per = started.ask({OWNERS[0]: {"cycles": 1}})[OWNERS[0]]
        self.one(drawn(0.2, _ROUNDS, 1), None)  # so that no first use of anything is measured

    def one(self, bursts: Mapping[str, Bursts], guest: int | None) -> Mapping[str, Any]:
        """Return what each program answers; ``guest``: microseconds of its kernels, if it is to compute."""
        asked: dict[str, object] = {
            name: {"bursts": _kernels(jobs), "kernel": OWNERS_KERNEL, "per": self._per} for name, jobs in bursts.items()
        }
        if guest is not None:
            asked[GUEST] = {"guest": guest, "seconds": _SECONDS, "per": self._per}
        found: Mapping[str, Any] = self._started.ask(asked)
        time.sleep(0.2)
        return found


def _kernels(jobs: Bursts) -> list[tuple[int, int]]:
    return [(moment, max(1, round(work / OWNERS_KERNEL))) for moment, work in jobs]


def _compare(rounds: _Rounds, part: float, kernel: int) -> Iterator[Figure]:
    found: dict[str, dict[bool, list[float]]] = {what: {False: [], True: []} for what in ("wait", "wait and burst")}
    simulated: dict[bool, list[float]] = {False: [], True: []}
    had, left = 0.0, 0.0
    for number in range(2 * _ROUNDS):
        guest, drawing = number % 4 in (1, 2), number // 2  # a drift of the machine meets both
        bursts = drawn(part, drawing, _SECONDS)
        answer = rounds.one(bursts, 1000 * kernel if guest else None)
        _note({"part": part, "kernel": kernel if guest else None, "drawing": drawing, **answer})
        ends = [end for name in OWNERS for end in answer[name]]
        found["wait"][guest] += [first / 1000 for first, _ in ends]
        found["wait and burst"][guest] += [last / 1000 for _, last in ends]
        simulated[guest] += waits(simulate(bursts, _SECONDS, guest=1000 * kernel if guest else None))
        if guest:
            had += answer[GUEST] * kernel
            left += _SECONDS * 1000 - sum(work for jobs in bursts.values() for _, work in jobs) / 1000
    name = f"lending, a real GPU: owners at {part:.0%} of their shares, guest with kernels of {kernel} ms"
    for what, samples in (*found.items(), ("wait, simulated", simulated)):
        for at in (50, 99):
            before, after = (percentile(samples[guest], at) for guest in (False, True))
            goal = GOAL * before if at == 99 else None
            yield Figure(f"{name}: {what}, p{at}", "ms", after, _COMMAND, goal, before)
    yield Figure(f"{name}: time that it has, of what they leave", "%", 100 * had / left, _COMMAND)


def _note(found: Mapping[str, Any]) -> None:
    if path := os.environ.get("JUPYTER_GPU_TEST_FIGURES"):
        with Path(path).open("a") as file:
            print(json.dumps(found), file=file, flush=True)
