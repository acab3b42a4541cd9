"""The cost of the gate for a program on a simulated GPU: nanoseconds of a launch and of any call, and the throughput of
short kernels.

Also that of training, which has other things to do in each of its steps: a program that runs ahead of its GPU does not
notice the gate, which lets it do so only while no program of another share is there. Training that the host of a
virtual machine disturbed is measured again.

Also a program that only copies, beside one that only computes: each is to have its half, in turns, with little idle
time; and small copies, which wait for no turn: how much of their time was not charged.

Also what an ending program, which may take long, costs its neighbour: the longest pause of kernels of a millisecond,
with the real server.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from .lib.figures import CannotRunError, Figure
from .lib.host import calmest

COMMAND = "scripts/bench gate"
ROOT = Path(__file__).parents[1]
GPU = "GPU-00000000-0000-0000-0000-000000000001"
ROUNDS = 9
LAUNCHES, SHORT_KERNELS, CALLS, ARMINGS, QUERIES = 500_000, 50_000, 5_000_000, 10_001, 200_000
TRAINING, PAUSE = 4, 600
"""Seconds of each round, and microseconds in each step."""
ENDINGS = 20
ENDING = 0.5
"""Seconds that the end of a program takes."""
COPY, RATE, WARM, BESIDE = 1 << 21, 2048, 2.0, 10.0
"""Bytes of a copy, and in a microsecond (so it takes a millisecond); seconds before it is measured, and of that."""
SMALL, TRICKLE = 4096, 1.0
"""Bytes of a small copy, which takes two microseconds by the gate's estimate; seconds of them."""


def run() -> Sequence[Figure]:
    """Measure with the gate and without in turn in each round, so that both run on the same machine conditions."""
    if shutil.which("gcc") is None:
        raise CannotRunError("building the gate and the stand-in driver needs gcc")
    with tempfile.TemporaryDirectory(prefix="g") as folder:
        bench = _Bench(Path(folder))
        calls = [bench.call() for _ in range(ROUNDS)]
        arming = [bench.arming() for _ in range(ROUNDS)]
        query, direct = zip(*(bench.query() for _ in range(ROUNDS)), strict=True)
        free: list[float] = []
        share: list[float] = []
        whole: list[float] = []
        slow: list[float] = []
        fast: list[float] = []
        kinds = (None, "alone", "share")
        steps = [[calmest(partial(bench.step, kind)).result for kind in kinds] for _ in range(ROUNDS // 2)]
        for _ in range(ROUNDS):
            free.append(bench.rate(None, LAUNCHES, 0)[0])
            share.append(bench.rate("share", LAUNCHES, 0)[0])
            whole.append(bench.rate("whole", LAUNCHES, 0)[0])
            fast.append(bench.rate(None, SHORT_KERNELS, 10)[1])
            slow.append(bench.rate("share", SHORT_KERNELS, 10)[1])
        beside = [bench.beside() for _ in range(3)]
        unpaid = [bench.unpaid() for _ in range(3)]
    loss = [100 * (one - other) / other for one, other in zip(slow, fast, strict=True)]
    ours, jumps = zip(*calls, strict=True)
    arms, firsts = zip(*arming, strict=True)
    return [
        Figure.of("Gate: cost per entry, against a jump of the linker", "ns", ours, COMMAND, goal=0.5, baseline=jumps),
        Figure.of("Gate: to arm all entries", "µs", arms, COMMAND),
        Figure.of("Gate: the first use after that", "µs", firsts, COMMAND),
        Figure.of("Gate: to ask whether a stream is done", "ns", query, COMMAND, baseline=direct),
        Figure.of("Gate: a launch inside a lease", "ns", share, COMMAND, baseline=free),
        Figure.of("Gate: a launch on a whole GPU", "ns", whole, COMMAND, baseline=free),
        Figure.of("Gate: 10 µs kernels, each", "ns", slow, COMMAND, baseline=fast),
        Figure.of("Gate: 10 µs kernels, loss", "%", loss, COMMAND, goal=1),
        Figure.of("Gate: an ending program's cost to its neighbour", "ms", _endings(), COMMAND, goal=5),
        Figure.of("Gate: copies beside training: off a half", "%", [off for off, _, _ in beside], COMMAND, goal=1),
        Figure.of("Gate: copies beside training: overlaps", "%", [both for _, both, _ in beside], COMMAND, goal=1),
        Figure.of("Gate: copies beside training: rest", "%", [rest for _, _, rest in beside], COMMAND),
        Figure.of("Gate: small copies beside training: not charged", "%", unpaid, COMMAND, goal=3),
        *_training("alone on its GPU", [(free, alone) for free, alone, _ in steps]),
        *_training("another one there", [(free, share) for free, _, share in steps]),
    ]


def _training(which: str, steps: Sequence[tuple[float, float]]) -> list[Figure]:
    """Return the microseconds of a step without the gate, and with it."""
    free, held = ([step[at] for step in steps] for at in (0, 1))
    loss = [100 * (with_it / without - 1) for without, with_it in steps]
    return [
        Figure.of(f"Gate: a step of training, {which}", "µs", held, COMMAND, baseline=free),
        Figure.of(f"Gate: training, {which}: loss", "%", loss, COMMAND, goal=1),
    ]


def _endings() -> list[float]:
    """Return the milliseconds of the neighbour's longest pause for each end of a program that has used the GPU."""
    from tests.gate.building import build
    from tests.gate.place import GPU, Place
    from tests.shares.serve import Serving

    pauses = []
    with tempfile.TemporaryDirectory(prefix="g") as name, Serving(Path(name)) as server:
        folder = Path(name)
        place = Place(build(folder / "built"), folder)
        server.set({GPU: {"one": 500, "two": 500}})
        one, two = (server.socket(GPU, owner).parent for owner in ("one", "two"))
        with place.run("dlsym", "kernels:1000000:1000", owner="two", sockets=two):
            for _ in range(ENDINGS):
                work = (f"at-exit:{ENDING * 1e6:.0f}", "kernels:20:500", "sync")
                with place.run("dlsym", *work, owner="one", sockets=one) as program:
                    while program.line() != "ends":
                        pass
                    begin = place.launches() - 1
                    time.sleep(ENDING * 0.8)
                    pauses.append(max(late.start - before.end for before, late in pairwise(place.log(begin))) / 1000)
    return pauses


class _Bench:
    """The built driver, gate and program, and two servers' sockets, one of which grants a whole GPU."""

    def __init__(self, folder: Path) -> None:
        from tests.gate.building import build_entries, build_gate

        gate = ROOT / "node_plugin" / "gate"
        self.folder = folder
        self.driver, self.gate, self.program = folder / "driver", folder / "gate", folder / "client"
        source = ROOT / "tests" / "gate" / "clients" / "client.c"
        commands: tuple[list[str | Path], ...] = (
            ["sh", gate / "standin" / "build.sh", self.driver],
            ["gcc", "-O2", "-w", "-pthread", source, "-o", self.program],
        )
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        build_gate(self.gate, self.driver / "libcuda.so.1")
        self.entries = build_entries(folder / "entries", self.driver)
        self.parks = build_entries(folder / "parks", self.driver, source="parks.c")

    def call(self) -> tuple[float, float]:
        """Return the nanoseconds that an entry adds to a call, and those that the linker's own jump adds."""
        direct, entry, linked = (float(word) for word in _output([self.entries, "rate", CALLS], {}).split())
        return entry - direct, linked - direct

    def arming(self) -> tuple[float, float]:
        """Return the microseconds of arming the entries, and of the first call that is noticed."""
        arms, first = (float(word) / 1000 for word in _output([self.entries, "arming", ARMINGS], {}).split())
        return arms, first

    def query(self) -> tuple[float, float]:
        """Return the nanoseconds of a call that the gate marks, by its entry and directly."""
        boards = {"JUPYTER_GPU_STANDIN": str(self.folder)}
        entry, direct = (float(word) for word in _output([self.parks, "rate", QUERIES], boards).split())
        return entry, direct

    def rate(self, kind: str | None, launches: int, us: int) -> tuple[float, float]:
        """Return the nanoseconds of each launch until all are submitted, and until all have ended."""
        said = self._said(kind, [self.program, "dlsym", f"rate:{launches}:{us}"])
        queued, ended = said.split("\n")[1].split()
        return float(queued), float(ended)

    def beside(self) -> tuple[float, float, float]:
        """Run two halves, one of which only copies from the host. Return how far its part of the work is from a half,
        how much of it came before the other had ended, and how long the GPU was idle; percent.
        """
        from tests.gate.standin.board import busy

        with self._two_halves(f"uploads:1000000:{COPY}") as (_, _, board):
            time.sleep(WARM + BESIDE)
            log = board().log()
        end = log[-1].start
        since = end - round(BESIDE * 1e6)
        copies, both = busy(log, "copies", since, end), busy(log, None, since, end)
        log = [work for work in log if work.start >= since]
        early = sum(work.overlapped for work in log)
        return abs(100 * copies / both - 50), 100 * early / len(log), 100 - 100 * both / (end - since)

    def unpaid(self) -> float:
        """Return the percentage of small copies' GPU time that their share was not charged, or was charged too much."""
        work = (f"trickle:{TRICKLE * 1000:.0f}:{SMALL}", "sync", "say:copied", "wait-line")
        with self._two_halves(*work) as (server, copies, board):
            assert copies.stdout
            while copies.stdout.readline() != "copied\n":
                pass
            took = sum(work.end - work.start for work in board().log() if work.owner == "copies")
            account = server.usage(GPU, "copies")["account"]
        paid = sum(account[name] for name in ("guaranteed", "borrowed", "idle", "overrun"))
        return float(100 * abs(paid - took) / took)

    @contextmanager
    def _two_halves(self, *work: str) -> Iterator[tuple[Any, Any, Any]]:
        """Start training, and a program that does ``work``: yield the server, that program when ready, and the GPU's
        board.
        """
        from tests.gate.standin.board import Board
        from tests.shares.serve import Serving

        folder = Path(tempfile.mkdtemp(dir=self.folder))
        works = {"training": ("kernels:1000000:1000",), "copies": work}
        with ExitStack() as stack:
            server = stack.enter_context(Serving(folder))
            server.set({GPU: dict.fromkeys(works, 500)})
            pipe = subprocess.PIPE
            for owner, commands in works.items():
                env = {
                    **os.environ, "JUPYTER_GPU_STANDIN": str(folder / "boards"), "JUPYTER_GPU_STANDIN_OWNER": owner,
                    "JUPYTER_GPU_STANDIN_GPUS": f"{GPU}:1024", "JUPYTER_GPU_STANDIN_COPY": str(RATE),
                    "JUPYTER_GPU_STANDIN_LOG": str(1 << 21),
                    "JUPYTER_GPU_GATE": str(folder / owner / "shares"), "LD_LIBRARY_PATH": str(self.gate),
                }  # fmt: skip
                command = [str(self.program), "dlsym", *commands]
                program = stack.enter_context(subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True))
                stack.callback(program.kill)
                assert program.stdout
                program.stdout.readline()
            yield server, program, lambda: Board(folder / "boards", GPU)

    def step(self, kind: str | None) -> float:
        """Return the microseconds of a step of training."""
        from tests.gate.standin.clients import python_of

        program = Path(__file__).with_name("programs") / "numba_program.py"
        return float(self._said(kind, [python_of("numba"), program, "train", TRAINING, PAUSE]).split()[-1])

    def _said(self, kind: str | None, command: Sequence[object]) -> str:
        boards = Path(tempfile.mkdtemp(dir=self.folder))
        own = {
            "LD_LIBRARY_PATH": str(self.driver),
            "JUPYTER_GPU_STANDIN": str(boards),
            "JUPYTER_GPU_STANDIN_GPUS": f"{GPU}:1024",
        }
        if kind is None:
            return _output(command, own)
        from tests.gate.stub import Stub

        sockets = Path(tempfile.mkdtemp(dir=self.folder))
        time = 2**64 - 1 if kind == "whole" else 3_600_000_000
        with Stub(sockets / f"{GPU}.sock") as stub:
            stub.keep_granting(time, ahead=kind == "alone")
            return _output(command, own | {"LD_LIBRARY_PATH": str(self.gate), "JUPYTER_GPU_GATE": str(sockets)})


def _output(command: Sequence[object], own: dict[str, str]) -> str:
    words = [str(word) for word in command]
    return subprocess.run(
        words, env={**os.environ, **own}, input="\n", capture_output=True, text=True, check=True
    ).stdout
