"""Programs report work that waits for no turn (small copies, memory operations); their share is charged for it."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.framing import MOST
from jupyter_gpu_node.shares.rules.protocol import Ask, Done, encode
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.ledger import TimeAccount
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.scans.use_scans import turns_so_far
from tests.shares.enforcing import EnforcingServer, until

MS = 1000
TIMING = Timing()


def _paid(account: TimeAccount) -> int:
    return account.guaranteed + account.borrowed + account.idle + account.overrun


def _manager() -> LeaseManager:
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(100), "b": Terms(900)}, 0)
    return manager


@given(st.lists(st.tuples(st.integers(1, 300 * MS), st.integers(1, 2**64 - 1)), min_size=1, max_size=40), st.booleans())
def test_no_more_than_the_time_that_passed(words: list[tuple[int, int]], contested: bool) -> None:
    """A share pays what it reports, up to the time of the clock, and no other share pays anything."""
    manager, now = _manager(), 0
    (a, _), (b, _) = manager.join("a", 0), manager.join("b", 0)
    if contested:
        manager.receive(b, Ask(), 0)
    told = 0
    for pause, work in words:
        now += pause
        before = _paid(manager.account("a", now))
        manager.receive(a, Done(None, work), now)
        paid = _paid(manager.account("a", now)) - before
        assert 0 <= paid <= min(work, TIMING.period)
        told += work
    account = manager.account("a", now)
    assert _paid(account) <= min(now, told)
    if not contested:
        assert account.overrun == 0
        assert account.slice >= 0
    assert _paid(manager.account("b", now)) == (now if contested else 0)


@given(st.lists(st.integers(1, 9 * MS), min_size=1, max_size=40))
def test_late_reports_are_paid(works: list[int]) -> None:
    """The server reads several at one moment: all of their time has passed."""
    manager = _manager()
    a, _ = manager.join("a", 0)
    now = 2 * TIMING.period
    for work in works:
        manager.receive(a, Done(None, work), now)
    assert _paid(manager.account("a", now)) == min(sum(works), TIMING.period)


def test_beside_others_it_is_owed() -> None:
    """More than its part of a period is a debt: it has no claim until that is paid."""
    manager = _manager()
    (a, _), (b, _) = manager.join("a", 0), manager.join("b", 0)
    manager.receive(b, Ask(), 0)
    manager.receive(a, Done(None, 60 * MS), 90 * MS)
    account = manager.account("a", 90 * MS)
    assert (account.guaranteed, account.overrun, account.slice) == (10 * MS, 50 * MS, -50 * MS)
    assert account.beside == 60 * MS
    assert manager.account("b", 90 * MS).beside == 0


def test_in_a_turn_it_is_charged_by_the_clock() -> None:
    """It is not charged twice, nor when that turn is reported afterwards."""
    manager = _manager()
    a, _ = manager.join("a", 0)
    manager.receive(a, Ask(), 0)
    manager.receive(a, Done(None, 10 * MS), 10 * MS)
    assert _paid(manager.account("a", 10 * MS)) == 10 * MS
    manager.receive(a, Done(None, 20 * MS, 1), 20 * MS)
    manager.receive(a, Done(None, MOST), 21 * MS)
    assert _paid(manager.account("a", 21 * MS)) == 21 * MS


def test_a_demand_stays() -> None:
    """A program that waits for a turn reports other work meanwhile."""
    manager = _manager()
    (a, _), (b, _) = manager.join("a", 0), manager.join("b", 0)
    manager.receive(b, Ask(), 0)
    manager.receive(a, Ask(7), 0)
    manager.receive(a, Done(7, 100), 1 * MS)
    assert manager.shares["a"].total_want() == 7
    manager.receive(b, Done(None, 0, 1), 2 * MS)
    assert manager.holder is manager.shares["a"]


def test_reported_work_excuses_no_use_beyond_turns(tmp_path: Path) -> None:
    """A program around its gate could say that all of its kernels were small copies: these are no turns."""

    async def check() -> None:
        async with EnforcingServer(tmp_path) as world:
            await world.set({"GPU-1": {"a": 500, "b": 500}})
            _, writer = await asyncio.open_unix_connection(world.socket("GPU-1", "a"))
            writer.write(encode(Done(None, MOST)))
            await until(lambda: world.server.usage("GPU-1", "a").account.beside > 0)
            assert turns_so_far(world.server, "GPU-1", ["a", "b"]) == {"a": 0, "b": 0}
            writer.close()

    asyncio.run(check())
