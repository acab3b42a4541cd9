"""Leases: the launches that one allows, and the return of the GPU."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Grant, Need, Revoke, encode
from tests.shares.world import until

from .building import Built, build_driver, build_gate
from .place import Place
from .standin.board import Work
from .stub import Connection


def _gives_back(connection: Connection, lease: int) -> Done:
    return connection.expect(Done, lambda done: done.number == lease)


def test_idle_lease_is_given_back_unasked(either: Place) -> None:
    """The program continues without the GPU, and asks again for its next kernel."""
    with either.stub() as stub, either.run("dlsym", "kernels:1:10", "wait-line", "kernels:1:10") as program:
        connection = stub.accept()
        connection.expect(Ask)
        done = _gives_back(connection, connection.grant(60_000_000))
        assert done.want is None
        program.tell("go on")
        connection.expect(Ask)
        connection.grant(FOREVER)
        program.lines()


def test_revoke_is_answered_when_all_work_has_ended(place: Place) -> None:
    """The board has no work that ends later; what is still wanted comes with the answer or in the next request."""
    with place.stub() as stub, place.run("dlsym", "kernels:300:2000", "sync") as program:
        connection = stub.accept()
        measured = 0
        for before in (0, 50, 100):
            lease = connection.until(lambda before=before: place.launches() >= before + 5)  # type: ignore[misc]
            connection.say(Revoke(lease))
            done = _gives_back(connection, lease)
            answered = time.monotonic_ns() // 1000
            log = place.log()
            assert all(work.end <= answered for work in log)
            measured += done.measured
            if done.want is None:  # no thread was waiting at that moment
                connection.expect(Ask)
            assert place.sums().launches == len(log)
            connection.grant()
        assert measured > 0
        connection.serve()
        program.lines()
    assert place.launches() == 300


def test_lease_for_one_launch_lets_one_thread_launch(place: Place) -> None:
    """One of four waiting threads launches; then the lease is given back, and the others want more."""
    with place.stub() as stub, place.run("dlsym", "threads:4:2000") as program:
        connection = stub.accept()
        assert connection.expect(Need).steps  # its first message tells that it knows such leases
        connection.expect(Ask)
        for launched in range(1, 21):
            connection.lease += 1
            connection.say(Grant(60_000_000, connection.lease, once=True))
            assert _gives_back(connection, connection.lease).want is not None
            assert place.launches() == launched
            assert all(work.end <= time.monotonic_ns() // 1000 for work in place.log())
        program.kill()


@pytest.mark.parametrize(("us", "most"), [(20_000, 3), (1000, 3), (100, 40)])
def test_few_launches_are_queued(place: Place, us: int, most: int) -> None:
    """One long launch runs, one is queued, one is being launched; short ones as many as fit the window."""
    with place.stub() as stub, place.run("dlsym", f"kernels:100000:{us}"):
        stub.keep_granting(600_000_000)
        looked = 0
        while looked < 30:
            log = place.log() if place.board.exists() else []
            now = time.monotonic_ns() // 1000
            looked += len(log) > 5
            assert sum(work.end > now for work in log) <= most


def test_much_is_queued_if_no_other_share_is_active(place: Place) -> None:
    """About 20 ms of launches of known duration are queued, and few as soon as another share comes."""
    with place.stub() as stub, place.run("dlsym", "kernels:100000:1000"):
        connection = stub.accept()
        assert connection.expect(Need).ahead
        connection.expect(Ask)
        connection.say(Grant(600_000_000, 1, ahead=True))
        most = 0
        while most < 15:
            most = max(most, _left(place))
            assert most <= 22
        connection.say(Grant(600_000_000, 1))
        until(lambda: _left(place) <= 3, "more than three launches stay queued")
        looks = [_left(place) for _ in range(200)]
        assert max(looks) <= 3


@pytest.mark.parametrize(("kernel", "most"), [(1000, 1), (100, 11)])
def test_nothing_is_queued_behind_what_a_guest_runs(place: Place, kernel: int, most: int) -> None:
    """An owner that comes waits for what runs: one kernel, or short ones of one millisecond together."""
    with place.stub() as stub, place.run("dlsym", f"kernels:100000:{kernel}"):
        connection = stub.accept()
        assert connection.expect(Need).single
        connection.expect(Ask)
        connection.say(Grant(600_000_000, 1))
        until(lambda: _left(place) > most, "never more than that is queued beside others")
        connection.say(Grant(600_000_000, 1, single=True))
        until(lambda: _left(place) <= most, "more stays queued")
        assert max(_left(place) for _ in range(200)) <= most


def test_long_launches_are_not_queued_deeply(place: Place) -> None:
    """Neither are launches that may be long: the first ones, of unknown duration."""
    with place.stub() as stub, place.run("dlsym", "kernels:100000:30000"):
        connection = stub.accept()
        connection.expect(Ask)
        connection.say(Grant(600_000_000, 1, ahead=True))
        while not place.board.exists() or place.launches() < 12:
            assert _left(place) <= 3


@pytest.mark.parametrize("ahead", [False, True], ids=["beside another", "alone"])
def test_kernel_that_becomes_long_after_an_idle_time_is_not_queued_by_the_hundred(place: Place, ahead: bool) -> None:
    """As in decode, then prefill: kernels of the same size, short until now. Few are queued after each idle time."""
    short = ("shaped:3000:10", "sync", "sleep:300")
    with place.stub() as stub, place.run("dlsym", *(4 * short), "shaped:100:30000") as program:
        stub.keep_granting(600_000_000, ahead=ahead)
        _wait_for_long_ones(place)
        assert _left(place) <= 9
        program.kill()


def test_kernel_that_becomes_long_without_an_idle_time_has_a_limit(place: Place) -> None:
    """It is unknown until the first one ends; even without other shares no more are queued than end in some seconds."""
    with place.stub() as stub, place.run("dlsym", "shaped:6000:10", "shaped:1000:10000") as program:
        stub.keep_granting(600_000_000, ahead=True)
        _wait_for_long_ones(place)
        assert _left(place, 2000) <= 260
        program.kill()


def _wait_for_long_ones(place: Place) -> None:
    """Wait until the first of them has nearly ended: by then all that can be queued is queued."""
    until(lambda: any(work.end - 5000 < time.monotonic_ns() // 1000 for work in _newest(place, 2000) if _is_long(work)))


def _is_long(work: Work) -> bool:
    return work.end - work.start >= 10_000


def _newest(place: Place, most: int) -> list[Work]:
    return place.log(max(0, place.launches() - most)) if place.board.exists() else []


def _left(place: Place, most: int = 100) -> int:
    """Return how many of the latest launches have not ended."""
    log = _newest(place, most)
    now = time.monotonic_ns() // 1000
    return sum(work.end > now for work in log)


def _early(sooner: Work, later: Work) -> bool:
    """Tell whether a launch was queued before half of the one before it was done."""
    return later.queued < (sooner.start + sooner.end) // 2


def _spans(place: Place, size: int) -> list[list[tuple[Work, Work]]]:
    """Return all spans of so many of the latest launches, each with the one before it.

    On a busy machine not all are as they should be. The first ones, of which the gate knows no duration yet, are
    left out.
    """
    pairs = list(pairwise(place.log(max(20, place.launches() - 500)))) if place.board.exists() else []
    return [pairs[at : at + size] for at in range(len(pairs) - size + 1)]


def test_next_launch_waits_until_the_previous_one_is_nearly_over(place: Place) -> None:
    """A share that comes meanwhile waits for one launch, not two, and the GPU is kept busy."""

    def is_held_back(span: list[tuple[Work, Work]]) -> bool:
        rested = sum(later.start - sooner.end for sooner, later in span)
        return sum(_early(*pair) for pair in span) <= 3 and rested < (span[-1][1].end - span[0][0].end) // 2

    with place.stub() as stub, place.run("dlsym", "kernels:100000:5000"):
        stub.keep_granting(600_000_000)
        until(lambda: any(map(is_held_back, _spans(place, 30))), "one launch at a time to be queued")


def test_program_is_not_held_back_if_its_gpu_idles_for_that(place: Place) -> None:
    """A thread that launches two and waits for them might be late for the second one."""
    more = 10_000 * ("kernels:2:2000", "sync")  # after its end no launch would ever be seen
    with place.stub() as stub, place.run("dlsym", *more):
        stub.keep_granting(600_000_000)
        # half of them are second ones: none of these is early if all are held back, whatever else the machine has to do
        until(lambda: any(sum(_early(*pair) for pair in span) >= 5 for span in _spans(place, 20)), "early launches")


def test_program_that_idles_by_itself_is_held_back_as_usual(place: Place) -> None:
    """A program that launches one and waits for it would idle as well if nothing was held back."""
    alone, two = ("kernels:1:2000", "sync"), ("kernels:2:2000", "sync")
    more = 1_000 * (*(24 * alone), *two)

    def is_held_back(span: list[tuple[Work, Work]]) -> bool:
        return sum(_early(*pair) for pair in span) <= 3  # of 10 second ones

    with place.stub() as stub, place.run("dlsym", *more):
        stub.keep_granting(600_000_000)
        # a machine that is busy with others may well make this program late for its second launches
        until(lambda: any(map(is_held_back, _spans(place, 260))), "second launches to be held back")


def test_long_kernel_is_waited_for_and_reported(place: Place) -> None:
    """One at a time is on the GPU, and a revoke is answered at once by "takes longer"."""
    with place.stub() as stub, place.run("dlsym", "kernels:1000:400000"):
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() > 3)
        connection.say(Revoke(lease))
        assert connection.expect(Ask, lambda ask: ask.keeps)
        said = place.log()
        _gives_back(connection, lease)
        now = time.monotonic_ns() // 1000
        log = place.log()
        assert all(work.end <= now for work in log)
        assert len(log) == len(said)
        assert all(later.start > sooner.end for sooner, later in pairwise(log[2:]))


def test_program_that_waits_for_itself_gets_one_more_launch(place: Place) -> None:
    """If a stream waits for what follows a launch that waits for the next lease, the gate asks for one more launch."""
    with place.stub() as stub, place.run("dlsym", "meets:2:300", "say:met", "wait-line") as program:
        connection = stub.accept()
        for launched in (2, 5):
            lease = connection.until(lambda launched=launched: place.launches() >= launched)  # type: ignore[misc]
            connection.say(Revoke(lease))
            assert connection.expect(Ask, lambda ask: ask.stuck).keeps
            assert place.launches() == launched
            connection.say(Grant(1_000_000, lease, once=True))
            done = _gives_back(connection, lease)
            assert place.launches() == launched + 1
            if done.want is not None:
                connection.grant()
        assert [program.line(), program.line()] == ["ready", "met"]


def test_unused_lease_for_one_more_launch_is_asked_for_again(place: Place) -> None:
    """The expired lease lets nothing pass, and the gate asks again."""
    with place.stub() as stub, place.run("dlsym", "meets:1:300", "say:met", "wait-line") as program:
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() >= 2)
        connection.say(Revoke(lease))
        connection.expect(Ask, lambda ask: ask.stuck)
        connection.say(Grant(0, lease, once=True))
        connection.expect(Ask, lambda ask: ask.stuck)
        assert place.launches() == 2
        connection.say(Grant(1_000_000, lease, once=True))
        _gives_back(connection, lease)
        assert [program.line(), program.line()] == ["ready", "met"]


def test_program_whose_lease_was_given_back_for_it_asks_again(place: Place) -> None:
    """If the server took it for dead but its work needs another launch to end, it gets a new lease."""
    with place.stub() as stub, place.run("dlsym", "meets:1:300", "say:met", "wait-line") as program:
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() >= 2)
        connection.say(Revoke(lease))
        connection.expect(Ask, lambda ask: ask.stuck)
        connection.grant()
        assert [program.line(), program.line()] == ["ready", "met"]
        _gives_back(connection, lease + 1)


def test_long_kernel_is_not_taken_for_a_waiting_one(place: Place) -> None:
    """This holds for threads that wait to launch behind it, and beside it if its duration is known."""
    with place.stub() as stub, place.run("dlsym", "threads:2:300000"):
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() > 6)
        for _ in range(3):
            connection.say(Revoke(lease))
            said: list[Ask] = []
            while not isinstance(message := connection.next(), Done):
                said += [message] if isinstance(message, Ask) else []
            assert not any(ask.stuck for ask in said)
            connection.grant()
            launches = place.launches()
            lease = connection.until(lambda launches=launches: place.launches() > launches)  # type: ignore[misc]


def test_launch_that_is_waited_for_comes_behind_others(place: Place) -> None:
    """More launches than fit the window come before the one that is waited for, and all are let through."""
    with place.stub() as stub, place.run("dlsym", "meets-behind:1:1", "say:met") as program:
        stub.keep_granting(600_000_000)
        assert program.lines() == ["ready", "met", "done"]


def test_many_short_launches_are_queued_in_the_end(place: Place) -> None:
    """As many as fit the window, also after a long one; otherwise the GPU would idle whenever the thread does."""
    before = ("kernels:100:20", "sync", "sleep:20000", "kernels:1:20000")
    with place.stub() as stub, place.run("dlsym", *before, "kernels:1000000:20"):
        stub.keep_granting(600_000_000)
        queued = 0
        while queued < 60:  # two thirds of what fits; of what is not known to be short there are three
            launches = place.launches()
            now = time.monotonic_ns() // 1000
            last = place.log(launches - 200)[:200] if launches >= 200 else []
            queued = sum(work.end > now for work in last)


def test_expired_lease_lets_nothing_pass(place: Place) -> None:
    """This needs no message from the server; what waits is reported when the lease is given back."""
    with place.stub() as stub, place.run("dlsym", "kernels:100000:5000"):
        connection = stub.accept()
        connection.expect(Ask)
        done = _gives_back(connection, connection.grant(20_000))
        launches = place.sums().launches
        if done.want is None:  # no thread was waiting at that moment
            connection.expect(Ask)
        assert place.sums().launches == launches < 100_000


def test_messages_about_an_old_lease_are_ignored(place: Place) -> None:
    """An extension of a lease that was given back is no lease, and its revoke needs no answer."""
    with place.stub() as stub, place.run("dlsym", "kernels:1:10", "wait-line", "kernels:5:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        first = connection.grant(60_000_000)
        _gives_back(connection, first)
        connection.say(Grant(60_000_000, first))
        connection.say(Revoke(first))
        program.tell("launch")
        assert isinstance(connection.next(), Ask)  # and no second Done
        assert place.sums().launches == 1
        connection.grant(FOREVER)
        program.lines()


def test_extension_needs_no_new_request(place: Place) -> None:
    """With the same number again, the program runs to its end without a second Ask."""
    with place.stub() as stub, place.run("dlsym", "kernels:100:1000", "sync", "wait-line") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.raw(
            encode(Grant(60_000_000, 1)) + encode(Grant(FOREVER, 1))
        )  # at once: nothing is given back between
        lease, connection.lease, connection.held = 1, 1, True
        connection.until(lambda: place.launches() == 100)
        assert connection.lease == lease
        program.tell("end")
        program.lines()
        with pytest.raises(EOFError):
            connection.expect(Ask)


def test_whole_gpu_becomes_a_share_again(place: Place) -> None:
    """A revoke is answered when everything has ended that was queued while nothing held it back."""
    with place.stub() as stub, place.run("dlsym", "kernels:500:200", "say:queued", "sync", "kernels:1:10") as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(FOREVER)
        program.line()
        assert program.line() == "queued"
        connection.say(Revoke(lease))
        _gives_back(connection, lease)
        log = place.log()
        assert len(log) >= 500
        end = max(work.end for work in log)
        connection.grant(FOREVER)
        program.lines()
        assert all(work.start >= end for work in place.log()[len(log) :])


def test_invalid_message_ends_connection_and_lease(place: Place) -> None:
    """A server that sends it has not granted anything; the gate connects again."""
    with place.stub() as stub, place.run("dlsym", "kernels:1:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.raw(b"\xff" * 64)
        again = stub.accept()
        again.expect(Ask)
        assert place.sums().launches == 0
        again.grant(FOREVER)
        program.lines()


def test_partial_message_is_completed(place: Place) -> None:
    """Messages may come in pieces."""
    with place.stub() as stub, place.run("dlsym", "kernels:1:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        whole = b"\x01\x10" + bytes(6) + b"\xff" * 8 + b"\x01" + bytes(15)
        connection.raw(whole[:13])
        connection.raw(whole[13:])
        program.lines()


def test_launches_wait_without_a_server(place: Place) -> None:
    """Nothing runs after the connection ends, and launches continue automatically with the next server."""
    with place.run("dlsym", "kernels:100000:5000"):
        launches = 0
        for _ in range(3):
            with place.stub() as stub:
                stub.accept().until(lambda target=launches + 10: place.launches() >= target)  # type: ignore[misc]
            place.socket.unlink()
            with place.stub() as stub:  # it has reconnected, so all launches let through before are on the GPU
                stub.accept().expect(Ask)
                launches = place.sums().launches
            place.socket.unlink()
        with place.stub() as stub:
            connection = stub.accept()
            connection.expect(Ask)
            assert place.sums().launches == launches
            connection.grant(60_000_000)
            connection.until(lambda: place.launches() > launches)


def test_graph_is_captured_without_a_lease(place: Place) -> None:
    """Nothing runs during a capture; the graph's launch asks for a lease, and the capture stays valid."""
    with place.stub() as stub, place.run("dlsym", "graph:50:10", "sync", "wait-line") as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert place.sums().launches == 0
        connection.grant(FOREVER)
        program.tell("end")
        program.lines()
    assert [work.kernels for work in place.log()] == [50, 50, 50]


def test_capture_between_kernels_stays_valid(place: Place) -> None:
    """Kernels, a capture, a graph and kernels run in leases that are given back."""
    with place.stub() as stub, place.run("dlsym", "kernels:10:100", "graph:20:10", "kernels:10:100", "sync") as program:
        stub.accept().serve(60_000_000)
        program.lines()
    assert sum(work.kernels for work in place.log()) == 80


def test_capture_that_begins_stays_valid(built: Built, short: Path) -> None:
    """The gate's thread records no event after another stream's work while a capture begins."""
    slow = short / "slow"
    build_driver(slow / "driver", "-DSTANDIN_SLOW_CAPTURE=2000")
    gate = build_gate(slow / "gate", slow / "driver" / "libcuda.so.1")
    place = Place(built, short)
    before = ("kernels:300:10", "sync")
    with place.stub() as stub, place.run("dlsym", *before, "captures:100:10", LD_LIBRARY_PATH=str(gate)) as program:
        stub.keep_granting(600_000_000)
        assert program.lines()[-1] == "done"
    assert place.launches() == 700
