"""Debts of a share: it owes them still when it was closed and opened again, or when its arbiter was killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.protocol import Ask, Done
from jupyter_gpu_node.shares.rules.share_file import SMALL, Savings, decode_savings, encode_debt, owed
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.ledger import Debt
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.server.store import ShareStore
from tests.shares.client import now
from tests.shares.serve import Serving
from tests.shares.world import GPU, connect, programs, until

MS = 1_000
SHARES = {GPU: {"a": 100, "b": 500}}
LONG = 1.5
"""Seconds of a kernel."""


def borrows(server: Serving, *, closes: bool = False) -> int:
    """Have share ``a`` keep the GPU from ``b`` for long; return when it gave it back."""
    with connect(server, "a") as a, connect(server, "b") as b:
        a.grant()
        b.send(Ask())
        number = a.revoked()
        if closes:
            server.set({GPU: {"b": 500}})
        time.sleep(LONG)  # the time of a kernel, nothing that is waited for
        a.send(Done(None, 0, number))
        b.granted()
        return now()


def slice_time(server: Serving) -> int:
    found: int = server.usage(GPU, "a")["account"]["slice"]
    return found


def owes_still(server: Serving, since: int) -> None:
    """Nothing is forgotten but what it earns in that time."""
    least = (LONG - 0.3) * 1e6 - (now() - since) // 10 - 10 * MS
    assert slice_time(server) <= -least
    assert least > 0, "the machine is too slow for this test"


@pytest.fixture
def indebted(tmp_path: Path) -> Serving:
    """The server of one small share and one of a half."""
    return Serving(tmp_path, savings=0)


def test_a_debt_outlives_the_share(indebted: Serving) -> None:
    """Closed and opened again, at once or in one step with others."""
    with indebted as server:
        server.set(SHARES)
        since = borrows(server)
        owes_still(server, since)
        for _ in range(3):
            server.set({GPU: {"b": 500}})
            server.set(SHARES)
        owes_still(server, since)


def test_a_debt_is_made_while_the_share_is_closed(indebted: Serving) -> None:
    """Its kernel runs on and is charged, whether the share is opened before that has ended or after."""
    with indebted as server:
        server.set(SHARES)
        since = borrows(server, closes=True)
        server.set(SHARES)
        owes_still(server, since)
        with connect(server, "a") as a, connect(server, "b") as b:
            until(lambda: slice_time(server) > 0)  # it pays by waiting
            a.grant()
            b.send(Ask())
            number = a.revoked()
            server.set({GPU: {"b": 500}})
            server.set(SHARES)
            time.sleep(LONG)
            assert slice_time(server) > 0, "nobody knows yet how long that is"
            a.send(Done(None, 0, number))
            b.granted()
            owes_still(server, now())


def test_a_debt_outlives_the_server(indebted: Serving, tmp_path: Path) -> None:
    """It does when the server is killed or ends in order, also for a share that is closed and opened by the next."""
    own = tmp_path / "state" / "shares" / GPU / "a.json"
    with indebted as server:
        server.set(SHARES)
        since = borrows(server)
        until(lambda: own.exists() and "owes" in json.loads(own.read_text()))
        server.kill()
        server.start()
        server.set(SHARES)
        owes_still(server, since)
        server.set({GPU: {"b": 500}})
        assert json.loads(own.read_text()).keys() == {"owes", "written"}
        server.kill()
        server.start()
        server.set({GPU: {"b": 500}})
        server.set(SHARES)
        owes_still(server, since)
        server.close()
        server.start()
        server.set(SHARES)
        owes_still(server, since)


def test_a_debt_that_is_paid_leaves_nothing(tmp_path: Path) -> None:
    """The file of a closed share goes when it would have paid."""
    own = tmp_path / "state" / "shares" / GPU / "a.json"
    with Serving(tmp_path, savings=0) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with connect(server, "a") as a, connect(server, "b") as b:
            a.grant()
            b.send(Ask())
            number = a.revoked()
            time.sleep(0.5)
            a.send(Done(None, 0, number))
            b.send(Done(None, 0, b.granted().number))
        server.set({GPU: {"b": 500}})
        assert own.exists()
        with programs(server, tmp_path, "b"):
            until(lambda: not own.exists())


def test_no_copy_of_a_debt_is_removed_for_its_age(tmp_path: Path) -> None:
    """It stays while something of it is owed."""
    store = ShareStore(tmp_path)
    wall = int(time.time() * 1000)
    store.owe(GPU, "small", 20_000_000_000, 1, wall - 7_200_000)
    store.owe(GPU, "paid", 2_000_000, 100, wall - 7_200_000)
    for pod in ("small", "paid"):
        os.utime(tmp_path / "shares" / GPU / f"{pod}.json", (wall // 1000 - 7_200,) * 2)
    assert store.begin([]).keys() == {(GPU, "small")}


def test_saved_debt_becomes_less_with_time() -> None:
    """It becomes less by what the share would have paid; a wall clock that went back forgives nothing."""
    found = decode_savings(encode_debt(8_900_000, 100, 50_000))
    assert found == Savings(50_000, (), None, (8_900_000, 100))
    assert [owed(found, wall) for wall in (50_000, 60_000, 139_000, 10**12, 0)] == [
        8_900_000, 7_900_000, 0, 0, 8_900_000,
    ]  # fmt: skip
    assert owed(Savings(50_000, ()), 60_000) == 0


# --- by the manager alone ---------------------------------------------------------------------------------------------

TIMING = Timing(savings=0)


def a_manager(now: int = 0) -> LeaseManager:
    manager = LeaseManager(Arbiter(TIMING, now), now)
    manager.set({"a": Terms(100), "b": Terms(900)}, now)
    return manager


def test_a_debt_of_before_comes_first() -> None:
    """An earlier server's knowledge counts for new shares; a share that is there already has its own."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(100)}, 0, owes={"a": 50 * MS})
    assert manager.account("a", 0).slice == -40 * MS
    manager.set({"a": Terms(100)}, 0, owes={"a": 50 * MS})
    assert manager.account("a", 0).slice == -40 * MS
    assert manager.owes("a", 0).owed(0) == 50 * MS
    assert manager.owes("nobody", 0).owed(0) == manager.arbiter.owes("nobody", 0).owed(0) == 0


def test_two_that_were_closed_owe_together() -> None:
    """A share that drains, and one of its name that came and went meanwhile, owe the sum."""
    manager = a_manager()
    a, _ = manager.join("a", 0)
    b, _ = manager.join("b", 0)
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    manager.tick(20 * MS)
    manager.set({"b": Terms(900)}, 20 * MS)
    manager.set({"a": Terms(100), "b": Terms(900)}, 20 * MS, owes={"a": 300 * MS})
    manager.set({"b": Terms(900)}, 20 * MS)
    drains = manager.closed(520 * MS)["a"]
    assert drains.owed(520 * MS) > 700 * MS
    manager.receive(a, Done(None, 0, 1), 520 * MS)
    found = manager.closed(520 * MS)["a"].owed(520 * MS)
    assert found == drains.owed(520 * MS) - TIMING.switch, "the change of hands is paid by all"
    manager.set({"a": Terms(100), "b": Terms(900)}, 520 * MS)
    assert manager.account("a", 520 * MS).slice == 10 * MS * 80 // 100 - found
    assert manager.closed(10**9) == {}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 150 * MS)), min_size=1, max_size=12), st.integers(0, 99 * MS))
def test_closed_share_gains_nothing_when_it_opens_again(steps: list[tuple[bool, int]], began: int) -> None:
    """However it runs, it never has a microsecond more than if it had stayed open."""
    stays, goes = a_manager(), a_manager()
    for manager in (stays, goes):
        other, _ = manager.join("b", 0)
        manager.receive(other, Ask(), 0)
    time, open_, number = began, True, 0
    for runs, length in steps:
        if not runs:
            open_ = not open_
            goes.set({"b": Terms(900)} | ({"a": Terms(100)} if open_ else {}), time)
            time += length
            continue
        if not open_:
            time += length
            continue
        for manager in (stays, goes):  # it has the GPU for that long, whichever other shares have a claim
            ledger = manager.arbiter.shares[manager.shares["a"].key].ledger
            manager.account("a", time)
            ledger.run(time, time + length, contested=True, claimed=True)
        number += 1
        time += length
        if "a" in goes.shares:
            assert goes.account("a", time).slice <= stays.account("a", time).slice + 2 * (number + len(steps))


def test_a_debt_needs_no_file_if_it_is_small() -> None:
    """It is paid within some periods."""
    assert Debt(SMALL, 0, 1000).owed(SMALL) == 0
    assert Debt(10, 5, 100).owed(0) == 10
