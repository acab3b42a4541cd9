"""Waits of two owners of a real GPU beside a guest that computes while they rest, and without it.

The programs are PyTorch's, under the gate. They run on from round to round, with and without the guest in turn, so that
both meet the same processes. ``JUPYTER_GPU_TEST_FIGURES`` names a file for what each round found, as JSON.
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

from .lending import GOAL, GUEST, OWNERS
from .lib.figures import CannotRunError, Figure, percentile
from .real_gpu import Bench

_COMMAND = "scripts/bench lending_real_gpu"
_PROGRAM = Path(__file__).with_name("programs") / "lent_program.py"
_BURST, _SECONDS, _ROUNDS = 5, 3.5, 2
"""Kernels of a millisecond in a burst; seconds of a round; pairs of rounds."""
_CASES = ((0.1, 1), (0.2, 1), (0.3, 1), (0.4, 1), (0.2, 10))
"""Part of its share that each owner uses, and milliseconds of the guest's kernels."""
_GUEST_MEMORY = 8 << 30
_STEPS = (0.618, 0.414)
"""Steps of the pauses of each owner: their bursts are to meet by chance alone."""


def run() -> Sequence[Figure]:
    """Measure for about a minute and a half."""
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

    def one(self, part: float, kernel: int | None) -> Mapping[str, Any]:
        """Return what each program answers; without ``kernel`` the guest does nothing."""
        every = _BURST / 1000 / (part * 0.5)
        burst = {"burst": _BURST, "every": every, "seconds": _SECONDS, "per": self._per}
        asked = {name: {**burst, "step": step} for name, step in zip(OWNERS, _STEPS, strict=True)}
        if kernel is not None:
            asked[GUEST] = {"kernel": 1000 * kernel, "seconds": _SECONDS, "per": self._per}
        found: Mapping[str, Any] = self._started.ask(asked)
        _note({"part": part, "kernel": kernel, **found})
        time.sleep(0.2)
        return found


def _compare(rounds: _Rounds, part: float, kernel: int) -> Iterator[Figure]:
    waits: dict[bool, list[float]] = {False: [], True: []}
    times: dict[bool, list[float]] = {False: [], True: []}
    had, left = 0.0, 0.0
    for number in range(2 * _ROUNDS):
        guest = number % 4 in (1, 2)  # a drift of the machine meets both
        found = rounds.one(part, kernel if guest else None)
        bursts = [burst for name in OWNERS for burst in found[name]]
        waits[guest] += [first / 1000 - 1 for first, _ in bursts]
        times[guest] += [last / 1000 for _, last in bursts]
        if guest:
            had += found[GUEST] * kernel
            left += _SECONDS * 1000 - len(bursts) * _BURST
    name = f"lending, a real GPU: owners at {part:.0%} of their shares, guest with kernels of {kernel} ms"
    for what, found_times in (("wait", waits), ("wait and burst", times)):
        for at in (50, 99):
            before, after = (percentile(found_times[guest], at) for guest in (False, True))
            goal = GOAL * before if at == 99 else None
            yield Figure(f"{name}: {what}, p{at}", "ms", after, _COMMAND, goal, before)
    yield Figure(f"{name}: time that it has, of what they leave", "%", 100 * had / left, _COMMAND)


def _note(found: Mapping[str, Any]) -> None:
    if path := os.environ.get("JUPYTER_GPU_TEST_FIGURES"):
        with Path(path).open("a") as file:
            print(json.dumps(found), file=file, flush=True)
