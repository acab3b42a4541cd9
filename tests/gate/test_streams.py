"""Per-thread default streams, and streams that do not wait for each other."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Revoke
from tests.shares.serve import Serving

from .place import GPU, MIB, Place, Program

OFTEN = 100_000 * ("kernels:1:20", "sync", "sleep:1000")


@pytest.fixture
def server(short: Path) -> Iterator[Serving]:
    """Serve two halves of the GPU."""
    with Serving(short) as serving:
        serving.set({GPU: {"one": (500, 256 * MIB), "two": (500, 256 * MIB)}})
        yield serving


def _streams(place: Place, what: str, number: int = 0, sockets: Path | None = None) -> Program:
    return Program([str(place.built.program("streams")), what, str(number)], place.env(sockets=sockets))


@pytest.mark.parametrize("how", ["captures", "fails"])
def test_event_of_a_thread_does_not_cover_the_work_of_another(place: Place, server: Serving, how: str) -> None:
    """If a kernel that was thought short takes 100 ms and another thread's stream is empty, nothing is given back."""
    two = place.run("dlsym", *OFTEN[:3000], owner="two", sockets=server.socket(GPU, "two").parent)
    with two, _streams(place, how, 5, server.socket(GPU, "one").parent) as one:
        assert one.lines() == ["ready", "done"]
    assert server.overdue() == []
    assert place.sums().overlaps == 0


@pytest.mark.parametrize("what", ["own", "legacy"])
def test_gate_makes_no_stream_wait_for_another(place: Place, what: str) -> None:
    """After a thread has launched in its own or the legacy stream and is idle, no event of the gate delays others."""
    with place.stub() as stub, _streams(place, what) as program:
        stub.keep_granting(600_000_000)
        assert program.lines() == ["ready", "done"]


def test_idle_lease_of_threads_that_stopped_launching_is_given_back(place: Place) -> None:
    """Each thread's last launch has an event of its own: no stream must be queried to know that it ended."""
    with place.stub() as stub, _streams(place, "silent", 20) as program:
        connection = stub.accept()
        while True:
            message = connection.next()
            if isinstance(message, Done) and message.want is None and place.launches() == 3000 + 20 * 6:
                break
            if isinstance(message, Ask) or (isinstance(message, Done) and message.want is not None):
                connection.grant(60_000_000)
        assert max(work.end for work in place.log()) <= time.monotonic_ns() // 1000
        assert [program.line(), program.line()] == ["ready", "silent"]
        program.tell("end")
        assert program.lines() == ["done"]


@pytest.mark.parametrize("what", ["silent", "ended"])
def test_whole_gpu_of_many_threads_is_given_back(place: Place, what: str) -> None:
    """Nothing was measured meanwhile, but when it is given back all work of idle and of ended threads is over."""
    with place.stub() as stub, _streams(place, what, 20) as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(FOREVER)
        assert [program.line(), program.line()] == ["ready", "silent"]
        connection.say(Revoke(lease))
        connection.expect(Done, lambda done: done.number == lease)
        answered = time.monotonic_ns() // 1000
        assert max(work.end for work in place.log()) <= answered
        program.tell("end")
        assert program.lines() == ["done"]


@pytest.mark.parametrize("lasts", [60_000_000, FOREVER], ids=["a share", "a whole GPU"])
def test_ended_threads_leave_nothing_behind(place: Place, lasts: int) -> None:
    """A program that makes ten thousand of them, one after the other, does not grow."""
    with place.stub() as stub, _streams(place, "threads", 10_000) as program:
        stub.keep_granting(lasts)
        assert program.line() == "ready"
        assert int(program.line()) < 2048
        assert program.line() == "done"
