"""The socket of parking, with real connections: who may use it, what it hears, and what it survives."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.parking.rules.messages import Check, Hello, Need, Park, ProcessState, State, Use
from jupyter_gpu_node.parking.rules.protocol import encode
from jupyter_gpu_node.parking.server.park_socket import MOST_PROCESSES
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.pace import RESERVE
from jupyter_gpu_node.shares.server.peer import in_its_pod
from tests.parking.gate import ABLE, UUID, Gate
from tests.parking.serve import Serving

RUNNING = ProcessState(State.RUNNING)
FLOOD = """
import socket, sys
while True:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(sys.argv[1])
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """Return the server of one pod."""
    with Serving(tmp_path, "a") as found:
        yield found


def _self() -> ProcessId:
    return ProcessId(os.getpid(), proc.process_start_time(os.getpid()) or 0)


def test_gate_is_heard_after_its_introduction(serving: Serving) -> None:
    """Both ends say something, and the server knows who it is: from the kernel."""
    with Gate(serving.socket("a")) as gate:
        gate.say(Hello(13000, ABLE, 0))
        assert serving.gates() == ()
    with Gate(serving.socket("a")) as gate:
        gate.introduce()
        gate.say(Use(False, False, 5, 6), Need(True))
        serving.until(lambda: len(serving.heard_all) == 3)
        assert serving.heard_all == [
            ("a", _self(), message) for message in (RUNNING, Use(False, False, 5, 6), Need(True))
        ]
        (found,) = serving.gates()
        assert (found.pod, found.process, found.introduction.gpus) == ("a", _self(), (UUID,))
        assert (found.introduction.use.rest, serving.do(lambda: serving.server.gate(_self()))) == (5, found)
        serving.send(_self(), Check(1), Park(1, 2))
        serving.send(ProcessId(1, 1), Check(2))
        assert [gate.next(), gate.next()] == [Check(1), Park(1, 2)]
    serving.until(lambda: serving.gone == [("a", _self())])
    assert serving.gates() == ()


def test_newer_connection_of_a_process_counts(serving: Serving) -> None:
    """The older one is closed, and its end is no news."""
    with Gate(serving.socket("a")) as old, Gate(serving.socket("a")) as new:
        old.introduce()
        serving.until(lambda: len(serving.heard_all) == 1)
        new.introduce()
        assert old.ended()
        serving.send(_self(), Check(1))
        assert new.next() == Check(1)
        assert serving.gone == []


@pytest.mark.parametrize(
    "data",
    [b"\0" * 32, encode(Need(True)), encode(Check(1)), encode(Hello(1, ABLE, 1)) + encode(RUNNING)],
    ids=["zeros", "too early", "of the node", "out of order"],
)
def test_what_is_no_message_ends_the_connection(serving: Serving, data: bytes) -> None:
    """Others of the pod go on."""
    with Gate(serving.socket("a")) as good, Gate(serving.socket("a")) as bad:
        good.introduce()
        serving.until(lambda: len(serving.heard_all) == 1)
        bad.raw(data)
        assert bad.ended()
        serving.send(_self(), Check(1))
        assert good.next() == Check(1)


def test_forged_bytes_never_stop_the_server(serving: Serving) -> None:
    """Three hundred connections with garbage after an introduction or none, in pieces."""
    chance = random.Random(27)
    for _ in range(300):
        time.sleep(0.01)  # within the pace
        with Gate(serving.socket("a")) as gate, contextlib.suppress(OSError):
            if chance.random() < 0.5:
                gate.introduce()
            kinds = bytes([1, chance.choice([32, 33, 34, 35, 36, 41, 60])])
            gate.raw((kinds + chance.randbytes(62))[: chance.randrange(64)])
            gate.raw(chance.randbytes(chance.randrange(100)))
    with Gate(serving.socket("a")) as gate:
        gate.introduce()
        serving.until(lambda: serving.server.gates)
        serving.send(_self(), Check(1))
        assert gate.next() == Check(1)


def test_only_processes_of_the_pod_are_admitted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the control group of the process; the log says why one is refused."""
    with Serving(tmp_path, "a", check=in_its_pod) as serving, Gate(serving.socket("a")) as gate:
        assert gate.ended()
        serving.until(lambda: "Parking of pod a: a connection is refused: process" in caplog.text)


def test_connections_of_a_pod_are_limited(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """One more is refused, until one has ended."""
    with contextlib.ExitStack() as stack:
        gates = [stack.enter_context(Gate(serving.socket("a"))) for _ in range(MOST_PROCESSES)]
        serving.until(lambda: len(serving.server._gates) == MOST_PROCESSES)
        with Gate(serving.socket("a")) as refused:
            assert refused.ended()
        serving.until(lambda: "which is all that one pod can have" in caplog.text)
        gates[0].socket.close()
        serving.until(lambda: len(serving.server._gates) < MOST_PROCESSES)
        with Gate(serving.socket("a")) as gate:
            gate.introduce()
            serving.until(lambda: serving.server.gates)


def test_connections_in_a_loop_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Above the pace of a user; another pod is served meanwhile."""
    caplog.set_level(logging.WARNING)
    with Serving(tmp_path, "a", "b") as serving:
        with subprocess.Popen([sys.executable, "-c", FLOOD, str(serving.socket("a"))]) as flood:
            try:
                serving.until(lambda: "connect too often" in caplog.text)
                with Gate(serving.socket("b")) as gate:
                    gate.introduce()
                    serving.until(lambda: serving.server.gates)
            finally:
                flood.kill()
        assert RESERVE > MOST_PROCESSES


def test_pods_come_and_go(tmp_path: Path) -> None:
    """One that stays keeps its connections; one that is gone has none, and no file."""
    with Serving(tmp_path, "a", "b") as serving, Gate(serving.socket("a")) as a, Gate(serving.socket("b")) as b:
        b.introduce()
        serving.until(lambda: serving.server.gates)
        serving.set({"b": tmp_path / "b"})
        assert a.ended()
        assert not serving.socket("a").exists()
        serving.send(_self(), Check(1))
        assert b.next() == Check(1)
        serving.set({"b": tmp_path / "c"})
        assert b.ended()
        assert serving.socket("c").exists()


def test_socket_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    """The others are there at once."""
    (tmp_path / "a").write_text("no folder")
    with Serving(tmp_path) as serving:
        wanted = {"a": tmp_path / "a", "b": tmp_path / "b"}
        with pytest.raises(OSError, match="a"):
            serving.set(wanted)
        assert serving.socket("b").exists()
        (tmp_path / "a").unlink()
        serving.set(wanted)
        assert serving.socket("a").exists()


def test_next_server_takes_the_place(tmp_path: Path) -> None:
    """The file stays when one ends, and the next one replaces it."""
    with contextlib.ExitStack() as stack:
        with Serving(tmp_path, "a") as first:
            gate = stack.enter_context(Gate(first.socket("a")))
            gate.introduce()
            first.until(lambda: first.server.gates)
        assert gate.ended()
    assert first.socket("a").exists()
    with Serving(tmp_path, "a") as second, Gate(second.socket("a")) as gate:
        gate.introduce(ProcessState(State.PARKED, 7, 8, 9))
        second.until(lambda: second.heard_all)
        assert second.heard_all == [("a", _self(), ProcessState(State.PARKED, 7, 8, 9))]


def test_gate_that_does_not_read_is_disconnected(serving: Serving) -> None:
    """Nothing waits for it."""
    with Gate(serving.socket("a")) as gate:
        gate.introduce()
        serving.until(lambda: serving.server.gates)
        for _ in range(200):
            serving.send(_self(), *[Check(1)] * 100)
        serving.until(lambda: not serving.server.gates)
