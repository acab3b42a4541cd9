"""The books once a period: use, what is lent, and what the files say."""

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Need
from jupyter_gpu_node.shares.rules.share_file import decode, encode
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.books import GpuBooks
from jupyter_gpu_node.shares.rules.turns.elastic import PreviousState
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.served_share import ShareClient
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

PERIOD = Timing().period


def a_manager(**milli: int) -> LeaseManager:
    manager = LeaseManager(Arbiter(Timing(), 0), 0)
    manager.set({name: Terms(one, 100 if one < 1000 else None) for name, one in milli.items()}, 0)
    return manager


def hog(manager: LeaseManager, name: str) -> ShareClient:
    client, _ = manager.join(name, 0)
    manager.receive(client, Ask(), 0)
    return client


def passes(manager: LeaseManager, books: GpuBooks, first: int, last: int) -> None:
    """So many periods, with a reading at the end of each; what should be lent is lent."""
    for number in range(first, last):
        while (wake := manager.wake) is not None and wake <= number * PERIOD:
            manager.tick(wake)
        manager.adjust(books.end_period(manager, number * PERIOD), number * PERIOD)


def test_use_is_relative_to_the_share() -> None:
    """It is smoothed, and the use of an idle share reaches exactly nothing."""
    manager, books = a_manager(a=500, b=500), GpuBooks(None, 0)
    client = hog(manager, "a")
    passes(manager, books, 1, 30)
    assert books.usage(manager, "a", 30 * PERIOD).use == pytest.approx(2, rel=0.01)
    assert books.usage(manager, "b", 30 * PERIOD).use == 0
    manager.receive(client, Done(None, 0, 1), 30 * PERIOD)
    passes(manager, books, 31, 80)
    assert books.usage(manager, "a", 80 * PERIOD).use == 0
    assert books.end_period(manager, 79 * PERIOD) == {}, "no time passed"


def test_unused_milli_are_lent_and_shown() -> None:
    """The sum stays; with new shares all have their own again."""
    manager, books = a_manager(a=500, b=500), GpuBooks(Elastic(), 0)
    hog(manager, "a")
    passes(manager, books, 1, 100)
    a, b = (books.usage(manager, name, 100 * PERIOD) for name in "ab")
    assert a.effective > 600
    assert a.effective + b.effective <= 1000
    assert a.reason
    assert (a.allocated, a.sharing, a.running, b.running) == (500, 2, True, False)
    manager.set({"a": Terms(500), "b": Terms(400)}, 100 * PERIOD)
    books.reset()
    assert [books.usage(manager, name, 100 * PERIOD).effective for name in "ab"] == [500, 400]
    assert books.end_period(manager, 101 * PERIOD) == {"a": 500, "b": 400}


def test_a_whole_gpu_lends_nothing() -> None:
    """Its programs take no turns, and its use is not asked for."""
    manager, books = a_manager(a=1000), GpuBooks(Elastic(), 0)
    manager.join("a", 0)
    assert books.end_period(manager, PERIOD) == {}
    assert books.usage(manager, "a", PERIOD).use > 0


def test_share_file_has_times_relative_to_its_writing() -> None:
    """Times in a share's file count from the moment of writing."""
    manager, books = a_manager(a=500, b=300), GpuBooks(None, 0)
    client, _ = manager.join("a", 0)
    manager.receive(client, Need(70), 0)
    passes(manager, books, 1, 3)
    file = books.file(manager, "GPU-1", "a", 2 * PERIOD, 1234)
    share = file.share
    assert (share.uuid, share.allocated, share.effective) == ("GPU-1", 500, 500)
    assert (file.written, file.deposits) == (1234, None)
    assert (share.balance, share.cap, share.expires) == (PERIOD, Timing().cap(500), Timing().expiry - PERIOD)
    assert (share.sharing, share.period, share.memory_used, share.memory_limit) == (1, PERIOD, 70, 100)
    usage = books.usage(manager, "a", 2 * PERIOD)
    assert (usage.memory, usage.limit, usage.clients, usage.sharing) == (70, 100, 1, 2)
    fresh = books.file(a_manager(a=500), "GPU-1", "a", 0, 0).share
    assert fresh.expires is None
    assert GpuBooks(None, 0).share(a_manager(a=500), "GPU-1", "a", 0).busy is None, "no period has passed"


def test_a_program_that_claims_more_memory_than_there_can_be() -> None:
    """Its file can still be read: only that user would lose by it, but should not have to look for the reason."""
    manager, books = a_manager(a=500), GpuBooks(None, 0)
    manager.set({"a": Terms(500, 2**63)}, 0)
    client, _ = manager.join("a", 0)
    manager.receive(client, Need(2**64 - 1), 0)
    file = books.file(manager, "GPU-1", "a", 0, 0)
    assert decode(encode(file, public=True)) == file


def test_busy_is_of_the_whole_gpu() -> None:
    """All shares read the same figure: two hogs and one that rests, also when all have ended."""
    manager, books = a_manager(a=500, b=300, c=200), GpuBooks(None, 0)
    first, second = hog(manager, "a"), hog(manager, "b")
    passes(manager, books, 1, 31)
    assert {books.usage(manager, name, 30 * PERIOD).busy for name in "abc"} == {1}
    shares = [books.share(manager, "GPU-1", name, 30 * PERIOD) for name in "abc"]
    used = sum(one.guaranteed + one.borrowed + one.idle + one.overrun for one in shares)
    assert used == pytest.approx(30 * PERIOD, rel=0.02)
    for client in (first, second):
        manager.leave(client, 30 * PERIOD + PERIOD // 4)
    passes(manager, books, 31, 32)
    assert books.usage(manager, "c", 31 * PERIOD).busy == pytest.approx(0.25, abs=0.01)
    passes(manager, books, 32, 33)
    assert books.usage(manager, "c", 32 * PERIOD).busy == 0


def test_shares_go_on_where_an_earlier_server_left_them() -> None:
    """They do where shares are co-adjusted, and some of these are known from before."""
    manager, left = a_manager(a=500, b=500), {"a": PreviousState(500, 800, "Because."), "b": PreviousState(500, 150)}
    assert GpuBooks(None, 0).resume(manager, left) == {}
    books = GpuBooks(Elastic(), 0)
    assert books.resume(manager, {"c": PreviousState(500, 800)}) == {}
    manager.adjust(books.resume(manager, left), 0)
    assert {name: books.usage(manager, name, 0).effective for name in "ab"} == {"a": 800, "b": 150}
    assert books.usage(manager, "a", 0).reason == "Because."
    hog(manager, "a")
    passes(manager, books, 1, 10)
    assert books.usage(manager, "a", 10 * PERIOD).effective >= 800, "it goes on from there"
