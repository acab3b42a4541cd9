"""The end of a process may take long: its neighbours do not wait for it, and it is no violation."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Revoke
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from tests.shares.serve import Serving
from tests.shares.world import until

from .place import GPU, Place, Program
from .standin.board import Work

ALWAYS = "kernels:1000000:1000"
SLOW = "at-exit:900000"
LEASE = Timing().lease
"""Microseconds of the longest turn."""


@pytest.fixture
def server(short: Path) -> Iterator[Serving]:
    """Serve two halves of the GPU, with 0.3 s until a silent program is late."""
    with Serving(short, grace=300_000) as serving:
        serving.set({GPU: {"one": 500, "two": 500}})
        yield serving


def _run(place: Place, server: Serving, owner: str, *arguments: str) -> Program:
    return place.run("dlsym", *arguments, owner=owner, sockets=server.socket(GPU, owner).parent)


def test_ending_process_gives_back_first(either: Place) -> None:
    """A process gives back what drains within milliseconds, before it takes its time to end."""
    with either.stub() as stub, either.run("dlsym", "at-exit:100000000", "kernels:3:1000") as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(60_000_000)
        done = connection.expect(Done, lambda done: done.number == lease)
        assert done.want is None
        assert all(work.end <= time.monotonic_ns() // 1000 for work in either.log())
        assert [program.line() for _ in range(3)] == ["ready", "done", "ends"]
        assert program.process.poll() is None


@pytest.mark.parametrize("asked", ["before", "after"])
def test_ending_process_acknowledges_work_that_does_not_drain(place: Place, asked: str) -> None:
    """With a kernel that nothing waits for, the GPU is free when the process is gone, and not before."""
    with place.stub() as stub, place.run("dlsym", "at-exit:3000000", "kernels:1:60000000", "wait-line") as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(60_000_000)
        until(lambda: place.launches() == 1)
        if asked == "before":
            connection.say(Revoke(lease))
        program.tell("end")
        assert [program.line() for _ in range(3)] == ["ready", "done", "ends"]
        if asked == "after":
            connection.say(Revoke(lease))
        assert connection.expect(Ask).keeps
        with pytest.raises(EOFError):
            connection.expect(Done)


def test_thread_that_launches_during_exit_gives_back_each_time(place: Place) -> None:
    """Each launch at exit waits for its end itself, as the gate's thread cannot; new streams are gated too."""
    with place.stub() as stub, place.run("dlsym", "at-exit:100000000", "daemon:1000", "wait-line") as program:
        connection = stub.accept()
        connection.until(lambda: place.launches() > 3)
        program.tell("end")
        assert [program.line() for _ in range(3)] == ["ready", "done", "ends"]
        for _ in range(20):
            before = place.launches()
            lease = connection.until(lambda before=before: place.launches() > before)  # type: ignore[misc]
            done = connection.expect(Done, lambda done, lease=lease: done.number == lease)  # type: ignore[misc]
            assert all(work.end <= time.monotonic_ns() // 1000 for work in place.log())
            if done.want is not None:
                connection.grant()


def test_neighbour_of_a_shell_loop_waits_for_turns_only(place: Place, server: Serving) -> None:
    """Programs that each take 0.9 s to end are never late, whatever they left on the GPU."""
    with _run(place, server, "two", ALWAYS):
        until(lambda: place.launches() > 100)
        works = (("kernels:20:500", "sync"), ("kernels:20:500",), ("daemon:200", "sleep:50000"), ("threads:4:100",))
        for arguments in works:
            with _run(place, server, "one", SLOW, *arguments) as program:
                while program.line() != "ends":
                    pass
                gaps = _gaps(place)
                assert gaps[len(gaps) * 9 // 10] < LEASE
                assert gaps[-1] < 250_000  # on a busy machine; it was as long as the end
                assert program.lines() == []
    assert server.overdue() == []
    assert place.sums().overlaps == 0


def _gaps(place: Place) -> list[int]:
    """Return the microseconds between the next 400 launches of ``two``, sorted."""
    before = place.launches()

    def log() -> list[Work]:
        return [work for work in place.log(before) if work.owner == "two"]

    until(lambda: len(log()) > 400)
    return sorted(after.start - work.end for work, after in pairwise(log()))


@pytest.mark.parametrize("down", [0, 1.5])
def test_new_server_learns_that_an_ending_program_has_drained(place: Place, server: Serving, down: float) -> None:
    """After a restart of the server, drained work does not keep the GPU, and other work keeps it until it ends."""
    with _run(place, server, "one", "at-exit:30000000", "kernels:20:500", "sync") as program:
        assert [program.line() for _ in range(3)] == ["ready", "done", "ends"]
        _begins_anew(server, down)
        with _run(place, server, "two", "kernels:1500:1000", "sync") as neighbour:
            assert neighbour.lines() == ["ready", "done"]
        assert program.process.poll() is None
    assert place.sums().overlaps == 0


def _begins_anew(server: Serving, down: float) -> None:
    server.kill()
    time.sleep(down)
    server.start()
    server.set({GPU: {"one": 500, "two": 500}})


@pytest.mark.parametrize("down", [0, 1.5])
def test_new_server_learns_of_the_work_an_ending_program_left(place: Place, server: Serving, down: float) -> None:
    """With a kernel that nothing waits for, no other share gets the GPU, however late the new server starts."""
    with _run(place, server, "one", "at-exit:6000000", "kernels:1:4000000") as program:
        assert [program.line() for _ in range(3)] == ["ready", "done", "ends"]
        _begins_anew(server, down)
        with _run(place, server, "two", "kernels:1:500", "sync") as neighbour:
            assert neighbour.lines() == ["ready", "done"]
    assert place.sums().overlaps == 0
