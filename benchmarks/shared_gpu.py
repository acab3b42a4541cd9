"""A notebook beside training on one GPU: unmodified Numba, the gate, the arbiter's server, all in one run.

The GPU is the stand-in, which takes real time and reports every overlap. The same programs run without the gate, and
with the gate and other orders of turns. What is measured while the host of a virtual machine took its CPUs away is
measured again.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .lib.figures import Figure, percentile
from .lib.host import Calm, calmest

if TYPE_CHECKING:
    from tests.gate.standin.board import Board

_COMMAND = "scripts/bench shared_gpu"
_GPU = "GPU-00000000-0000-0000-0000-000000000001"
_PROGRAM = Path(__file__).with_name("programs") / "numba_program.py"
_SECONDS = 20.0
_BURST, _EVERY = 20, 200
"""Kernels of 1 ms in a burst, and milliseconds from one to the next."""
_WARM = 2.0
"""Seconds without savings at the beginning, left out."""


@dataclass(frozen=True)
class _Run:
    """The result of one set of programs."""

    waits: Sequence[float]
    """Milliseconds from the moment of each burst to its first kernel."""
    busy: float
    overlaps: int


def run() -> Sequence[Figure]:
    """Measure for ten minutes, or up to three times as long on a machine whose host is busy."""
    found: list[Figure] = []
    for hogs in (1, 2, 4, 8):
        runs = {name: calmest(partial(_measured, hogs, name)) for name in ("", "fifo", "quota", "none")}
        found += _figures(hogs, runs)
    return found


def _figures(hogs: int, runs: dict[str, Calm[_Run]]) -> list[Figure]:
    ours, others = runs[""].result, {name: run.result for name, run in runs.items()}
    goals = (2.5, 5, 12) if hogs < 8 else (4, 8, 20)
    beside = f"a burst beside {hogs} hogs"
    names = {"fifo": "first come, first served", "quota": "least served first", "none": "no gate"}
    figures = []
    for at, goal, name in zip((50, 95, 100), goals, ("p50", "p95", "longest"), strict=True):
        value, was = percentile(ours.waits, at), percentile(others["quota"].waits, at)
        figures.append(Figure(f"{beside}: wait, {name}, against {names['quota']}", "ms", value, _COMMAND, goal, was))
    for other in ("fifo", "none"):
        was = percentile(others[other].waits, 95)
        name = f"{beside}: wait, p95, against {names[other]}"
        figures.append(Figure(name, "ms", percentile(ours.waits, 95), _COMMAND, goals[1], was))
    idle = 100 - 100 * ours.busy
    figures.append(
        Figure(
            f"{beside}: GPU without work, against {names['quota']}",
            "%",
            idle,
            _COMMAND,
            4 if hogs < 8 else None,
            100 - 100 * others["quota"].busy,
        )
    )
    taken = [run.taken for run in runs.values()]
    name = f"{beside}: CPU that the host took, against the most of any other"
    figures.append(Figure(name, "%", taken[0], _COMMAND, None, max(taken[1:])))
    overlaps = float(others["none"].overlaps)
    figures.append(Figure(f"{beside}: overlaps of two shares", "", ours.overlaps, _COMMAND, 0, overlaps))
    return figures


def _measured(hogs: int, order: str) -> _Run:
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder) / "run", hogs, order)


def _measure(folder: Path, hogs: int, order: str) -> _Run:
    from tests.gate.building import build
    from tests.gate.standin.board import Board
    from tests.gate.standin.clients import python_of
    from tests.shares.serve import Serving

    folder.mkdir()
    built = build(folder / "built")
    names = ["notebook", *(f"hog{number}" for number in range(hogs))]
    milli = 1000 // len(names)
    with ExitStack() as stack:
        if order != "none":
            more = {"order": order} if order else {}
            server = stack.enter_context(Serving(folder, **more))  # type: ignore[arg-type]
            server.set({_GPU: dict.fromkeys(names, milli)})
        programs = []
        for name in names:
            env = {
                **os.environ,
                "JUPYTER_GPU_STANDIN": str(folder / "boards"),
                "JUPYTER_GPU_STANDIN_GPUS": f"{_GPU}:1024",
                "JUPYTER_GPU_STANDIN_OWNER": name,
                "JUPYTER_GPU_STANDIN_LOG": "262144",
                "LD_LIBRARY_PATH": str(built.driver),
            }
            if order != "none":
                env |= {"LD_LIBRARY_PATH": str(built.gate), "JUPYTER_GPU_GATE": str(folder / name / "shares")}
            kind = (
                ["notebook", str(_SECONDS), str(_BURST), str(_EVERY)] if name == "notebook" else ["hog", str(_SECONDS)]
            )
            program = subprocess.Popen(
                [python_of("numba"), _PROGRAM, *kind], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(program.wait)
            stack.callback(program.kill)
            assert program.stdout
            assert program.stdout.readline() == "ready\n"
            programs.append(program)
        for program in programs:
            assert program.stdin
            program.stdin.write("go\n")
            program.stdin.flush()
        assert programs[0].stdout
        bursts = [tuple(map(int, line.split())) for line in programs[0].stdout]
        board = Board(folder / "boards", _GPU)
        return _read(board, bursts)


def _read(board: Board, bursts: Sequence[tuple[int, ...]]) -> _Run:
    from tests.gate.standin.board import busy

    first = bursts[0][0] + round(_WARM * 1e6)
    last = sum(bursts[-1])
    log = [work for work in board.log() if first <= work.start and work.end <= last]
    starts = sorted(work.start for work in log if work.owner == "notebook")
    waits = [
        (next(start for start in starts if start >= began) - began) / 1000
        for began, _ in bursts
        if began >= first and starts and starts[-1] >= began
    ]
    return _Run(waits, busy(log) / (last - first), sum(work.overlapped for work in log))
