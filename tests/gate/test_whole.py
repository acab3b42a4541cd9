"""A whole GPU while its server is gone and when the next one starts: no pause, and never beside another share."""

import os
import time

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Revoke
from tests.shares.client import overlaps
from tests.shares.serve import Serving
from tests.shares.world import until

from .place import GPU, MIB, Place, Program
from .stub import Connection, Stub

ALWAYS = "kernels:1000000:1000"
SHORT = "kernels:100000000:20"
"""A program that nothing holds back launches much more than the GPU does meanwhile: what is queued ends soon."""


def _until_more(place: Place, launches: int = 100) -> None:
    """Wait for so many more launches."""
    before = place.launches()
    until(lambda: place.launches() >= before + launches)


def _until_still(place: Place, program: Program) -> None:
    """Wait until the program launches nothing for a while, as the gate holds it, and all has ended."""

    def same() -> bool:
        before = place.launches()
        time.sleep(0.3)
        if "R" in program.states or place.launches() > before:
            return False
        return place.log(before - 1)[-1].end <= time.monotonic_ns() // 1000

    until(same)


def _whole(place: Place, stub: Stub) -> Connection:
    """Return the connection of a program that has the whole GPU."""
    connection = stub.accept()
    connection.expect(Ask)
    connection.grant(FOREVER)
    _until_more(place, 5)
    return connection


def test_program_continues_without_a_server_and_asks_the_next(either: Place) -> None:
    """It reports that it still has the GPU; the next server need not answer at once."""
    with either.run("dlsym", ALWAYS):
        with either.stub() as stub:
            _whole(either, stub)
            os.link(either.socket, either.sockets / "another-name")  # as other containers of the pod may have it
        for _ in range(5):  # any of them may first be seen at an odd nanosecond
            _until_more(either)
            with either.stub() as stub:
                connection = stub.accept()
                assert connection.expect(Ask).keeps
                connection.grant(FOREVER)
                _until_more(either)


def test_next_server_that_gives_a_share_drains_the_whole_gpu(place: Place) -> None:
    """All work has ended before the answer, also what was queued while nothing held it back."""
    with place.stub() as stub, place.run("dlsym", "kernels:2000:1000", "say:queued", ALWAYS) as program:
        _whole(place, stub)
        assert [program.line(), program.line()] == ["ready", "queued"]  # two seconds of work
        stub.close()
        with place.stub() as stub:
            connection = stub.accept()
            assert connection.expect(Ask).keeps
            lease = connection.grant(1)
            connection.say(Revoke(lease))
            done = connection.expect(Done, lambda done: done.number == lease)
            answered = time.monotonic_ns() // 1000
            log = place.log()
            assert len(log) >= 2000
            assert all(work.end <= answered for work in log)
            if done.want is None:
                connection.expect(Ask)
            assert place.launches() == len(log)
            connection.grant()
            connection.until(lambda: place.launches() > len(log))


def test_long_kernel_of_a_share_is_reported_to_the_next_server(place: Place) -> None:
    """It has not ended when that server starts, and no other share gets the GPU before."""
    with place.run("dlsym", "kernels:1:3000000", "sync", "wait-line") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.until(lambda: place.launches() == 1)
        with place.stub() as stub:
            connection = stub.accept()
            assert connection.expect(Ask).keeps
            lease = connection.grant(1)
            connection.say(Revoke(lease))
            connection.expect(Done, lambda done: done.number == lease)
            answered = time.monotonic_ns() // 1000
            assert place.log()[0].end <= answered
            program.tell("end")
            program.lines()


def test_silent_next_server_stops_the_program(place: Place) -> None:
    """Whatever listens is a server, and may soon give the GPU to others."""
    with place.run("dlsym", SHORT) as program:
        with place.stub() as stub:
            _whole(place, stub)
        _until_more(place)
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            _until_still(place, program)
            connection.grant(FOREVER)
            _until_more(place)


def test_dying_server_that_accepts_once_more_changes_nothing(place: Place) -> None:
    """It listens a moment longer than it is connected."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().close()
        _until_more(place)


def test_server_that_stays_silent_takes_the_gpu_back(place: Place) -> None:
    """It may have given the GPU to another share before it died."""
    with place.run("dlsym", SHORT) as program:
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().expect(Ask)
            _until_still(place, program)
        _until_still(place, program)


def test_program_with_a_smaller_grant_stops_with_the_server(place: Place) -> None:
    """By the server's last message it no longer had the whole GPU."""
    with place.run("dlsym", SHORT) as program:
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().grant(1)
        _until_still(place, program)


@pytest.mark.parametrize("what", ["nothing", "another"])
def test_program_continues_only_at_the_same_socket(place: Place, what: str) -> None:
    """The share may have been removed, or another server may have given the GPU away."""
    with place.run("dlsym", SHORT) as program:
        with place.stub() as stub:
            _whole(place, stub)
        _until_more(place)
        place.socket.unlink()
        if what == "another":
            with place.stub():
                pass
        _until_still(place, program)
        with place.stub() as stub:
            connection = stub.accept()
            assert not connection.expect(Ask).keeps
            connection.grant(FOREVER)
            _until_more(place)


def test_revoked_program_does_not_continue(place: Place) -> None:
    """Its whole GPU was a share already when the server ended."""
    with place.run("dlsym", "kernels:300:1000", ALWAYS) as program:
        with place.stub() as stub:
            connection = _whole(place, stub)
            connection.say(Revoke(connection.lease))
            connection.expect(Done)
        _until_still(place, program)
        with place.stub() as stub:
            assert not stub.accept().expect(Ask).keeps


def test_program_started_without_a_server_waits(place: Place) -> None:
    """So does one of the share whose other program continues."""
    with place.run("dlsym", ALWAYS) as first:
        with place.stub() as stub:
            _whole(place, stub)
        with place.run("dlsym", "kernels:1:10", "say:launched", owner="late") as second:
            assert second.line() == "ready"
            _until_more(place, 500)
            assert not any(work.owner == "late" for work in place.log())
            first.kill()
            with place.stub() as stub:
                connection = stub.accept()
                assert not connection.expect(Ask).keeps
                connection.grant(FOREVER)
                assert second.line() == "launched"


def test_program_allocates_without_a_server(place: Place) -> None:
    """If its memory has no limit; the next server learns of it in the first message."""
    with place.run("dlsym", "kernels:1:10", "wait-line", f"alloc:{64 * MIB}", "wait-line") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            connection.grant(FOREVER)
            until(lambda: place.launches() == 1)  # a grant that is read after the server's end counts for nothing
            assert program.line() == "ready"
        program.tell("allocate")
        assert program.line() == "0"
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            assert connection.needs == [64 * MIB]


def test_memory_limit_is_kept_without_a_server(place: Place) -> None:
    """Allocations above it wait for the next server, as the memory of other processes is not known."""
    with place.run("dlsym", "kernels:1:10", "wait-line", f"alloc:{64 * MIB}", "wait-line") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.limit = 32 * MIB
            connection.expect(Ask)
            connection.grant(FOREVER)
            until(lambda: place.launches() == 1)
            assert program.line() == "ready"
        program.tell("allocate")
        with place.stub() as stub:
            connection = stub.accept()
            connection.limit = 32 * MIB
            connection.grant(FOREVER)
            while 64 * MIB not in connection.needs:
                connection.next()
            assert connection.needs[0] == 0
            assert program.line() == "2"


# --- with the real server ---------------------------------------------------------------------------------------------


def _run(place: Place, server: Serving, owner: str, *arguments: str) -> Program:
    return place.run("dlsym", *arguments, owner=owner, sockets=server.socket(GPU, owner).parent)


def _turns(place: Place) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for work in place.log() if place.board.exists() else ():
        found.setdefault(work.owner, []).append((work.start, work.end))
    return found


def test_server_killed_while_a_whole_gpu_is_held_causes_no_overlap(place: Place) -> None:
    """The next one gives half of it to another share, but not before all queued work has ended."""
    with Serving(place.folder) as server:
        server.set({GPU: {"one": 1000}})
        with _run(place, server, "one", "kernels:4000:1000", "say:queued", ALWAYS) as one:
            assert [one.line(), one.line()] == ["ready", "queued"]  # four seconds of work
            server.kill()
            server.start()
            server.set({GPU: {"one": 500, "two": 500}})
            with _run(place, server, "two", ALWAYS):
                until(lambda: len(_turns(place).get("two", ())) > 100)
                before = len(_turns(place)["one"])
                until(lambda: len(_turns(place)["one"]) > before + 100)
        assert place.sums().overlaps == 0
        assert overlaps(_turns(place)) == []


def test_server_killed_beside_long_kernels_causes_no_overlap(place: Place) -> None:
    """They last longer than the new server waits by itself: the other share waits for their end."""
    with Serving(place.folder) as server:
        server.set({GPU: {"one": 500, "two": 500}})
        with _run(place, server, "two", ALWAYS), _run(place, server, "one", "kernels:3:3000000", "sync") as one:
            for number in range(1, 3):
                until(lambda number=number: len(_turns(place).get("one", ())) >= number)  # type: ignore[misc]
                server.kill()
                server.start()
                server.set({GPU: {"one": 500, "two": 500}})
            assert one.lines()[-1] == "done"
        assert place.sums().overlaps == 0


def test_whole_gpu_survives_server_after_server(place: Place) -> None:
    """Work continues before, beside and after each of them."""
    with Serving(place.folder) as server:
        server.set({GPU: {"one": 1000}})
        with _run(place, server, "one", ALWAYS):
            for _ in range(3):
                _until_more(place)
                server.kill()
                _until_more(place)
                server.start()
                _until_more(place)
                server.set({GPU: {"one": 1000}})
                until(lambda: server.call(holder=GPU) == "one")
