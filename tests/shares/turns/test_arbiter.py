"""The order of turns: each rule by a case, and what must hold whatever happens."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_orders import TurnGrant, TurnOrder, TurnOverdue, TurnRevoke

TIMING = Timing()
MS = 1_000


def an_arbiter(timing: Timing = TIMING, **milli: int) -> Arbiter:
    arbiter = Arbiter(timing, 0)
    assert arbiter.put(milli, 0) == ()
    return arbiter


@dataclass(frozen=True)
class _Granted:
    """An order of any turn."""

    share: str
    until: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnGrant) and (other.share, other.until) == (self.share, self.until)


@dataclass(frozen=True)
class _Revoked:
    """An order of any turn."""

    share: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnRevoke) and other.share == self.share


def granted(share: str, until: int) -> Any:
    """A Grant, whatever the number of its turn."""
    return _Granted(share, until)


def revoked(share: str) -> Any:
    """A Revoke, whatever the number of its turn."""
    return _Revoked(share)


def saved(arbiter: Arbiter, share: str, milli: int, amount: int) -> None:
    """Add a share that has saved time."""
    arbiter.put({share: milli}, 0, deposits={share: (Deposit(amount, 0),)})


def passes(arbiter: Arbiter, moment: int) -> None:
    """Pass the time up to then without any event."""
    while arbiter.wake is not None and arbiter.wake < moment:
        arbiter.tick(arbiter.wake)


def test_gpu_without_demand_never_wakes() -> None:
    """A GPU that no share wants needs no tick, for however long."""
    arbiter = an_arbiter(a=500)
    assert (arbiter.wake, arbiter.holder, arbiter.tick(10**12)) == (None, None, ())


def test_turn_of_a_share_alone_is_extended() -> None:
    """A turn is extended before it ends, so that the program does not notice, and costs no more than the slice."""
    arbiter = an_arbiter(a=100, b=100)
    assert arbiter.ask("a", 0) == (granted("a", 20 * MS),)
    assert arbiter.wake == 15 * MS
    assert arbiter.tick(15 * MS) == (granted("a", 35 * MS),)
    assert arbiter.tick(30 * MS) == (granted("a", 50 * MS),)
    assert arbiter.release("a", 40 * MS) == ()
    found = arbiter.account("a", 40 * MS)
    assert (found.guaranteed, found.idle, found.borrowed) == (10 * MS, 30 * MS, 0)


def test_resting_gpu_is_not_granted() -> None:
    """Shares that ask for a resting GPU wait until the rest is over, and it wakes up for them."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.rest(200 * MS)
    assert (arbiter.rests(199 * MS), arbiter.rests(200 * MS), arbiter.wake) == (True, False, None)
    assert arbiter.ask("a", 30 * MS) == ()
    assert arbiter.wake == 200 * MS
    assert arbiter.tick(199 * MS) == ()
    arbiter.account("a", 201 * MS)  # a reading of the books gives nothing to anybody, and is not in the way
    assert arbiter.wake == 200 * MS
    assert arbiter.tick(201 * MS) == (granted("a", 221 * MS),)


def test_share_that_holds_a_resting_gpu_begins_its_turn() -> None:
    """It is charged from then on, and the next one waits until it has given back and the rest is over."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.rest(200 * MS)
    arbiter.ask("b", 0)
    (first,) = arbiter.hold("a", 10 * MS)
    assert (first, arbiter.holder) == (granted("a", 30 * MS), "a")
    assert arbiter.hold("b", 10 * MS) == ()
    assert arbiter.release("a", 40 * MS) == ()
    assert arbiter.account("a", 40 * MS).guaranteed == 30 * MS
    assert arbiter.wake == 200 * MS
    assert arbiter.tick(200 * MS) == (granted("b", 220 * MS),)
    arbiter.release("b", 210 * MS)
    assert arbiter.hold("a", 210 * MS) == (), "the rest is over: nobody has it of whom nothing is known"


def test_share_that_may_drain_is_not_overdue() -> None:
    """The queue of a whole GPU's program was not limited; the next turn has the usual grace again."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.drains()
    arbiter.ask("a", 0)
    arbiter.drains()
    arbiter.ask("b", 0)
    assert arbiter.tick(20 * MS) == (revoked("a"),)
    assert (arbiter.wake, arbiter.tick(60_019 * MS)) == (60_020 * MS, ())
    assert arbiter.tick(60_020 * MS) == (TurnOverdue("a", 20 * MS),)
    arbiter.release("a", 60_030 * MS, want=0)
    assert arbiter.holder == "b"
    assert arbiter.remove("b", 60_050 * MS) == (revoked("b"),)
    assert arbiter.wake == 60_100 * MS


def test_equals_take_turns_of_one_lease() -> None:
    """Neither is revoked before its lease ends, and the GPU is never granted before it is given back."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.ask("a", 0)
    assert arbiter.ask("b", 1 * MS) == ()
    assert arbiter.wake == 20 * MS
    assert arbiter.tick(20 * MS) == (revoked("a"),)
    assert arbiter.tick(20 * MS) == ()
    assert arbiter.release("a", 20 * MS, want=0) == (granted("b", 40 * MS),)
    assert arbiter.tick(40 * MS) == (revoked("b"),)
    assert arbiter.release("b", 43 * MS, want=0) == (granted("a", 63 * MS),)
    assert arbiter.tick(63 * MS) == (revoked("a"),)
    assert arbiter.release("a", 63 * MS, want=0) == (granted("b", 83 * MS),)
    assert arbiter.tick(83 * MS) == (revoked("b"),)  # the three that it was late are its own loss
    assert arbiter.release("b", 83 * MS, want=0) == (granted("a", 93 * MS),)


def test_idle_time_is_handed_back_at_the_next_claim() -> None:
    """A share without slice runs on while no other share wants the GPU, and stops when one with a claim does."""
    arbiter = an_arbiter(a=100, b=100)
    arbiter.ask("a", 0)
    arbiter.tick(15 * MS)  # beyond its 10 ms
    assert arbiter.ask("b", 16 * MS) == (revoked("a"),)
    assert arbiter.release("a", 17 * MS, want=0) == (granted("b", 27 * MS),)
    found = arbiter.account("a", 17 * MS)
    assert (found.guaranteed, found.idle, found.overrun) == (10 * MS, 6 * MS, 1 * MS)


def test_idle_time_goes_round() -> None:
    """Two shares without a claim have a lease each."""
    arbiter = an_arbiter(a=10, b=10)
    arbiter.ask("a", 0)
    arbiter.ask("b", 0)
    turns = []
    now = 0
    while now < 90 * MS:
        assert arbiter.wake is not None
        now = arbiter.wake
        for order in arbiter.tick(now):
            if isinstance(order, TurnRevoke):
                turns.append(order.share)
                arbiter.release(order.share, now, want=0)
    assert turns[:4] == ["a", "b", "a", "b"]


def test_share_with_savings_comes_first() -> None:
    """A hog leaves after the shortest turn, and what it loses stays its own."""
    arbiter = an_arbiter(hog=500)
    saved(arbiter, "notebook", 100, 15 * MS)
    arbiter.ask("hog", 0)
    assert arbiter.ask("notebook", 1 * MS) == ()
    assert arbiter.wake == 2 * MS
    assert arbiter.tick(2 * MS) == (revoked("hog"),)
    assert arbiter.release("hog", 3 * MS, want=0) == (granted("notebook", 23 * MS),)
    arbiter.tick(23 * MS)
    assert arbiter.account("notebook", 23 * MS).borrowed == 10 * MS
    assert arbiter.tick(27 * MS) == ()
    assert arbiter.tick(28 * MS) == (revoked("notebook"),)  # slice and bank are used up: 10 + 15
    assert arbiter.release("notebook", 28 * MS, want=0) == (granted("hog", 48 * MS),)


def test_new_burst_comes_before_other_savers() -> None:
    """A burst comes before a hog that has savings; two that have had much take turns of a lease."""
    arbiter = an_arbiter()
    for name in ("hog", "other", "notebook"):
        saved(arbiter, name, 300, 500 * MS)
    arbiter.ask("hog", 0)
    for moment in (15, 30, 45, 60):
        arbiter.tick(moment * MS)
    assert arbiter.ask("notebook", 61 * MS) == (revoked("hog"),)
    assert arbiter.release("hog", 62 * MS, want=0) == (granted("notebook", 82 * MS),)
    assert arbiter.release("notebook", 64 * MS) == (granted("hog", 84 * MS),)
    assert arbiter.ask("other", 65 * MS) == ()
    assert arbiter.tick(66 * MS) == (revoked("hog"),)
    assert arbiter.release("hog", 66 * MS, want=0) == (granted("other", 86 * MS),)
    assert arbiter.tick(86 * MS) == (granted("other", 106 * MS),)  # 62 ms and 20 are two steps apart
    assert arbiter.tick(106 * MS) == (revoked("other"),)  # 62 and 40 are one


def test_a_short_pause_begins_no_burst() -> None:
    """A pause counts if it is as long as what came before, at most a period: training that waits goes on."""
    for pause, order in ((99, ()), (100, (revoked("hog"),))):
        arbiter = an_arbiter()
        for name in ("hog", "other"):
            saved(arbiter, name, 300, 500 * MS)
        arbiter.ask("other", 0)
        passes(arbiter, 200 * MS)
        assert arbiter.release("other", 200 * MS) == ()
        arbiter.ask("hog", 200 * MS)
        passes(arbiter, (200 + pause) * MS)
        assert arbiter.ask("other", (200 + pause) * MS) == order


def test_withdrawn_demand_begins_no_burst() -> None:
    """A share that asks, gives up and asks again begins no new burst."""
    arbiter = an_arbiter()
    for name in ("hog", "other"):
        saved(arbiter, name, 300, 500 * MS)
    arbiter.ask("other", 0)
    arbiter.tick(15 * MS)
    arbiter.release("other", 30 * MS)
    arbiter.ask("hog", 30 * MS)
    arbiter.ask("other", 31 * MS)
    arbiter.release("other", 49 * MS)
    assert arbiter.ask("other", 53 * MS) == ()


def test_savings_that_expire_give_no_right() -> None:
    """The rest of them is lost when they do, in the middle of a turn, too."""
    arbiter = an_arbiter(Timing(expiry=100 * MS, lease=100 * MS), hog=500)
    saved(arbiter, "notebook", 100, 80 * MS)
    arbiter.ask("notebook", 40 * MS)
    arbiter.ask("hog", 41 * MS)
    arbiter.tick(100 * MS)
    found = arbiter.account("notebook", 100 * MS)
    assert (found.guaranteed, found.borrowed, found.lost, found.balance) == (10 * MS, 50 * MS, 30 * MS, 0)


def test_a_short_wish_is_a_short_turn() -> None:
    """A share that says for how long it needs the GPU is asked for it then, unless it gives it back by itself."""
    arbiter = an_arbiter(a=500, b=500)
    assert arbiter.ask("a", 0, want=3 * MS) == (granted("a", 3 * MS),)
    arbiter.ask("b", 0)
    assert arbiter.tick(3 * MS) == (revoked("a"),)


def test_overdue_share_is_reported_once_and_pays() -> None:
    """It is reported after the grace; the others are not served before it is over, and get their part back later."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.ask("a", 0)
    arbiter.ask("b", 0)
    assert arbiter.tick(20 * MS) == (revoked("a"),)
    assert arbiter.wake == 70 * MS
    assert arbiter.tick(70 * MS) == (TurnOverdue("a", 20 * MS),)
    assert arbiter.tick(500 * MS) == ()
    assert arbiter.wake is None
    assert arbiter.holder == "a"
    assert arbiter.release("a", 500 * MS, want=0) == (granted("b", 520 * MS),)
    assert arbiter.account("a", 500 * MS).slice < -100 * MS


def test_a_share_that_is_taken_away_while_it_runs() -> None:
    """It is asked for the GPU, and no other gets it before; its milli are free at once, its name can come again."""
    arbiter = an_arbiter(a=600, b=400)
    arbiter.ask("a", 0)
    arbiter.ask("b", 0)
    assert arbiter.remove("a", 1 * MS) == (revoked("a"),)
    assert arbiter.put({"a": 600}, 1 * MS) == ()
    assert arbiter.holder == "a"
    assert arbiter.release("a", 2 * MS, want=0) == (granted("b", 22 * MS),)
    assert arbiter.release("a", 3 * MS) == ()
    assert arbiter.remove("nobody", 3 * MS) == ()


def test_share_that_withdraws_while_it_waits_is_not_served() -> None:
    """A waiting share that wants no more gets no turn: its program may be gone."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.ask("a", 0)
    arbiter.ask("b", 0)
    assert arbiter.release("b", 1 * MS) == ()
    assert arbiter.release("a", 2 * MS) == ()
    assert arbiter.holder is None


def test_a_gpu_is_never_given_away_more_than_once() -> None:
    """Such a change is refused whole; shares that change together may swap."""
    arbiter = an_arbiter(a=600, b=400)
    for wrong in ({"c": 1}, {"a": 601}, {"b": -1}):
        with pytest.raises(ValueError, match="together at most 1000"):
            arbiter.put(wrong, 0)
    assert arbiter.milli == 1000
    arbiter.put({"a": 400, "b": 600}, 0)
    assert arbiter.milli == 1000


def test_resized_while_it_runs() -> None:
    """A share earns the new amount from the next period on; its bank is that of what it may save."""
    arbiter = an_arbiter(Timing(savings=2), a=100)
    arbiter.tick(1_000 * MS)
    assert arbiter.account("a", 1_000 * MS).balance == 20 * MS
    arbiter.put({"a": 400}, 1_000 * MS, savings={"a": 100})
    assert arbiter.account("a", 1_100 * MS).balance == 20 * MS
    assert arbiter.account("a", 1_100 * MS).slice == 40 * MS
    arbiter.put({"a": 50}, 1_100 * MS)
    assert arbiter.account("a", 1_100 * MS).balance == 10 * MS
    assert arbiter.deposits("a") == (Deposit(10 * MS, 1_100 * MS),)


def test_reported_work_is_believed_in_a_small_part() -> None:
    """A liar that says that the GPU did nothing in its turns gains an eighth of them at most."""
    arbiter = an_arbiter(a=500, b=500)
    arbiter.ask("a", 0)
    arbiter.ask("b", 0)
    arbiter.release("a", 4 * MS, want=0, work=0)
    assert arbiter.account("a", 4 * MS).guaranteed == 3_500
    arbiter.release("b", 24 * MS, want=0, work=0)
    assert arbiter.account("b", 24 * MS).guaranteed == 19 * MS  # never more than a change of hands can cost
    assert arbiter.unpaid == 1_500
    assert [arbiter.account(share, 100 * MS).switching for share in ("a", "b")] == [750, 750]


def test_refund_of_a_switch_follows_the_neighbours() -> None:
    """The lower one in the middle of several counts; a share that reports nothing gets nothing back."""
    arbiter, now = an_arbiter(a=250, b=250, c=250, d=250), 0
    for share in "abcd":
        arbiter.ask(share, 0)
    costs = {"a": 20 * MS, "b": 300, "c": 20 * MS, "d": None}
    refunds: dict[str, list[int]] = {share: [] for share in costs}
    for _ in range(200):
        share = arbiter.holder or ""
        now += 20 * MS
        cost, unpaid = costs[share], arbiter.unpaid
        arbiter.release(share, now, want=0, work=None if cost is None else 20 * MS - cost)
        refunds[share].append(max(0, arbiter.unpaid - unpaid))
    assert sum(refunds["d"]) == 0
    for liar in "ac":
        assert sum(refunds[liar][-20:]) <= 20 * 330 + MS


def test_a_new_share_earns_from_its_first_moment_on() -> None:
    """It gets its part of the rest of the period, not a whole slice."""
    arbiter = an_arbiter(a=500)
    arbiter.put({"b": 500}, 75 * MS)
    assert [arbiter.account(share, 75 * MS).slice for share in ("a", "b")] == [50 * MS, 12_500]


# --- whatever happens -------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("ask", "ask", "done", "more", "tick", "wake", "put", "remove", "swap")),
        st.sampled_from(NAMES),
        st.one_of(st.integers(0, 5 * MS), st.integers(0, 400 * MS)),
        st.integers(1, 700),
    ),
    max_size=60,
)


@dataclass
class Checked:
    """An arbiter, and what an observer that only sees its orders knows of it."""

    arbiter: Arbiter
    now: int = 0
    holder: str | None = None
    asked: bool = False
    turn: int = 0
    held: int = 0
    """Time for which any share had the GPU."""
    wants: set[str] = field(default_factory=set)
    gone: int = 0
    """Charged to shares that were taken away."""

    def follow(self, orders: tuple[TurnOrder, ...]) -> None:
        for order in orders:
            if isinstance(order, TurnGrant):
                assert self.holder in (None, order.share), "two have the GPU"
                assert order.turn == self.turn if self.holder else order.turn > self.turn
                self.turn = order.turn
                assert order.share in self.wants
                assert not self.asked
                assert order.until >= self.now
                self.holder = order.share
            elif isinstance(order, TurnRevoke):
                assert (self.holder, self.turn) == (order.share, order.turn)
                assert not self.asked
                self.asked = True
            else:
                assert self.holder == order.share
                assert self.asked
                assert self.now >= order.since + TIMING.grace

    def give_back(self, share: str, want: int | None, work: int) -> None:
        if self.holder == share:
            self.holder, self.asked = None, False
        if want is None:
            self.wants.discard(share)
        self.follow(self.arbiter.release(share, self.now, want, work))


def charged(arbiter: Arbiter, share: str, now: int) -> int:
    found = arbiter.account(share, now)
    return found.guaranteed + found.borrowed + found.idle + found.overrun + found.switching


@given(EVENTS)
def test_invariants_hold_after_every_event(events: list[tuple[str, str, int, int]]) -> None:
    """There is one holder at most, all time is charged once, and the GPU is used while any share wants it."""
    arbiter = Arbiter(TIMING, 0)
    world, milli = Checked(arbiter), dict[str, int]()
    for what, name, pause, number in events:
        world.held += pause if world.holder else 0
        world.now += pause
        now = world.now
        if what == "put" or (what in ("ask", "swap") and name not in milli):
            if sum((milli | {name: number}).values()) <= 1000:
                milli[name] = number
                world.follow(arbiter.put({name: number}, now))
        elif what == "ask":
            world.wants.add(name)
            world.follow(arbiter.ask(name, now, number))
        elif what in ("done", "more"):
            want = number if what == "more" and name in world.wants and name in milli else None
            world.give_back(name, want, pause // 2)
        elif what == "swap":
            one, other = name, max(milli)
            changed = {one: milli[other], other: milli[one]}
            milli |= changed
            world.follow(arbiter.put(changed, now))
        elif what == "remove" and name in milli:
            world.gone += charged(arbiter, name, now)
            del milli[name]
            world.wants.discard(name)
            leaving = world.holder == name
            world.follow(arbiter.remove(name, now))
            if leaving:
                assert world.asked
                before = arbiter.holder
                assert before == name
                world.give_back(name, None, 10**9)
        elif what == "wake" and arbiter.wake is not None:
            world.held += max(0, arbiter.wake - now)
            world.now = max(now, arbiter.wake)
            world.follow(arbiter.tick(world.now))
        else:
            world.follow(arbiter.tick(now))
        assert arbiter.holder == world.holder
        assert arbiter.milli == sum(milli.values()) <= 1000
        assert world.holder is not None or not world.wants
        accounts = {share: arbiter.account(share, world.now) for share in milli}
        for share, found in accounts.items():
            assert 0 <= found.balance <= TIMING.cap(milli[share])
            assert found.throttled <= found.waited <= world.now
        total = sum(charged(arbiter, share, world.now) for share in milli)
        assert total + world.gone + arbiter.unpaid == world.held <= world.now
