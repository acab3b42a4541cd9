"""Programs of one process for each GPU, as torchrun starts them, with the real server and real processes."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from tests.shares.client import now, overlaps, uses
from tests.shares.serve import ROOT, Serving
from tests.shares.server.test_multi_gpu import GPUS, Side
from tests.shares.world import connect, grows, stands, until

NUMBER = Struct("q")
NONE, READY = -2, -1


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Serving]:
    """Two pods with half of each of two GPUs."""
    with Serving(tmp_path) as server:
        server.set({gpu: {"a": 500, "b": 500} for gpu in GPUS})
        yield server


class Job:
    """One process for each GPU. What each launches ends only when the others have launched it, too.

    All of them are connected before any launches: libraries of collectives have memory on each GPU first. ``tied``:
    they have a parent of their own, else the test is their parent, as the Jupyter server is that of kernels.
    """

    def __init__(self, server: Serving, folder: Path, pod: str, *gpus: str, tied: bool = True) -> None:
        self.folder, self.pod, self.gpus, self.tied = folder, pod, gpus, tied
        self.board = folder / f"{pod}.board"
        self.board.write_bytes(NUMBER.pack(NONE) * len(gpus))
        self.paths = {gpu: server.socket(gpu, pod) for gpu in gpus}
        self.processes: list[subprocess.Popen[bytes]] = []
        if tied:
            self.start([sys.executable, "-c", PARENT])
        for gpu in gpus:
            self.begin(gpu)

    def start(self, command: list[str]) -> None:
        path = f"{ROOT}:{ROOT / 'node_plugin'}"
        one = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE)
        self.processes.append(one)

    def begin(self, gpu: str) -> None:
        """Its process for that GPU, until it is connected."""
        number = self.gpus.index(gpu)
        self.log(gpu).touch()
        rank = [
            sys.executable,
            "-m",
            "tests.shares.server.test_ranks",
            str(self.log(gpu)),
            str(self.board),
            str(number),
        ]
        rank.append(str(self.paths[gpu]))
        if self.tied:
            parent = self.processes[0].stdin
            assert parent is not None
            parent.write(" ".join(rank).encode() + b"\n")
            parent.flush()
        else:
            self.start(rank)
        until(lambda: self.launched(gpu) == READY)

    def go(self, gpu: str) -> None:
        """It launches from now on."""
        with self.board.open("r+b") as board:
            board.seek(NUMBER.size * self.gpus.index(gpu))
            board.write(NUMBER.pack(0))

    def launched(self, gpu: str) -> int:
        """Rounds that it has launched there."""
        found: int = NUMBER.unpack_from(self.board.read_bytes(), NUMBER.size * self.gpus.index(gpu))[0]
        return found

    def log(self, gpu: str) -> Path:
        """Return the path of the log of its rounds there."""
        return self.folder / f"{self.pod}.{gpu}.rounds"

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            with process:
                pass


PARENT = """
import subprocess, sys
for line in sys.stdin:  # sessions of their own, as torchrun starts them
    subprocess.Popen(line.split(), start_new_session=True, stdin=subprocess.DEVNULL)
"""


@contextlib.contextmanager
def jobs(server: Serving, folder: Path, *, tied: bool = True) -> Iterator[tuple[Job, Job]]:
    """Run jobs of both pods on both GPUs."""
    with Job(server, folder, "a", *GPUS, tied=tied) as a, Job(server, folder, "b", *GPUS, tied=tied) as b:
        a.go(GPUS[0])
        until(lambda: a.launched(GPUS[0]))
        b.go(GPUS[1])
        if not tied:  # each has one GPU then, and needs the other
            until(lambda: b.launched(GPUS[1]))
        a.go(GPUS[1])
        b.go(GPUS[0])
        yield a, b


def test_two_programs_of_one_process_for_each_gpu(both: Serving, tmp_path: Path) -> None:
    """Both go on, and they never have one GPU each."""
    with jobs(both, tmp_path) as every:
        for _ in range(5):
            for job in every:
                for gpu in GPUS:
                    grows(job.log(gpu), 10)
    for gpu in GPUS:
        assert not overlaps({job.pod: uses(job.log(gpu)) for job in every})
    assert not both.overdue()


def test_processes_that_the_server_started_are_programs_of_their_own(both: Serving, tmp_path: Path) -> None:
    """They are not known to wait for each other, as notebooks are not: each GPU decides for itself, and these stand."""
    with jobs(both, tmp_path, tied=False) as every:
        until(lambda: len(both.members()) == 4)
        logs = [job.log(gpu) for job in every for gpu in GPUS]
        assert stands(*logs)
        assert not any(log.read_text() for log in logs)


def test_a_server_that_is_killed(both: Serving, tmp_path: Path) -> None:
    """The next server learns the programs when they have connected again."""
    with jobs(both, tmp_path) as every:
        for _ in range(2):
            for job in every:
                grows(job.log(GPUS[0]), 10)
            both.kill()
            both.start()
            both.set({gpu: {"a": 500, "b": 500} for gpu in GPUS})
        for job in every:
            grows(job.log(GPUS[1]), 10)


def test_a_process_that_loses_its_parent(both: Serving, tmp_path: Path) -> None:
    """It still belongs to its program, and neither its end nor that of all is an error."""
    with jobs(both, tmp_path) as (a, b):
        grows(a.log(GPUS[0]), 5)
        grows(b.log(GPUS[0]), 5)
        with connect(both, "a", GPUS[0]):  # something changes, and all is decided again
            a.processes[0].kill()
            a.processes[0].wait()
        until(lambda: all(member["pod"] == "b" for member in both.members()))
        grows(b.log(GPUS[0]), 20)
    assert "Traceback" not in both.log


def rank(log: int, board: mmap.mmap, number: int, path: Path, parent: int) -> None:
    """A round ends a while after all have launched it; then the next one begins."""
    side = Side(path)
    (turn,) = NUMBER.unpack_from(board, NUMBER.size * number)
    if turn == NONE:
        NUMBER.pack_into(board, NUMBER.size * number, READY)
    runs, began, met = False, 0, 0
    while os.getppid() == parent:  # as torchrun's do, it ends with that
        side.hear()
        (turn,) = NUMBER.unpack_from(board, NUMBER.size * number)
        if turn == READY:
            continue
        if not runs and side.may():
            runs, began, met = True, now(), 0
            turn += 1
            NUMBER.pack_into(board, NUMBER.size * number, turn)
        elif side.asked and not runs:
            side.done(wants=True)
        if runs and not met and all(one >= turn for (one,) in NUMBER.iter_unpack(board)):
            met = now()
        if met and runs and now() >= met + 2_000:
            os.write(log, b"%d %d\n" % (began, now()))
            runs = False
            if side.asked or side.once:
                side.done(wants=True)


if __name__ == "__main__":
    written = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    with Path(sys.argv[2]).open("r+b") as shared:
        place = mmap.mmap(shared.fileno(), 0)
    starter = os.getppid()
    while os.getppid() == starter:
        with contextlib.suppress(Exception):  # the server was killed, say: again
            rank(written, place, int(sys.argv[3]), Path(sys.argv[4]), starter)
        time.sleep(0.001)
