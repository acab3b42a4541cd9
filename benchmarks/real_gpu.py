"""The gate and the arbiter on a real GPU, with PyTorch: what training loses, and how well shares are kept.

The baseline of each figure is the same program without the gate, which is what NVIDIA's driver does by itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jupyter_gpu.common.rules import search_path

from .lib.figures import CannotRunError, Figure, percentile

_COMMAND = "scripts/bench real_gpu"
_PROGRAM = Path(__file__).with_name("programs") / "torch_program.py"
Words = Sequence[object]
"""Arguments of a program."""
_SETS, _ROUNDS = 3, 4
_TRAIN, _LONG = 2, 15
"""Seconds of training in each round, and of programs that are on the GPU together."""
_SPENT = 30
"""Seconds before that, in which shares spend what they saved before they began."""
_WIDTHS = {"short kernels": 256, "long kernels": 4096}
_PARTS = {"a": 100, "b": 200, "c": 300, "d": 400}
_BURST, _EVERY = 20, 200
"""Kernels in a burst, and milliseconds from one to the next."""
_KERNEL = 1_000
"""Microseconds of each."""
_WARM = 10
"""Bursts at the beginning that are left out: all shares were idle until then, and have savings."""


def run() -> Sequence[Figure]:
    """Measure for some minutes."""
    python = os.environ.get("JUPYTER_GPU_TEST_TORCH")
    if not python or not Path("/dev/nvidiactl").exists():
        raise CannotRunError("it needs an NVIDIA GPU, and JUPYTER_GPU_TEST_TORCH to name a Python with PyTorch for it")
    with tempfile.TemporaryDirectory(prefix="g") as folder:
        bench = Bench(python, Path(folder))
        (cycles,) = bench.numbers("cycles", gated=False)
        beside = (figure for hogs in (1, 4) for figure in _beside(bench, hogs, cycles))
        return [*_training(bench), *_together(bench, cycles), *beside]


class Bench:
    """Starts programs under the gate and without it."""

    def __init__(self, python: str, folder: Path, program: Path = _PROGRAM) -> None:
        self.python, self.folder, self.program, self.runs = python, folder, program, 0
        from jupyter_gpu.backends.local.sharing import front
        from tests.gate.building import build_gate

        driver = front.driver_of(os.environ)
        if driver is None:
            raise CannotRunError("no program finds the driver, libcuda.so.1")
        self.gate = build_gate(folder / "gate", driver)
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        self.gpu = re.findall(r"UUID: (GPU-[0-9a-f-]+)", listed)[0]

    def start(
        self,
        stack: ExitStack,
        shares: Mapping[str, int | tuple[int, int]],
        commands: Mapping[str, Words],
        *,
        gated: bool,
    ) -> Run:
        """Start programs, by share; they warm up. They end with ``stack``, as does the arbiter that they have."""
        from tests.shares.serve import Serving

        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        if gated:
            stack.enter_context(Serving(folder)).set({self.gpu: shares})
        programs = {}
        for name, words in commands.items():
            env = {**os.environ, "CUDA_VISIBLE_DEVICES": self.gpu}
            if gated:
                env |= {
                    "LD_LIBRARY_PATH": search_path.joined(str(self.gate), os.environ.get("LD_LIBRARY_PATH")),
                    "JUPYTER_GPU_GATE": str(folder / name / "shares"),
                }
            command: list[str | Path] = [self.python, self.program, *map(str, words)]
            program = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(program.wait)
            stack.callback(program.kill)
            programs[name] = program
        return Run(programs)

    def said(self, shares: Mapping[str, int], commands: Mapping[str, Words], *, gated: bool) -> dict[str, list[str]]:
        """Return what each of the programs prints, by share; all begin to measure together."""
        with ExitStack() as stack:
            run = self.start(stack, shares, commands, gated=gated)
            run.await_ready()
            return run.said()

    def numbers(self, *words: object, gated: bool) -> list[float]:
        """Return the numbers that one program prints when it runs alone."""
        return _numbers(self.said({"one": 500}, {"one": words}, gated=gated)["one"][-1])


class Run:
    """Programs that were started, by share."""

    def __init__(self, programs: Mapping[str, subprocess.Popen[str]]) -> None:
        self._programs = programs

    def await_ready(self) -> None:
        """Wait until all are warm."""
        for program in self._programs.values():
            assert program.stdout
            assert program.stdout.readline() == "ready\n"

    def said(self) -> dict[str, list[str]]:
        """Let all begin; return what each of them prints until it ends."""
        for name in self._programs:
            self._go(name)
        return {name: program.communicate()[0].splitlines() for name, program in self._programs.items()}

    def round(self, name: str) -> list[float]:
        """Let one of them measure once; return the numbers that it prints."""
        self._go(name)
        program = self._programs[name]
        assert program.stdout
        return _numbers(program.stdout.readline())

    def ask(self, asked: Mapping[str, object]) -> dict[str, Any]:
        """Ask some of them at the same time, in JSON; return what each answers."""
        for name, words in asked.items():
            self._go(name, json.dumps(words))
        answers = {}
        for name in asked:
            program = self._programs[name]
            assert program.stdout
            answers[name] = json.loads(program.stdout.readline())
        return answers

    def _go(self, name: str, words: str = "go") -> None:
        program = self._programs[name]
        assert program.stdin
        program.stdin.write(f"{words}\n")
        program.stdin.flush()


def _numbers(line: str) -> list[float]:
    return [float(word) for word in line.split()]


def _training(bench: Bench) -> list[Figure]:
    """Train without the gate, alone in a share, and beside a program that is connected and does nothing."""
    figures = []
    for kind, width in _WIDTHS.items():
        with ExitStack() as stack:
            free, alone, beside = _rounds(_trainers(bench, stack, width))
        for name, unit, at in (("a step of training", "µs", 0), ("a launch inside a lease", "ns", 1)):
            with_it, without = ([numbers[at] for numbers in found] for found in (alone, free))
            figures.append(
                Figure.of(f"A real GPU: {name}, {kind}, against no gate", unit, with_it, _COMMAND, baseline=without)
            )
        for name, held in (("alone", alone), ("beside a connected program", beside)):
            loss = [100 * (one[0] - other[0]) / other[0] for one, other in zip(held, free, strict=True)]
            figures.append(Figure.of(f"A real GPU: training's loss {name}, {kind}", "%", loss, _COMMAND, goal=1))
    return figures


def _trainers(bench: Bench, stack: ExitStack, width: int) -> list[list[Run]]:
    """Return sets of three programs, which start together, as that takes longer than what they measure in turn.

    Processes of the same program differ by some per cent for as long as they run, so there is more than one set.
    """
    train = ("train", _TRAIN, width, _ROUNDS)
    return [
        [
            bench.start(stack, {"one": 500}, {"one": train}, gated=False),
            bench.start(stack, {"one": 500}, {"one": train}, gated=True),
            bench.start(stack, {"one": 500, "two": 500}, {"one": train, "two": ("idle",)}, gated=True),
        ]
        for _ in range(_SETS)
    ]


def _rounds(sets: Sequence[Sequence[Run]]) -> list[list[list[float]]]:
    """Return for each of the three kinds what its programs measure, one after another."""
    for runs in sets:
        for run in runs:
            run.await_ready()
    rounds = [[run.round("one") for run in runs] for _ in range(_ROUNDS) for runs in sets]
    return [list(kind) for kind in zip(*rounds, strict=True)]


def _together(bench: Bench, cycles: float) -> list[Figure]:
    errors, busy = [], []
    for gated in (True, False):
        said = bench.said(_PARTS, dict.fromkeys(_PARTS, ("hog", _LONG, cycles, _SPENT)), gated=gated)
        done = {name: int(lines[-1]) for name, lines in said.items()}
        total = sum(done.values())
        errors.append(max(abs(100 * done[name] / total - milli / 10) for name, milli in _PARTS.items()))
        busy.append(100 - total / _LONG / 10)
    name = "A real GPU: shares of 10/20/30/40 %"
    return [
        Figure(
            f"{name}: the largest error in kernels done, against no gate", "%", errors[0], _COMMAND, None, errors[1]
        ),
        Figure(f"{name}: GPU without work, against no gate", "%", busy[0], _COMMAND, None, busy[1]),
    ]


def _beside(bench: Bench, hogs: int, cycles: float) -> list[Figure]:
    names = ["notebook", *(f"hog{number}" for number in range(hogs))]
    commands = dict.fromkeys(names, ("hog", _LONG, cycles, 0)) | {
        "notebook": ("notebook", _LONG, cycles, _BURST, _EVERY)
    }
    waits, idle = [], []
    for gated in (True, False):
        said = bench.said(dict.fromkeys(names, 1000 // len(names)), commands, gated=gated)
        bursts = [tuple(map(int, line.split())) for line in said.pop("notebook")]
        waits.append([(ended - _KERNEL) / 1000 for ended, _ in bursts[_WARM:]])
        done = len(bursts) * _BURST + sum(int(lines[-1]) for lines in said.values())
        idle.append(100 - done / _LONG / 10)
    beside = f"A real GPU: a burst beside {hogs} {'hog' if hogs == 1 else 'hogs'}"
    figures = [
        Figure(f"{beside}: wait, {name}, against no gate", "ms", percentile(waits[0], at), _COMMAND, None,
               percentile(waits[1], at))
        for at, name in ((50, "p50"), (95, "p95"), (100, "longest"))
    ]  # fmt: skip
    return [*figures, Figure(f"{beside}: GPU without work, against no gate", "%", idle[0], _COMMAND, None, idle[1])]
