"""A whole GPU while its server is gone, and when the next one comes: no pause, and never beside another share."""

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


def _runs(place: Place, launches: int = 100) -> None:
    """Wait for so many launches more."""
    before = place.launches()
    until(lambda: place.launches() >= before + launches)


def _stands(place: Place) -> None:
    """Wait until nothing is launched for a while, and all has ended."""

    def same() -> bool:
        before = place.launches()
        time.sleep(0.3)
        return place.launches() == before

    until(same)


def _whole(place: Place, stub: Stub) -> Connection:
    """Its program has the whole GPU."""
    connection = stub.accept()
    connection.expect(Ask)
    connection.grant(FOREVER)
    _runs(place, 5)
    return connection


def test_it_goes_on_without_a_server_and_asks_the_next(either: Place) -> None:
    """And says that it has the GPU still; the next one need not even answer at once."""
    with either.run("dlsym", ALWAYS):
        with either.stub() as stub:
            _whole(either, stub)
            os.link(either.socket, either.sockets / "another-name")  # as other containers of the pod may have it
        for _ in range(5):  # any of them may be first heard of at an odd nanosecond
            _runs(either)
            with either.stub() as stub:
                connection = stub.accept()
                assert connection.expect(Ask).keeps
                connection.grant(FOREVER)
                _runs(either)


def test_a_next_server_that_gives_a_share_has_it_drained(place: Place) -> None:
    """All that was queued has ended before the answer, also what was queued while nothing held it back."""
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


def test_a_long_kernel_of_a_share_is_told_to_the_next_server(place: Place) -> None:
    """It was let through and has not ended when that one comes: nobody else gets the GPU before."""
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


def test_a_next_server_that_is_silent_stops_it(place: Place) -> None:
    """What listens is a server, and may give the GPU to others soon."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub)
        _runs(place)
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            _stands(place)
            connection.grant(FOREVER)
            _runs(place)


def test_a_server_that_dies_is_asked_once_more(place: Place) -> None:
    """It listens a moment longer than it is connected: that changes nothing."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().close()
        _runs(place)


def test_a_server_that_lives_on_without_a_word_has_it_back(place: Place) -> None:
    """It may have given the GPU to somebody before it dies."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().expect(Ask)
            _stands(place)
        _stands(place)


def test_who_was_given_less_before_the_server_died_stops(place: Place) -> None:
    """By its last word it has not the whole any more."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub).close()
            stub.accept().grant(1)
        _stands(place)


@pytest.mark.parametrize("what", ["nothing", "another"])
def test_it_goes_on_at_the_socket_of_that_very_server_only(place: Place, what: str) -> None:
    """The share was taken away meanwhile, or another server was there that may have given the GPU to somebody."""
    with place.run("dlsym", ALWAYS):
        with place.stub() as stub:
            _whole(place, stub)
        _runs(place)
        place.socket.unlink()
        if what == "another":
            with place.stub():
                pass
        _stands(place)
        with place.stub() as stub:
            connection = stub.accept()
            assert not connection.expect(Ask).keeps
            connection.grant(FOREVER)
            _runs(place)


def test_who_was_asked_back_does_not_go_on(place: Place) -> None:
    """Its whole GPU was a share already when the server ended."""
    with place.run("dlsym", "kernels:300:1000", ALWAYS):
        with place.stub() as stub:
            connection = _whole(place, stub)
            connection.say(Revoke(connection.lease))
            connection.expect(Done)
        _stands(place)
        with place.stub() as stub:
            assert not stub.accept().expect(Ask).keeps


def test_a_program_that_is_started_without_a_server_waits(place: Place) -> None:
    """Also one of the share whose other program goes on."""
    with place.run("dlsym", ALWAYS) as first:
        with place.stub() as stub:
            _whole(place, stub)
        with place.run("dlsym", "kernels:1:10", "say:launched", owner="late") as second:
            assert second.line() == "ready"
            _runs(place, 500)
            assert not any(work.owner == "late" for work in place.log())
            first.kill()
            with place.stub() as stub:
                connection = stub.accept()
                assert not connection.expect(Ask).keeps
                connection.grant(FOREVER)
                assert second.line() == "launched"


def test_it_allocates_without_a_server(place: Place) -> None:
    """Where its memory has no limit; the next server hears of it in the first message."""
    with place.run("dlsym", "kernels:1:10", "wait-line", f"alloc:{64 * MIB}", "wait-line") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            connection.grant(FOREVER)
            assert program.line() == "ready"
        program.tell("allocate")
        assert program.line() == "0"
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            assert connection.needs == [64 * MIB]


def test_a_limit_of_memory_is_kept_without_a_server(place: Place) -> None:
    """What is above it waits for the next one, as what other processes have is not known."""
    with place.run("dlsym", "kernels:1:10", "wait-line", f"alloc:{64 * MIB}", "wait-line") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.limit = 32 * MIB
            connection.expect(Ask)
            connection.grant(FOREVER)
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


def test_a_server_killed_while_a_whole_gpu_is_held(place: Place) -> None:
    """The next one gives half of it to another: not before all that was queued has ended, and no two at once."""
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


def test_a_server_killed_beside_long_kernels(place: Place) -> None:
    """Longer than the next one rests by itself: the other share waits for their end."""
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


def test_a_whole_gpu_outlives_server_after_server(place: Place) -> None:
    """It goes on before each of them, beside it and after it."""
    with Serving(place.folder) as server:
        server.set({GPU: {"one": 1000}})
        with _run(place, server, "one", ALWAYS):
            for _ in range(3):
                _runs(place)
                server.kill()
                _runs(place)
                server.start()
                _runs(place)
                server.set({GPU: {"one": 1000}})
                until(lambda: server.call(holder=GPU) == "one")
