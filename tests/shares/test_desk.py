"""The desk of one GPU: rules by cases, and with clients whose messages cross, what must hold whatever happens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_node.shares.arbiter import Arbiter
from jupyter_gpu_node.shares.bank import Deposit
from jupyter_gpu_node.shares.desk import REST, Client, Close, Desk, Late, Out, Send, Terms
from jupyter_gpu_node.shares.protocol import (
    FOREVER,
    MOST,
    NO_LIMIT,
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Malformed,
    Memory,
    Need,
    Revoke,
)
from jupyter_gpu_node.shares.timing import Timing

TIMING = Timing()
MS = 1_000


def a_desk(**milli: int) -> Desk:
    desk = Desk(Arbiter(TIMING, 0), 0)
    assert desk.set({name: Terms(one) for name, one in milli.items()}, 0) == []
    return desk


def joined(desk: Desk, name: str, now: int = 0) -> Client:
    client, out = desk.join(name, now)
    assert out == []
    return client


def sent(out: list[Out]) -> list[tuple[Client, FromServer]]:
    """All of it, if nothing else is in it."""
    assert all(isinstance(one, Send) for one in out)
    return [(one.client, one.message) for one in out if isinstance(one, Send)]


# --- one process of each share ----------------------------------------------------------------------------------------


def test_ask_grant_revoke_done() -> None:
    """The GPU goes to the other only when it is given back."""
    desk = a_desk(a=500, b=500)
    a, b = joined(desk, "a"), joined(desk, "b")
    assert sent(desk.receive(a, Ask(), 0)) == [(a, Grant(20 * MS, 1))]
    assert desk.receive(b, Ask(5 * MS), 10 * MS) == []
    assert desk.wake == 20 * MS
    assert sent(desk.tick(20 * MS)) == [(a, Revoke(1))]
    assert sent(desk.receive(a, Done(0, 0, 1), 21 * MS)) == [(b, Grant(5 * MS, 1))]
    assert sent(desk.receive(b, Done(None, 0, 1), 24 * MS)) == [(a, Grant(20 * MS, 2))]


def test_an_extension_has_the_number_of_its_lease() -> None:
    """So nobody takes it for another one."""
    desk = a_desk(a=500)
    a = joined(desk, "a")
    desk.receive(a, Ask(), 0)
    assert sent(desk.tick(15 * MS)) == [(a, Grant(20 * MS, 1))]


def test_an_answer_that_crossed_with_a_new_lease() -> None:
    """Only the number in force gives back; what is said of an old one is the demand alone."""
    desk = a_desk(a=500, b=500)
    a, b = joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    assert sent(desk.receive(a, Done(0, 0, 1), 5 * MS)) == [(a, Grant(20 * MS, 2))]
    desk.receive(b, Ask(), 6 * MS)
    assert desk.receive(a, Done(0, 0, 1), 7 * MS) == []
    assert desk.receive(a, Done(None, 0, 0), 8 * MS) == []
    assert desk.holder is a.share
    assert sent(desk.receive(a, Done(None, 0, 2), 9 * MS)) == [(b, Grant(20 * MS, 1))]


def test_a_lease_that_was_never_given_cannot_be_given_back() -> None:
    """Who says so is no client: the connection is closed."""
    desk = a_desk(a=500)
    a = joined(desk, "a")
    with pytest.raises(Malformed, match="lease 1 back, and was given 0"):
        desk.receive(a, Done(None, 0, 1), 0)


def test_a_wish_can_be_taken_back() -> None:
    """Who wants nothing any more gets nothing."""
    desk = a_desk(a=500, b=500)
    a, b = joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    desk.receive(b, Ask(), 0)
    assert desk.receive(b, Done(), MS) == []
    assert desk.receive(a, Done(None, 0, 1), 2 * MS) == []
    assert desk.wake is None


def test_the_change_of_hands_is_not_charged_where_programs_measured() -> None:
    """What they measured comes to the arbiter; of who dies it takes the time by the clock."""
    desk = a_desk(a=500, b=500)
    a, other = joined(desk, "a"), joined(desk, "a")
    desk.receive(a, Ask(), 0)
    desk.receive(other, Ask(), 0)
    desk.receive(a, Done(None, 4 * MS, 1), 8 * MS)
    desk.receive(other, Done(None, 3_800, 1), 8 * MS)
    assert desk.account("a", 8 * MS).guaranteed < 8 * MS
    before = desk.account("a", 8 * MS).guaranteed
    desk.receive(a, Ask(), 8 * MS)
    desk.leave(a, 16 * MS)
    assert desk.account("a", 16 * MS).guaranteed == before + 8 * MS


def test_who_leaves_in_a_lease_gives_back_at_once() -> None:
    """And who leaves again, or while it waits, changes nothing."""
    desk = a_desk(a=500, b=500)
    a, b, c = joined(desk, "a"), joined(desk, "b"), joined(desk, "b")
    for one in (a, b, c):
        desk.receive(one, Ask(), 0)
    assert desk.leave(b, MS) == []
    assert sent(desk.leave(a, MS)) == [(c, Grant(20 * MS, 1))]
    assert desk.leave(a, MS) == []
    assert desk.receive(a, Ask(), MS) == []
    assert desk.leave(c, 2 * MS) == []
    assert desk.holder is None


def test_who_does_not_give_back_is_told_of_once() -> None:
    """With the processes that have the lease."""
    desk = a_desk(a=500, b=500)
    a, idle, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    desk.receive(b, Ask(), 0)
    desk.tick(20 * MS)
    assert desk.wake == 70 * MS
    assert desk.tick(70 * MS) == [Late("a", 20 * MS, (a,))]
    assert desk.wake is None
    assert desk.tick(80 * MS) == []
    assert idle in desk.shares["a"].clients
    assert sent(desk.leave(a, 90 * MS)) == [(b, Grant(20 * MS, 1))]


# --- several processes of one share -----------------------------------------------------------------------------------


def test_processes_of_one_share_run_beside_each_other() -> None:
    """Who comes during the lease gets the rest of it; the last one gives it back."""
    desk = a_desk(a=500, b=500)
    first, second, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    desk.receive(first, Ask(), 0)
    desk.receive(b, Ask(), 0)
    assert sent(desk.receive(second, Ask(), 5 * MS)) == [(second, Grant(15 * MS, 1))]
    assert sent(desk.tick(20 * MS)) == [(first, Revoke(1)), (second, Revoke(1))]
    assert desk.receive(first, Done(0, 0, 1), 21 * MS) == []
    assert desk.receive(first, Ask(), 21 * MS) == [], "asked back: who is done waits"
    assert sent(desk.receive(second, Done(None, 0, 1), 22 * MS)) == [(b, Grant(20 * MS, 1))]
    assert sent(desk.receive(b, Done(None, 0, 1), 42 * MS)) == [(first, Grant(20 * MS, 2))]


def test_who_comes_when_the_gpu_is_asked_back_waits() -> None:
    """Also if the lease would have lasted: else it would never end."""
    desk = Desk(Arbiter(TIMING, 0), 0)
    desk.set({"a": Terms(500), "b": Terms(500)}, 0, {"b": (Deposit(50 * MS, 0),)})
    first, second, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    desk.receive(first, Ask(), 0)
    assert desk.receive(b, Ask(), MS) == []
    assert sent(desk.tick(2 * MS)) == [(first, Revoke(1))]
    assert desk.receive(second, Ask(), 3 * MS) == []
    assert sent(desk.receive(first, Done(None, 0, 1), 4 * MS)) == [(b, Grant(20 * MS, 1))]


def test_a_grant_goes_to_all_who_asked() -> None:
    """And to nobody else; what they want is added up."""
    desk = a_desk(a=500, b=500)
    one, two, idle, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    desk.receive(b, Ask(), 0)
    desk.receive(one, Ask(2 * MS), 0)
    desk.receive(two, Ask(3 * MS), 0)
    out = sent(desk.receive(b, Done(None, 0, 1), 5 * MS))
    assert out == [(one, Grant(5 * MS, 1)), (two, Grant(5 * MS, 1))]
    assert not idle.holds


def test_who_is_done_early_and_wants_more_goes_on() -> None:
    """While the share has the GPU and nobody asked for it."""
    desk = a_desk(a=500)
    one, two = joined(desk, "a"), joined(desk, "a")
    desk.receive(one, Ask(), 0)
    desk.receive(two, Ask(), 0)
    assert sent(desk.receive(one, Done(7, 0, 1), 5 * MS)) == [(one, Grant(15 * MS, 2))]
    assert desk.receive(two, Done(None, 0, 1), 6 * MS) == []
    assert desk.receive(one, Done(None, 0, 2), 7 * MS) == []
    assert desk.holder is None


# --- a whole GPU ------------------------------------------------------------------------------------------------------


def test_a_whole_gpu_is_granted_for_ever_to_whoever_connects() -> None:
    """Nothing is asked, nothing is extended; the books are looked at now and then."""
    desk = a_desk(a=1000)
    one, out = desk.join("a", 0)
    assert sent(out) == [(one, Grant(FOREVER, 1))]
    two, out = desk.join("a", 50)
    assert sent(out) == [(two, Grant(FOREVER, 1))]
    assert desk.wake == REST
    assert desk.tick(REST) == []
    assert desk.wake == 2 * REST
    assert desk.account("a", REST).waited == 0
    assert desk.leave(one, REST) == []
    assert desk.leave(two, REST) == []
    assert desk.wake is None


def test_a_whole_gpu_becomes_a_share_and_back() -> None:
    """First what runs is drained, for nobody counted it; then it takes turns."""
    desk = a_desk(a=1000)
    a, _ = desk.join("a", 0)
    assert sent(desk.set({"a": Terms(500), "b": Terms(500)}, MS)) == [(a, Revoke(1))]
    b = joined(desk, "b", MS)
    assert desk.receive(b, Ask(), 2 * MS) == []
    assert sent(desk.receive(a, Done(0, 0, 1), 3 * MS)) in ([(a, Grant(20 * MS, 2))], [(b, Grant(20 * MS, 1))])
    assert desk.holder is not None
    holder, waits = (a, b) if desk.holder is a.share else (b, a)
    assert not waits.holds
    out = desk.set({"a": Terms(1000)}, 4 * MS)
    if holder is b:
        assert sent(out) == [(b, Revoke(1))]
        assert desk.receive(b, Done(None, 0, 1), 5 * MS) == [Close(b), Send(a, Grant(FOREVER, 2))]
    else:
        assert out == [Send(a, Grant(FOREVER, 2)), Close(b)] or set(out) == {Send(a, Grant(FOREVER, 2)), Close(b)}


def test_a_share_that_becomes_whole_while_it_runs() -> None:
    """Who has the lease keeps it for ever, and who is only connected gets it."""
    desk = a_desk(a=500)
    a, idle = joined(desk, "a"), joined(desk, "a")
    desk.receive(a, Ask(), 0)
    assert sent(desk.set({"a": Terms(1000)}, MS)) == [(a, Grant(FOREVER, 1)), (idle, Grant(FOREVER, 1))]


def test_a_share_that_becomes_whole_while_nobody_runs() -> None:
    """All who are connected get it."""
    desk = a_desk(a=500)
    a = joined(desk, "a")
    assert sent(desk.set({"a": Terms(1000)}, MS)) == [(a, Grant(FOREVER, 1))]


def test_whole_again_before_it_was_drained() -> None:
    """What was asked back is given back first; then it is for ever again."""
    desk = a_desk(a=1000)
    a, _ = desk.join("a", 0)
    assert sent(desk.set({"a": Terms(500)}, MS)) == [(a, Revoke(1))]
    assert desk.set({"a": Terms(1000)}, 2 * MS) == []
    assert sent(desk.receive(a, Done(0, 0, 1), 3 * MS)) == [(a, Grant(FOREVER, 2))]


def test_who_keeps_a_whole_gpu_that_is_a_share_now_is_overdue() -> None:
    """As soon as somebody else wants it."""
    desk = a_desk(a=1000)
    a, _ = desk.join("a", 0)
    desk.set({"a": Terms(500), "b": Terms(500)}, MS)
    b = joined(desk, "b", MS)
    late: list[Out] = list(desk.receive(b, Ask(), 2 * MS))
    while not late and (wake := desk.wake) is not None:
        late += desk.tick(wake)
    assert [(one.share, one.clients) for one in late if isinstance(one, Late)] == [("a", (a,))]
    assert not b.holds


# --- shares come and go -----------------------------------------------------------------------------------------------


def test_a_share_removed_in_its_lease() -> None:
    """It is asked back, those without it are closed at once, and after DONE there is nothing any more."""
    desk = a_desk(a=500, b=500)
    a, idle, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    desk.receive(b, Ask(), 0)
    assert desk.set({"b": Terms(500)}, MS) == [Send(a, Revoke(1)), Close(idle)]
    assert desk.receive(a, Ask(), 2 * MS) == []
    assert desk.receive(a, Done(0, 0, 1), 3 * MS) == [Close(a), Send(b, Grant(20 * MS, 1))]
    assert desk.receive(a, Ask(), 4 * MS) == []
    with pytest.raises(KeyError):
        desk.join("a", 4 * MS)


def test_a_share_removed_while_it_waits_or_rests() -> None:
    """Its clients are closed, and nothing else happens."""
    desk = a_desk(a=500, b=500)
    a, b = joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    desk.receive(b, Ask(), 0)
    assert desk.set({"a": Terms(500)}, MS) == [Close(b)]
    assert desk.receive(a, Done(None, 0, 1), 2 * MS) == []
    assert desk.wake is None


def test_a_share_that_comes_again_while_the_old_one_drains() -> None:
    """It is another one: what it asks and takes back does not touch the old one, and it waits like all."""
    desk = a_desk(a=500)
    old = joined(desk, "a")
    desk.receive(old, Ask(), 0)
    assert sent(desk.set({}, MS)) == [(old, Revoke(1))]
    assert desk.set({"a": Terms(700)}, 2 * MS) == []
    new = joined(desk, "a", 2 * MS)
    assert desk.receive(new, Ask(), 2 * MS) == []
    assert desk.receive(new, Done(), 3 * MS) == []
    assert desk.receive(new, Ask(), 3 * MS) == []
    assert desk.receive(old, Done(0, 0, 1), 4 * MS) == [Close(old), Send(new, Grant(20 * MS, 1))]


def test_a_removed_share_that_dies_in_its_lease() -> None:
    """The next one gets the GPU at once."""
    desk = a_desk(a=500, b=500)
    a, b = joined(desk, "a"), joined(desk, "b")
    desk.receive(a, Ask(), 0)
    desk.receive(b, Ask(), 0)
    desk.set({"b": Terms(500)}, MS)
    assert sent(desk.leave(a, 2 * MS)) == [(b, Grant(20 * MS, 1))]


def test_more_than_the_gpu_is_refused_whole() -> None:
    """With nothing changed."""
    desk = a_desk(a=500, b=500)
    with pytest.raises(ValueError, match="at most 1000"):
        desk.set({"a": Terms(600), "b": Terms(500)}, 0)
    with pytest.raises(ValueError, match="at most 1000"):
        desk.adjust({"a": 600}, 0)
    assert {name: (share.terms.milli, share.effective) for name, share in desk.shares.items()} == {
        "a": (500, 500),
        "b": (500, 500),
    }
    for milli, limit in ((0, None), (1001, None), (5, -1), (5, NO_LIMIT)):
        with pytest.raises(ValueError, match="share"):
            Terms(milli, limit)


def test_what_is_lent_goes_back_when_shares_change() -> None:
    """A bank stays that of what its share was given."""
    desk = a_desk(a=500, b=500)
    assert desk.adjust({"a": 800, "b": 200, "gone": 900}, 0) == []
    assert {name: share.effective for name, share in desk.shares.items()} == {"a": 800, "b": 200}
    desk.tick(100_000_000)
    assert desk.account("b", 100_000_000).balance == TIMING.cap(500)
    desk.set({"a": Terms(500), "c": Terms(100), "b": Terms(400)}, 100_000_000)
    assert {name: share.effective for name, share in desk.shares.items()} == {"a": 500, "b": 400, "c": 100}


def test_a_whole_gpu_lends_nothing() -> None:
    """Its programs do not take turns."""
    desk = a_desk(a=1000)
    desk.adjust({"a": 20}, 0)
    assert desk.shares["a"].effective == 1000


def test_a_new_share_begins_with_its_bank() -> None:
    """As it was kept by the server before this one."""
    desk = Desk(Arbiter(TIMING, 0), 0)
    desk.set({"a": Terms(100)}, 0, {"a": (Deposit(7, -5),), "nobody": (Deposit(1, 0),)})
    assert desk.account("a", 0).balance == 7
    assert desk.deposits("a") == (Deposit(7, -5),)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_granted_within_the_limit() -> None:
    """Each answer tells what the process may have, the limit, and what all have."""
    desk = Desk(Arbiter(TIMING, 0), 0)
    desk.set({"a": Terms(500, 100), "b": Terms(500)}, 0)
    one, two, b = joined(desk, "a"), joined(desk, "a"), joined(desk, "b")
    assert sent(desk.receive(one, Need(70), 0)) == [(one, Memory(70, 100, 70))]
    assert sent(desk.receive(two, Need(0), 0)) == [(two, Memory(0, 100, 70))]
    assert sent(desk.receive(two, Need(31), 0)) == [(two, Memory(0, 100, 70))]
    assert sent(desk.receive(two, Need(30), 0)) == [(two, Memory(30, 100, 100))]
    desk.leave(one, 0)
    assert sent(desk.receive(two, Need(100), 0)) == [(two, Memory(100, 100, 100))]
    assert sent(desk.receive(b, Need(MOST), 0)) == [(b, Memory(MOST, NO_LIMIT, MOST))]
    other = joined(desk, "b")
    assert sent(desk.receive(other, Need(MOST), 0)) == [(other, Memory(MOST, NO_LIMIT, MOST))], "it fits its field"


def test_a_new_limit_is_told_to_all_who_have_memory() -> None:
    """Nothing is taken from them."""
    desk = Desk(Arbiter(TIMING, 0), 0)
    desk.set({"a": Terms(500)}, 0)
    one, silent = joined(desk, "a"), joined(desk, "a")
    desk.receive(one, Need(70), 0)
    assert sent(desk.set({"a": Terms(500, 50)}, 0)) == [(one, Memory(70, 50, 70))]
    assert not silent.holds
    assert sent(desk.receive(one, Need(71), 0)) == [(one, Memory(70, 50, 70))]


def test_a_removed_share_gets_no_more_memory() -> None:
    """While it drains it is answered."""
    desk = a_desk(a=500)
    a = joined(desk, "a")
    desk.receive(a, Ask(), 0)
    desk.receive(a, Need(5), 0)
    desk.set({}, 0)
    assert sent(desk.receive(a, Need(9), 0)) == [(a, Memory(5, NO_LIMIT, 5))]


# --- whatever happens -------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Process:
    """A client as the gate is one: what it sends and what it is sent is under way for some time."""

    client: Client
    to: deque[FromClient] = field(default_factory=deque)
    fro: deque[FromServer | None] = field(default_factory=deque)
    """None: the connection is closed."""
    given_back: int = 0
    number: int = 0
    """Of the lease that it believes to have; 0: none."""
    work: bool = False
    asked_back: bool = False
    alive: bool = True

    def begin(self) -> None:
        """It has work."""
        if not self.work:
            self.work = True
            if not self.number:
                self.to.append(Ask(3 * MS))

    def end(self, want: int | None) -> None:
        """It gives back what it has, or takes back what it asked for."""
        self.work = want is not None
        self.to.append(Done(want, 0, self.number))
        self.given_back = max(self.given_back, self.number)
        self.number = 0
        self.asked_back = False

    def hear(self) -> None:
        """The next message of the server."""
        message = self.fro.popleft()
        if message is None:
            self.alive, self.number = False, 0
        elif isinstance(message, Grant) and message.number > self.given_back:
            assert self.number in (0, message.number), "a lease is given once"
            self.number = message.number
        elif isinstance(message, Revoke) and message.number > self.given_back:
            assert self.number == message.number, "what is asked back was given before"
            self.asked_back = True


class World:
    """A desk and processes, of which many connect, end, die, and some never answer."""

    def __init__(self) -> None:
        self.now = 0
        self.desk = Desk(Arbiter(TIMING, 0), 0)
        self.terms: dict[str, int] = {}
        self.processes: list[Process] = []

    def do(self, kind: int, which: int, amount: int) -> None:
        living = [one for one in self.processes if one.alive]
        one = living[which % len(living)] if living else None
        if kind == 0 and self.terms and len(living) < 8:
            self.join(sorted(self.terms)[which % len(self.terms)])
        elif kind == 1:
            self.resize("abcd"[which % 4], amount)
        elif kind == 2:
            self.pass_time(amount)
        elif one is None:
            return
        elif kind == 3:
            one.begin()
        elif kind == 4 and (one.number or one.work):
            one.end(None if amount % 2 else amount)
        elif kind == 5 and one.asked_back:
            one.end(amount % 3 or None)
        elif kind in (6, 7, 8) and one.to:
            self.act(self.desk.receive(one.client, one.to.popleft(), self.now))
        elif kind in (9, 10, 11) and one.fro:
            one.hear()
        elif kind == 12 and amount % 4 == 0:
            self.kill(one)
        self.check()

    def join(self, name: str) -> Process:
        client, out = self.desk.join(name, self.now)
        one = Process(client)
        self.processes.append(one)
        self.act(out)
        return one

    def kill(self, one: Process) -> None:
        one.alive, one.number = False, 0
        self.act(self.desk.leave(one.client, self.now))

    def resize(self, name: str, amount: int) -> None:
        milli = [0, 1, 100, 250, 500, 1000][amount % 6]
        after = {other: one for other, one in self.terms.items() if other != name} | ({name: milli} if milli else {})
        if sum(after.values()) <= 1000:
            self.terms = after
            self.act(self.desk.set({other: Terms(one) for other, one in after.items()}, self.now))

    def pass_time(self, amount: int) -> None:
        end = self.now + amount
        while (wake := self.desk.wake) is not None and wake <= end:
            self.now = max(self.now, wake)
            self.act(self.desk.tick(self.now))
        self.now = end

    def act(self, out: list[Out]) -> None:
        by_client = {one.client: one for one in self.processes}
        for item in out:
            match item:
                case Send(client, message):
                    by_client[client].fro.append(message)
                case Close(client):
                    by_client[client].fro.append(None)

    def check(self) -> None:
        """Of all programs that believe to have a lease, all are of one share: it may be one that only drains."""
        believing = {one.client.share for one in self.processes if one.number}
        assert len(believing) <= 1, [(one.client.share.key, one.number) for one in self.processes]
        for share in self.desk.shares.values():
            assert share.holding == sum(client.holds for client in share.clients)
            if share.holding:
                assert self.desk.holder is share

    def settle(self) -> None:
        """Everything that is under way arrives, and everybody answers."""
        for _ in range(10_000):
            busy = False
            for one in [one for one in self.processes if one.alive]:
                while one.to or one.fro:
                    busy = True
                    if one.fro:
                        one.hear()
                    elif one.to:
                        self.act(self.desk.receive(one.client, one.to.popleft(), self.now))
                    self.check()
                if one.alive and one.asked_back:
                    busy = True
                    one.end(5 * MS if one.work else None)
            if not busy:
                return
        raise AssertionError("messages without end")


events = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30), st.integers(0, 30_000)), max_size=120)


@settings(max_examples=400)
@given(events)
def test_two_shares_never_have_the_gpu(happens: list[tuple[int, int, int]]) -> None:
    """However messages cross, shares change and processes die; and afterwards everybody with work comes to its turn."""
    world = World()
    world.resize("a", 3)
    world.resize("b", 3)
    for name in "aabb":
        world.join(name)
    for event in happens:
        world.do(*event)
    world.settle()
    served: set[Process] = set()
    living = [one for one in world.processes if one.alive]
    for one in living:
        one.begin()
    for _ in range(300):
        world.settle()
        served |= {one for one in living if one.number}
        world.pass_time(5 * MS)
    assert served == {one for one in living if one.alive}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4), st.integers(0, MOST - 1))))
def test_whatever_a_client_sends(happens: list[tuple[int, int, int, int]]) -> None:
    """Nonsense is refused, or is of no use: the other share has its turn when the grace is over, at the latest."""
    desk = a_desk(a=500, b=500)
    bad, good = joined(desk, "a"), joined(desk, "b")
    now = 0
    for kind, small, number, large in happens:
        now += small * MS
        kinds: list[FromClient] = [Ask(large), Done(large, large, number), Done(None, 0, number), Need(large)]
        try:
            desk.receive(bad, kinds[kind], now)
        except Malformed:
            desk.leave(bad, now)
            bad, _ = desk.join("a", now)
        assert not (bad.holds and good.holds)
    desk.receive(good, Ask(), now)
    while not good.holds and (wake := desk.wake) is not None:
        now = wake
        if any(isinstance(one, Late) for one in desk.tick(now)):
            desk.leave(bad, now)
    assert good.holds
