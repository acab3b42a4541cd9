"""The leases of one GPU: rules by cases."""

from __future__ import annotations

import pytest

from jupyter_gpu_node.shares.rules.framing import MOST, Malformed
from jupyter_gpu_node.shares.rules.protocol import (
    FOREVER,
    NO_LIMIT,
    Ask,
    Done,
    FromServer,
    Grant,
    Memory,
    Need,
    Revoke,
)
from jupyter_gpu_node.shares.rules.turns.actions import Action, Close, LeaseOverdue, Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.lease_manager import REST, LeaseManager
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.served_share import ShareClient
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

TIMING = Timing()
MS = 1_000


def a_manager(**milli: int) -> LeaseManager:
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    assert manager.set({name: Terms(one) for name, one in milli.items()}, 0) == []
    return manager


def joined(manager: LeaseManager, name: str, now: int = 0) -> ShareClient:
    client, out = manager.join(name, now)
    assert out == []
    return client


def sent(out: list[Action]) -> list[tuple[ShareClient, FromServer]]:
    """All of it, if nothing else is in it."""
    assert all(isinstance(one, Send) for one in out)
    return [(one.client, one.message) for one in out if isinstance(one, Send)]


# --- one process of each share ----------------------------------------------------------------------------------------


def test_ask_grant_revoke_done() -> None:
    """The GPU goes to the other only when it is given back."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    assert sent(manager.receive(a, Ask(), 0)) == [(a, Grant(20 * MS, 1))]
    assert manager.receive(b, Ask(5 * MS), 10 * MS) == []
    assert manager.wake == 20 * MS
    assert sent(manager.tick(20 * MS)) == [(a, Revoke(1))]
    assert sent(manager.receive(a, Done(0, 0, 1), 21 * MS)) == [(b, Grant(5 * MS, 1))]
    assert sent(manager.receive(b, Done(None, 0, 1), 24 * MS)) == [(a, Grant(20 * MS, 2))]


def test_client_that_waits_for_itself_gets_one_more_launch() -> None:
    """It gets it in the turn that is asked back, as often as needed; others get the GPU only after the return."""
    manager = a_manager(a=500, b=500)
    a, other, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    assert Send(a, Revoke(1)) in manager.tick(20 * MS)
    for now in (30 * MS, 40 * MS):
        assert sent(manager.receive(a, Ask(0, True, True), now)) == [(a, Grant(20 * MS, 1, once=True))]
    assert not manager.shut(a, 59 * MS), "it may launch still"
    assert manager.shut(a, 60 * MS)
    assert manager.receive(other, Ask(0, True, True), 41 * MS) == [], "it has no lease"
    assert not b.holds
    assert sent(manager.receive(a, Done(0, 0, 1), 42 * MS)) == [(b, Grant(20 * MS, 1))]
    assert manager.receive(a, Ask(0, True, True), 43 * MS) == []


def test_client_whose_lease_was_given_back_for_it_has_demand() -> None:
    """Its work stands still without another launch: that waits for its next turn, and is a new lease."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    manager.tick(20 * MS)
    assert sent(manager.receive(a, Done(None, 0, 1), 30 * MS)) == [(b, Grant(20 * MS, 1))]
    assert manager.receive(a, Ask(0, True, True), 31 * MS) == []
    assert sent(manager.receive(b, Done(None, 0, 1), 32 * MS)) == [(a, Grant(20 * MS, 2))]


def test_a_share_that_is_removed_launches_nothing_more() -> None:
    """It gets no single launch for which its work waits either."""
    manager = a_manager(a=500)
    a = joined(manager, "a")
    manager.receive(a, Ask(), 0)
    assert manager.set({}, MS) == [Send(a, Revoke(1))]
    assert manager.receive(a, Ask(0, True, True), 2 * MS) == []


def test_client_that_keeps_a_whole_gpu_goes_on() -> None:
    """A new server makes no client of that share wait: not that process, and not another one."""
    manager = a_manager(a=1000)
    manager.rest(200 * MS)
    a, out = manager.join("a", MS)
    assert out == []
    assert sent(manager.receive(a, Ask(0, True), 2 * MS)) == [(a, Grant(FOREVER, 1))]
    other, out = manager.join("a", 3 * MS)
    assert sent(out) == [(other, Grant(FOREVER, 1))]
    assert manager.receive(other, Ask(0, True), 3 * MS) == []


def test_client_that_keeps_a_lost_whole_gpu_drains_first() -> None:
    """All of its processes drain; the others wait for the last of them, and for the end of the rest."""
    manager = a_manager(a=500, b=500)
    manager.rest(200 * MS)
    b, one, two = (joined(manager, name) for name in "baa")
    assert manager.receive(b, Ask(), MS) == []
    assert sent(manager.receive(one, Ask(0, True), 2 * MS)) == [(one, Grant(20 * MS, 1)), (one, Revoke(1))]
    assert sent(manager.receive(two, Ask(0, True), 3 * MS)) == [(two, Grant(1, 1)), (two, Revoke(1))]
    assert manager.receive(two, Ask(0, True), 3 * MS) == []
    assert manager.receive(b, Ask(0, True), 3 * MS) == [], "two cannot have had it"
    assert manager.receive(one, Done(0, 0, 1), 300 * MS) == []
    assert sent(manager.receive(two, Done(None, 0, 1), 310 * MS)) == [(b, Grant(20 * MS, 1))]


def test_queue_of_a_whole_gpu_is_waited_for() -> None:
    """It may take seconds, after the share became less and when the server is another one: it is no violation."""
    manager = a_manager(a=1000)
    a, out = manager.join("a", 0)
    assert sent(out) == [(a, Grant(FOREVER, 1))]
    assert sent(manager.set({"a": Terms(500), "b": Terms(500)}, MS)) == [(a, Revoke(1))]
    restarted = a_manager(a=500, b=500)
    restarted.rest(200 * MS)
    again = joined(restarted, "a")
    restarted.receive(again, Ask(0, True), MS)
    for one, client in ((manager, a), (restarted, again)):
        b = joined(one, "b", 2 * MS)
        one.receive(b, Ask(), 2 * MS)
        now = 0
        while now < 50_000 * MS:
            now = min(one.wake or 50_000 * MS, 50_000 * MS)
            assert one.tick(now) == []
        assert sent(one.receive(client, Done(None, 0, 1), now)) == [(b, Grant(20 * MS, 1))]


def test_client_with_longer_work_has_time_for_it() -> None:
    """A kernel cannot be interrupted. To say so without having been asked, or without a lease, gains nothing."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(a, Ask(0, True), 1 * MS)
    manager.receive(b, Ask(0, True), 1 * MS)
    assert sent(manager.tick(20 * MS)) == [(a, Revoke(1))]
    assert manager.wake == 70 * MS
    manager.receive(b, Ask(0, True), 25 * MS)
    assert manager.wake == 70 * MS
    assert manager.receive(a, Ask(0, True), 25 * MS) == []
    assert manager.wake == 10_020 * MS
    assert manager.tick(10_020 * MS) == [LeaseOverdue("a", 20 * MS, (a,))]


def test_keeping_after_the_rest_is_plain_demand() -> None:
    """A client that says it keeps the GPU when the rest is over only waits for it."""
    manager = a_manager(a=500, b=500)
    manager.rest(200 * MS)
    a, b = joined(manager, "a"), joined(manager, "b")
    assert sent(manager.receive(a, Ask(0, True), 200 * MS)) == [(a, Grant(20 * MS, 1))]
    assert manager.receive(b, Ask(0, True), 201 * MS) == []


def test_an_extension_has_the_number_of_its_lease() -> None:
    """A client cannot take it for another lease."""
    manager = a_manager(a=500)
    a = joined(manager, "a")
    manager.receive(a, Ask(), 0)
    assert sent(manager.tick(15 * MS)) == [(a, Grant(20 * MS, 1))]


def test_an_answer_that_crossed_with_a_new_lease() -> None:
    """Only the number in force gives back; an answer to an old one tells the demand alone."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    assert sent(manager.receive(a, Done(0, 0, 1), 5 * MS)) == [(a, Grant(20 * MS, 2))]
    manager.receive(b, Ask(), 6 * MS)
    assert manager.receive(a, Done(0, 0, 1), 7 * MS) == []
    assert manager.receive(a, Done(None, 0, 0), 8 * MS) == []
    assert manager.holder is a.share
    assert sent(manager.receive(a, Done(None, 0, 2), 9 * MS)) == [(b, Grant(20 * MS, 1))]


def test_a_lease_that_was_never_given_cannot_be_given_back() -> None:
    """Such a message ends the connection."""
    manager = a_manager(a=500)
    a = joined(manager, "a")
    with pytest.raises(Malformed, match="lease 1 back, and was given 0"):
        manager.receive(a, Done(None, 0, 1), 0)


def test_a_wish_can_be_taken_back() -> None:
    """A client that wants nothing any more gets nothing."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    assert manager.receive(b, Done(), MS) == []
    assert manager.receive(a, Done(None, 0, 1), 2 * MS) == []
    assert manager.wake is None


def test_the_change_of_hands_is_not_charged_where_programs_measured() -> None:
    """Their measurements reach the arbiter; for a client that dies it takes the time by the clock."""
    manager = a_manager(a=500, b=500)
    a, other = joined(manager, "a"), joined(manager, "a")
    manager.receive(a, Ask(), 0)
    manager.receive(other, Ask(), 0)
    manager.receive(a, Done(None, 4 * MS, 1), 8 * MS)
    manager.receive(other, Done(None, 3_800, 1), 8 * MS)
    assert manager.account("a", 8 * MS).guaranteed < 8 * MS
    before = manager.account("a", 8 * MS).guaranteed
    manager.receive(a, Ask(), 8 * MS)
    manager.leave(a, 16 * MS)
    assert manager.account("a", 16 * MS).guaranteed == before + 8 * MS


def test_client_that_leaves_gives_back_at_once() -> None:
    """A client that leaves again, or while it waits, changes nothing."""
    manager = a_manager(a=500, b=500)
    a, b, c = joined(manager, "a"), joined(manager, "b"), joined(manager, "b")
    for one in (a, b, c):
        manager.receive(one, Ask(), 0)
    assert manager.leave(b, MS) == []
    assert sent(manager.leave(a, MS)) == [(c, Grant(20 * MS, 1))]
    assert manager.leave(a, MS) == []
    assert manager.receive(a, Ask(), MS) == []
    assert manager.leave(c, 2 * MS) == []
    assert manager.holder is None


def test_overdue_lease_is_reported_once() -> None:
    """It is reported with the processes that have the lease."""
    manager = a_manager(a=500, b=500)
    a, idle, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    manager.tick(20 * MS)
    assert manager.wake == 70 * MS
    assert manager.tick(70 * MS) == [LeaseOverdue("a", 20 * MS, (a,))]
    assert manager.wake is None
    assert manager.tick(80 * MS) == []
    assert idle in manager.shares["a"].clients
    assert sent(manager.leave(a, 90 * MS)) == [(b, Grant(20 * MS, 1))]


# --- several processes of one share -----------------------------------------------------------------------------------


def test_processes_of_one_share_run_beside_each_other() -> None:
    """A client that comes during the lease gets the rest of it; the last one gives it back."""
    manager = a_manager(a=500, b=500)
    first, second, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(first, Ask(), 0)
    manager.receive(b, Ask(), 0)
    assert sent(manager.receive(second, Ask(), 5 * MS)) == [(second, Grant(15 * MS, 1))]
    assert sent(manager.tick(20 * MS)) == [(first, Revoke(1)), (second, Revoke(1))]
    assert manager.receive(first, Done(0, 0, 1), 21 * MS) == []
    assert manager.receive(first, Ask(), 21 * MS) == [], "asked back: a client that is done waits"
    assert sent(manager.receive(second, Done(None, 0, 1), 22 * MS)) == [(b, Grant(20 * MS, 1))]
    assert sent(manager.receive(b, Done(None, 0, 1), 42 * MS)) == [(first, Grant(20 * MS, 2))]


def test_client_that_comes_after_the_revoke_waits() -> None:
    """It waits although the lease would have lasted: else it would never end."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(500), "b": Terms(500)}, 0, {"b": (Deposit(50 * MS, 0),)})
    first, second, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(first, Ask(), 0)
    assert manager.receive(b, Ask(), MS) == []
    assert sent(manager.tick(2 * MS)) == [(first, Revoke(1))]
    assert manager.receive(second, Ask(), 3 * MS) == []
    assert sent(manager.receive(first, Done(None, 0, 1), 4 * MS)) == [(b, Grant(20 * MS, 1))]


def test_grant_goes_to_all_clients_that_asked() -> None:
    """No other client gets it; what they want is added up."""
    manager = a_manager(a=500, b=500)
    one, two, idle, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(b, Ask(), 0)
    manager.receive(one, Ask(2 * MS), 0)
    manager.receive(two, Ask(3 * MS), 0)
    out = sent(manager.receive(b, Done(None, 0, 1), 5 * MS))
    assert out == [(one, Grant(5 * MS, 1)), (two, Grant(5 * MS, 1))]
    assert not idle.holds


def test_client_that_is_done_early_goes_on() -> None:
    """It goes on while the share has the GPU and no other asked for it."""
    manager = a_manager(a=500)
    one, two = joined(manager, "a"), joined(manager, "a")
    manager.receive(one, Ask(), 0)
    manager.receive(two, Ask(), 0)
    assert sent(manager.receive(one, Done(7, 0, 1), 5 * MS)) == [(one, Grant(15 * MS, 2))]
    assert manager.receive(two, Done(None, 0, 1), 6 * MS) == []
    assert manager.receive(one, Done(None, 0, 2), 7 * MS) == []
    assert manager.holder is None


# --- a whole GPU ------------------------------------------------------------------------------------------------------


def test_whole_gpu_is_granted_for_ever_to_each_client() -> None:
    """Nothing is asked, nothing is extended; the books are updated now and then."""
    manager = a_manager(a=1000)
    one, out = manager.join("a", 0)
    assert sent(out) == [(one, Grant(FOREVER, 1))]
    two, out = manager.join("a", 50)
    assert sent(out) == [(two, Grant(FOREVER, 1))]
    assert manager.wake == REST
    assert manager.tick(REST) == []
    assert manager.wake == 2 * REST
    assert manager.account("a", REST).waited == 0
    assert manager.leave(one, REST) == []
    assert manager.leave(two, REST) == []
    assert manager.wake is None


def test_a_whole_gpu_becomes_a_share_and_back() -> None:
    """First what runs is drained, for it was not counted; then it takes turns."""
    manager = a_manager(a=1000)
    a, _ = manager.join("a", 0)
    assert sent(manager.set({"a": Terms(500), "b": Terms(500)}, MS)) == [(a, Revoke(1))]
    b = joined(manager, "b", MS)
    assert manager.receive(b, Ask(), 2 * MS) == []
    assert sent(manager.receive(a, Done(0, 0, 1), 3 * MS)) in ([(a, Grant(20 * MS, 2))], [(b, Grant(20 * MS, 1))])
    assert manager.holder is not None
    holder, waits = (a, b) if manager.holder is a.share else (b, a)
    assert not waits.holds
    out = manager.set({"a": Terms(1000)}, 4 * MS)
    if holder is b:
        assert sent(out) == [(b, Revoke(1))]
        assert manager.receive(b, Done(None, 0, 1), 5 * MS) == [Close(b), Send(a, Grant(FOREVER, 2))]
    else:
        assert out == [Send(a, Grant(FOREVER, 2)), Close(b)] or set(out) == {Send(a, Grant(FOREVER, 2)), Close(b)}


def test_a_share_that_becomes_whole_while_it_runs() -> None:
    """The client with the lease keeps it for ever, and one that is only connected gets it."""
    manager = a_manager(a=500)
    a, idle = joined(manager, "a"), joined(manager, "a")
    manager.receive(a, Ask(), 0)
    assert sent(manager.set({"a": Terms(1000)}, MS)) == [(a, Grant(FOREVER, 1)), (idle, Grant(FOREVER, 1))]


def test_share_that_becomes_whole_while_idle() -> None:
    """All connected clients get it."""
    manager = a_manager(a=500)
    a = joined(manager, "a")
    assert sent(manager.set({"a": Terms(1000)}, MS)) == [(a, Grant(FOREVER, 1))]


def test_whole_again_before_it_was_drained() -> None:
    """A revoked lease is given back first; then it is for ever again."""
    manager = a_manager(a=1000)
    a, _ = manager.join("a", 0)
    assert sent(manager.set({"a": Terms(500)}, MS)) == [(a, Revoke(1))]
    assert manager.set({"a": Terms(1000)}, 2 * MS) == []
    assert sent(manager.receive(a, Done(0, 0, 1), 3 * MS)) == [(a, Grant(FOREVER, 2))]


def test_share_that_keeps_its_former_whole_gpu_is_overdue() -> None:
    """It is overdue as soon as another share wants the GPU."""
    manager = a_manager(a=1000)
    a, _ = manager.join("a", 0)
    manager.set({"a": Terms(500), "b": Terms(500)}, MS)
    b = joined(manager, "b", MS)
    late: list[Action] = list(manager.receive(b, Ask(), 2 * MS))
    while not late and (wake := manager.wake) is not None:
        late += manager.tick(wake)
    assert [(one.share, one.clients) for one in late if isinstance(one, LeaseOverdue)] == [("a", (a,))]
    assert not b.holds


# --- shares come and go -----------------------------------------------------------------------------------------------


def test_a_share_removed_in_its_lease() -> None:
    """It is asked back, those without it are closed at once, and after DONE there is nothing any more."""
    manager = a_manager(a=500, b=500)
    a, idle, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    assert manager.set({"b": Terms(500)}, MS) == [Send(a, Revoke(1)), Close(idle)]
    assert manager.receive(a, Ask(), 2 * MS) == []
    assert manager.receive(a, Done(0, 0, 1), 3 * MS) == [Close(a), Send(b, Grant(20 * MS, 1))]
    assert manager.receive(a, Ask(), 4 * MS) == []
    with pytest.raises(KeyError):
        manager.join("a", 4 * MS)


def test_a_share_removed_while_it_waits_or_rests() -> None:
    """Its clients are closed, and nothing else happens."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    assert manager.set({"a": Terms(500)}, MS) == [Close(b)]
    assert manager.receive(a, Done(None, 0, 1), 2 * MS) == []
    assert manager.wake is None


def test_a_share_that_comes_again_while_the_old_one_drains() -> None:
    """It is another one: what it asks and takes back does not touch the old one, and it waits like all."""
    manager = a_manager(a=500)
    old = joined(manager, "a")
    manager.receive(old, Ask(), 0)
    assert sent(manager.set({}, MS)) == [(old, Revoke(1))]
    assert manager.set({"a": Terms(700)}, 2 * MS) == []
    new = joined(manager, "a", 2 * MS)
    assert manager.receive(new, Ask(), 2 * MS) == []
    assert manager.receive(new, Done(), 3 * MS) == []
    assert manager.receive(new, Ask(), 3 * MS) == []
    assert manager.receive(old, Done(0, 0, 1), 4 * MS) == [Close(old), Send(new, Grant(20 * MS, 1))]


def test_a_removed_share_that_dies_in_its_lease() -> None:
    """The next one gets the GPU at once."""
    manager = a_manager(a=500, b=500)
    a, b = joined(manager, "a"), joined(manager, "b")
    manager.receive(a, Ask(), 0)
    manager.receive(b, Ask(), 0)
    manager.set({"b": Terms(500)}, MS)
    assert sent(manager.leave(a, 2 * MS)) == [(b, Grant(20 * MS, 1))]


def test_more_than_the_gpu_is_refused_whole() -> None:
    """Nothing is changed by such a request."""
    manager = a_manager(a=500, b=500)
    with pytest.raises(ValueError, match="at most 1000"):
        manager.set({"a": Terms(600), "b": Terms(500)}, 0)
    with pytest.raises(ValueError, match="at most 1000"):
        manager.adjust({"a": 600}, 0)
    assert {name: (share.terms.milli, share.effective) for name, share in manager.shares.items()} == {
        "a": (500, 500),
        "b": (500, 500),
    }
    for milli, limit in ((0, None), (1001, None), (5, -1), (5, NO_LIMIT)):
        with pytest.raises(ValueError, match="share"):
            Terms(milli, limit)


def test_loans_go_back_when_shares_change() -> None:
    """A bank stays that of what its share was given."""
    manager = a_manager(a=500, b=500)
    assert manager.adjust({"a": 800, "b": 200, "gone": 900}, 0) == []
    assert {name: share.effective for name, share in manager.shares.items()} == {"a": 800, "b": 200}
    manager.tick(100_000_000)
    assert manager.account("b", 100_000_000).balance == TIMING.cap(500)
    manager.set({"a": Terms(500), "c": Terms(100), "b": Terms(400)}, 100_000_000)
    assert {name: share.effective for name, share in manager.shares.items()} == {"a": 500, "b": 400, "c": 100}


def test_a_whole_gpu_lends_nothing() -> None:
    """Its programs take no turns, and its use is not asked for."""
    manager = a_manager(a=1000)
    manager.adjust({"a": 20}, 0)
    assert manager.shares["a"].effective == 1000


def test_a_new_share_begins_with_its_bank() -> None:
    """It begins with the bank that the server before this one kept."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(100)}, 0, {"a": (Deposit(7, -5),), "nobody": (Deposit(1, 0),)})
    assert manager.account("a", 0).balance == 7
    assert manager.deposits("a") == (Deposit(7, -5),)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_granted_within_the_limit() -> None:
    """Each answer tells what the process may have, the limit, and what all have."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(500, 100), "b": Terms(500)}, 0)
    one, two, b = joined(manager, "a"), joined(manager, "a"), joined(manager, "b")
    assert sent(manager.receive(one, Need(70), 0)) == [(one, Memory(70, 100, 70))]
    assert sent(manager.receive(two, Need(0), 0)) == [(two, Memory(0, 100, 70))]
    assert sent(manager.receive(two, Need(31), 0)) == [(two, Memory(0, 100, 70))]
    assert sent(manager.receive(two, Need(30), 0)) == [(two, Memory(30, 100, 100))]
    manager.leave(one, 0)
    assert sent(manager.receive(two, Need(100), 0)) == [(two, Memory(100, 100, 100))]
    assert sent(manager.receive(b, Need(MOST), 0)) == [(b, Memory(MOST, NO_LIMIT, MOST))]
    other = joined(manager, "b")
    assert sent(manager.receive(other, Need(MOST), 0)) == [(other, Memory(MOST, NO_LIMIT, MOST))], "it fits its field"


def test_new_limit_is_sent_to_all_clients_with_memory() -> None:
    """Nothing is taken from them."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(500)}, 0)
    one, silent = joined(manager, "a"), joined(manager, "a")
    manager.receive(one, Need(70), 0)
    assert sent(manager.set({"a": Terms(500, 50)}, 0)) == [(one, Memory(70, 50, 70))]
    assert not silent.holds
    assert sent(manager.receive(one, Need(71), 0)) == [(one, Memory(70, 50, 70))]


def test_a_removed_share_gets_no_more_memory() -> None:
    """Its clients are answered while it drains."""
    manager = a_manager(a=500)
    a = joined(manager, "a")
    manager.receive(a, Ask(), 0)
    manager.receive(a, Need(5), 0)
    manager.set({}, 0)
    assert sent(manager.receive(a, Need(9), 0)) == [(a, Memory(5, NO_LIMIT, 5))]


# --- no other share --------------------------------------------------------------------------------------------------


def knowing(manager: LeaseManager, name: str, now: int = 0) -> ShareClient:
    """A client that knows all kinds of leases."""
    client = joined(manager, name, now)
    manager.receive(client, Need(0, steps=True, ahead=True), now)
    return client


def test_client_alone_may_be_far_ahead_until_another_comes() -> None:
    """A lone client gets such leases until another one connects, even before that one asks for anything."""
    manager = a_manager(a=500, b=500)
    a, old = knowing(manager, "a"), joined(manager, "a")
    assert sent(manager.receive(a, Ask(), 0)) == [(a, Grant(20 * MS, 1, ahead=True))]
    assert sent(manager.receive(old, Ask(), MS)) == [(old, Grant(19 * MS, 1))]
    assert sent(manager.receive(old, Done(None, 0, 1), MS)) == []
    b, out = manager.join("b", 4 * MS)
    assert sent(out) == [(a, Grant(16 * MS, 1))]
    assert manager.receive(b, Need(0, steps=True, ahead=True), 4 * MS)
    assert joined(manager, "b", 5 * MS)
    assert sent(manager.receive(a, Done(0, 0, 1), 6 * MS)) == [(a, Grant(20 * MS, 2))]
    for client in tuple(manager.shares["b"].clients):
        assert manager.leave(client, 7 * MS) == []
    assert sent(manager.receive(a, Done(0, 0, 2), 8 * MS)) == [(a, Grant(20 * MS, 3, ahead=True))]


def test_second_client_of_a_share_limits_no_queue() -> None:
    """A share waits only for the queues of its own programs."""
    manager = a_manager(a=500, b=500)
    a = knowing(manager, "a")
    manager.receive(a, Ask(), 0)
    second = knowing(manager, "a", MS)
    assert sent(manager.receive(second, Ask(), MS)) == [(second, Grant(19 * MS, 1, ahead=True))]


def test_a_lease_for_one_launch_is_for_one_launch() -> None:
    """It is without another share, too; a whole GPU has no such limit."""
    manager = a_manager(a=500)
    a = knowing(manager, "a")
    manager.apply_rule(Rule("a", once=True), 0)
    assert sent(manager.receive(a, Ask(), 0)) == [(a, Grant(20 * MS, 1, once=True))]
    whole = a_manager(a=1000)
    client, out = whole.join("a", 0)
    assert sent(out) == [(client, Grant(FOREVER, 1))]


# --- leases for one launch --------------------------------------------------------------------------------------------


def test_a_gate_that_knows_no_lease_for_one_launch_is_never_given_one() -> None:
    """It waits while another client of the share has one, and is given the next ordinary one."""
    manager = a_manager(a=500)
    old, new = joined(manager, "a"), joined(manager, "a")
    assert manager.demand("a") == (False, False, False, False, 500, True)
    manager.receive(old, Need(0), 0)
    manager.receive(new, Need(0, steps=True), 0)
    assert manager.demand("a") == (False, False, False, False, 500, False)
    manager.apply_rule(Rule("a", once=True), 0)
    assert sent(manager.receive(new, Ask(), 0)) == [(new, Grant(20 * MS, 1, True))]
    assert manager.demand("a") == (False, True, False, True, 500, False)
    assert manager.receive(old, Ask(), MS) == []
    manager.apply_rule(Rule(), MS)
    assert sent(manager.receive(new, Done(None, 0, 1), 2 * MS)) == [(old, Grant(20 * MS, 1))]
    manager.leave(old, 3 * MS)
    assert manager.demand("a") == (False, False, False, False, 500, True)
