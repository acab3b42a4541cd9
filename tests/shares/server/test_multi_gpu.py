"""Programs that use several GPUs at once, with the real server: processes whose work on one GPU waits for the other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Grant, Revoke
from tests.shares.client import Client, now, overlaps, uses
from tests.shares.serve import ROOT, Serving
from tests.shares.world import connect, grows, until

GPUS = ("GPU-1", "GPU-2")


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Serving]:
    """Two pods with half of each of two GPUs; late is a second, as this machine may not run a process for long."""
    with Serving(tmp_path, grace=1_000_000) as server:
        server.set({gpu: {"a": 500, "b": 500} for gpu in GPUS})
        yield server


@contextlib.contextmanager
def collective(server: Serving, folder: Path, pod: str, *gpus: str, name: str = "") -> Iterator[tuple[int, Path]]:
    """A process that launches on each of these GPUs, in that order, what ends only when it runs on all of them."""
    log = folder / f"{name or pod}.rounds"
    log.touch()
    command = [sys.executable, "-m", "tests.shares.server.test_multi_gpu", str(log)]
    command += [str(server.socket(gpu, pod)) for gpu in gpus]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}"})
    try:
        yield process.pid, log
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def crossed(both: Serving, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Two that need both GPUs, and begin at different ones: their logs."""
    with (
        collective(both, folder, "a", *GPUS) as (_, a),
        collective(both, folder, "b", *reversed(GPUS)) as (_, b),
    ):
        yield a, b


def test_two_programs_that_need_both_gpus(both: Serving, tmp_path: Path) -> None:
    """They begin at different ones, and both go on, for many rounds; never has each one."""
    with crossed(both, tmp_path) as (a, b):
        for _ in range(5):
            grows(a, 40)
            grows(b, 40)
    assert not overlaps({"a": uses(a), "b": uses(b)})
    assert not both.overdue()


def test_killed_program_stops_no_other(both: Serving, tmp_path: Path) -> None:
    """It is killed at any moment, while it has both, one, or none: the other goes on, and the next of that pod too."""
    with collective(both, tmp_path, "b", *reversed(GPUS)) as (_, b):
        grows(b, 5)
        for number in range(12):
            with collective(both, tmp_path, "a", *GPUS, name=f"a{number}") as (_, a):
                grows(a, 1 + 3 * number)
            grows(b, 10)


def test_a_server_that_is_killed(both: Serving, tmp_path: Path) -> None:
    """The next server learns the programs when they have connected again."""
    with crossed(both, tmp_path) as (a, b):
        for _ in range(2):
            grows(a, 10)
            grows(b, 10)
            both.kill()
            both.start()
            both.set({gpu: {"a": 500, "b": 500} for gpu in GPUS})
        grows(a, 10)
        grows(b, 10)


def test_shares_come_and_go(both: Serving, tmp_path: Path) -> None:
    """Both programs go on while a third pod has some of each GPU, then none."""
    with crossed(both, tmp_path) as (a, b):
        both.set({gpu: {"a": 500, "b": 300, "c": 200} for gpu in GPUS})
        with collective(both, tmp_path, "c", *GPUS) as (_, c):
            for log in (a, b, c):
                grows(log, 40)
        both.set({gpu: {"a": 200, "b": 800} for gpu in GPUS})
        grows(a, 20)
        grows(b, 20)


def test_a_program_is_known_before_it_asks(both: Serving) -> None:
    """Two programs connect to both GPUs while the server stands still, and ask for different ones: one has turns.

    The server finds all of that at the same moment, and what it handles first is a request.
    """
    for gpu in GPUS:  # which rest at first
        with connect(both, "a", gpu) as client:
            client.send(Done(None, 0, client.grant().number))
    until(lambda: not both.members())
    os.kill(both.process.pid, signal.SIGSTOP)
    with contextlib.ExitStack() as stack:
        a, _ = (stack.enter_context(connect(both, "a", gpu)) for gpu in GPUS)
        b, _ = (stack.enter_context(connect(both, "b", gpu)) for gpu in reversed(GPUS))
        for client in (a, b):
            client.send(Ask())
        os.kill(both.process.pid, signal.SIGCONT)
        until(lambda: len(both.members()) == 4)
        granted = [client for client in (a, b) if isinstance(client.poll(0.5), Grant)]
        assert len(granted) == 1
        granted[0].send(Done(None, 0, 1))
        other = b if granted[0] is a else a
        assert other.granted().number == 1


def test_process_on_one_gpu_is_not_barred(both: Serving) -> None:
    """Two processes of a pod, each on its own GPU, are no program that needs both."""
    with (
        connect(both, "a", GPUS[0]) as a,
        connect(both, "b", GPUS[1]) as b,
    ):
        a.grant()
        b.grant()
        process = subprocess.Popen(
            [sys.executable, "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
             "print(flush=True); sys.stdin.read()", str(both.socket(GPUS[1], "a"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            until(lambda: both.usage(GPUS[1], "a")["clients"] == 1)
            assert {a.granted().number for _ in range(5)} == {b.granted().number for _ in range(5)} == {1}


def test_a_process_on_both_gpus_gives_both_back(both: Serving) -> None:
    """Asked for one, it is asked for the other; for what it has there it gets single launches on the first."""
    with (
        connect(both, "a", GPUS[0]) as first,
        connect(both, "a", GPUS[1]) as second,
        connect(both, "b", GPUS[0]) as other,
        connect(both, "b", GPUS[1]),
    ):
        first.grant()
        second.grant()
        other.send(Ask())
        lease = first.revoked()
        second.revoked()
        first.send(Done(0, 0, lease))
        while not isinstance(message := first.next(), Grant) or message.number == lease:
            pass
        assert message.once
        assert other.poll() is None
        first.send(Done(0, 0, message.number))
        second.send(Done(0, 0, 1))
        assert not other.granted().once


class Side:
    """The side of such a program on one GPU."""

    def __init__(self, path: Path) -> None:
        self.client = Client(path)
        self.number = self.given = 0
        self.once = self.asked = self.wants = False

    def hear(self) -> None:
        """All that has come."""
        while (message := self.client.poll(0.0002)) is not None:
            if isinstance(message, Grant) and message.number > self.given:
                self.number, self.once, self.wants = message.number, message.once, False
            elif isinstance(message, Revoke) and message.number == self.number:
                self.asked = True

    def may(self) -> bool:
        """Whether it may launch; it asks."""
        if not self.number and not self.wants:
            self.client.send(Ask())
            self.wants = True
        return self.number > 0 and not self.asked

    def done(self, *, wants: bool) -> None:
        """Gives the GPU back."""
        self.client.send(Done(0 if wants else None, 0, self.number))
        self.given, self.number, self.once, self.asked, self.wants = self.number, 0, False, False, wants


def rounds(log: int, paths: list[Path]) -> None:
    """One thread launches on each GPU in turn; a round is over a while after it runs on all, not before."""
    sides = [Side(path) for path in paths]
    launched = 0
    began = 0
    while True:
        for side in sides:
            side.hear()
        if launched == len(sides):
            if now() >= began + 2_000:
                os.write(log, b"%d %d\n" % (began, now()))
                launched = 0
                for side in sides:
                    if side.asked or side.once:
                        side.done(wants=False)
            continue
        if sides[launched].may():
            launched += 1
            began = now()
        for number, side in enumerate(sides):
            if side.asked and number >= launched:
                side.done(wants=number == launched)


if __name__ == "__main__":
    written = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    while True:
        with contextlib.suppress(Exception):  # the server was killed, say: again
            rounds(written, [Path(path) for path in sys.argv[2:]])
