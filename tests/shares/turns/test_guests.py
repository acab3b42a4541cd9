"""Guests: they run only while no other share has work, and these feel a lease of theirs at most."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lib.simulated_gpu import SimulatedProgram, Simulation, bursty, hog
from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Grant, Need, Revoke
from jupyter_gpu_node.shares.rules.turns.actions import Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.books import GpuBooks
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.guests import LATE, LONGEST_PAUSE, PAUSE, charge, counted
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.ledger import Debt, Ledger
from jupyter_gpu_node.shares.rules.turns.order import GUEST_LEASE, TurnOrdering
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_orders import TurnGrant, TurnOrder, TurnRevoke
from jupyter_gpu_node.shares.rules.turns.turn_state import Turn, TurnShare

TIMING = Timing()
MS = 1_000
OWNERS = {"ann": 700, "bob": 300}

_amounts = st.sampled_from([0, 1, 100, 900, 4_000, 5_001, 20_000, 130_000])
_steps = st.lists(
    st.tuples(st.sampled_from(["ask", "release", "again", "charge"]), st.sampled_from([*OWNERS, "eve"]), _amounts),
    max_size=30,
)
_pauses = st.sampled_from([0, 900, 4_000, 20_000, 90_000])
_lates = st.sampled_from([0, 2_000, LATE, LATE + 1, 10_000, 400_000])


@dataclass
class World:
    """Two owners and a guest, whose programs keep to what the gate lets through, and say what they like."""

    arbiter: Arbiter = field(default_factory=lambda: Arbiter(TIMING, 0))
    now: int = 0
    asked: dict[str, int] = field(default_factory=dict)
    """Owners that wait, and since when the guest alone keeps them from the GPU."""
    until: int = 0
    """End of the guest's turn."""
    longest: int = 0
    """Longest time for which the guest alone kept an owner from the GPU."""

    def __post_init__(self) -> None:
        self.follow(self.arbiter.put({**OWNERS, "eve": 0}, 0))

    def follow(self, orders: Iterable[TurnOrder]) -> None:
        """Check orders of the arbiter."""
        for order in orders:
            if isinstance(order, TurnGrant):
                self._granted(order)
        if self.arbiter.holder == "eve":
            waiting = [name for name in OWNERS if self.arbiter.shares[name].want is not None]
            for name in waiting:
                self.asked.setdefault(name, self.now)

    def _granted(self, order: TurnGrant) -> None:
        waiting = [name for name in OWNERS if self.arbiter.shares[name].want is not None]
        if order.share == "eve":
            assert not waiting, "a guest runs while an owner waits"
            assert order.until <= self.now + GUEST_LEASE
            self.until = order.until
        else:
            for since in self.asked.values():
                self.longest = max(self.longest, self.now - since)
            self.asked = {}

    def at(self, moment: int) -> None:
        """Let the time pass up to ``moment``: the guest's programs end their turn when it is over, at the latest."""
        while True:
            turn_ends = self.until if self.arbiter.holder == "eve" else None
            times = [time for time in (self.arbiter.wake, turn_ends) if time is not None and time <= moment]
            if not times:
                break
            self.now = max(self.now, min(times))
            self.follow(self.arbiter.tick(self.now))
            if self.arbiter.holder == "eve" and self.now >= self.until:
                self.follow(self.arbiter.release("eve", self.now, 0))
        self.now = moment


@given(_steps)
def test_an_owner_waits_for_a_guest_no_longer_than_its_lease(steps: list[tuple[str, str, int]]) -> None:
    """The guest may want, give back and claim anything; it never runs while an owner waits."""
    world = World()
    for step, name, amount in steps:
        world.at(world.now + amount)
        if step == "ask":
            orders = world.arbiter.ask(name, world.now, amount)
        elif step == "charge":
            orders = world.arbiter.charge(name, world.now, amount)
        else:
            orders = world.arbiter.release(name, world.now, 0 if step == "again" else None, amount)
            if step == "release":
                world.asked.pop(name, None)
        world.follow(orders)
    world.at(world.now + TIMING.period)
    assert world.longest <= GUEST_LEASE


@given(_steps)
def test_a_guest_that_goes_at_once_changes_nothing_for_owners(steps: list[tuple[str, str, int]]) -> None:
    """Their turns, accounts and banks are the same to the microsecond as without it."""
    with_guest, without = Arbiter(TIMING, 0), Arbiter(TIMING, 0)
    with_guest.put({**OWNERS, "eve": 0}, 0)
    without.put(OWNERS, 0)
    now = 0

    def settle(orders: tuple[TurnOrder, ...]) -> list[TurnOrder]:
        """Give the GPU back for the guest as soon as it is asked, and return the orders about owners."""
        found: list[TurnOrder] = []
        for order in orders:
            if order.share != "eve":
                found.append(order)
            elif isinstance(order, TurnRevoke):
                found += settle(with_guest.release("eve", now, 0))
        return found

    settle(with_guest.ask("eve", 0, 0))
    for step, name, amount in steps:
        now += amount
        if name == "eve":
            continue
        both = []
        for arbiter in (with_guest, without):
            if step == "ask":
                orders = arbiter.ask(name, now, amount)
            elif step == "charge":
                orders = arbiter.charge(name, now, amount)
            else:
                orders = arbiter.release(name, now, 0 if step == "again" else None, amount)
            both.append(orders)
        ours, theirs = settle(both[0]), both[1]
        assert [_plain(one) for one in ours] == [_plain(one) for one in theirs]
        for owner in OWNERS:
            assert with_guest.account(owner, now) == without.account(owner, now)
            assert with_guest.deposits(owner) == without.deposits(owner)


def _plain(order: TurnOrder) -> tuple[object, ...]:
    """Return an order without the number of its turn, as the guest has turns, too."""
    return type(order), order.share, getattr(order, "until", 0)


@dataclass
class LateWorld:
    """Two owners, and a guest that always has work and gives the GPU back late, by ``lates`` in turn."""

    lates: list[int]
    arbiter: Arbiter = field(default_factory=lambda: Arbiter(TIMING, 0))
    now: int = 0
    turn: int = 0
    """Number of the guest's last turn."""
    asked: int | None = None
    """Time when the guest was asked for the GPU."""
    rest: int = 0
    """Time without work of owners since the guest's last turn."""
    late: int = 0
    """Time for which owners waited in that turn after it was late."""

    def follow(self, orders: Iterable[TurnOrder]) -> None:
        """Check that the guest has paused for long enough, whenever it is given the GPU."""
        for order in orders:
            if isinstance(order, TurnRevoke) and order.share == "eve":
                self.asked = self.now
            elif isinstance(order, TurnGrant) and order.share == "eve" and order.turn != self.turn:
                assert self.rest >= min(PAUSE * self.late, LONGEST_PAUSE)
                self.turn, self.late = order.turn, 0

    def pass_to(self, moment: int) -> None:
        """Let the time pass."""
        while self.now < moment:
            gives = [] if self.asked is None else [self.asked + self.lates[self.turn % len(self.lates)]]
            wakes = [] if self.arbiter.wake is None else [max(self.now + 1, self.arbiter.wake)]
            before, self.now = self.now, max(self.now, min([moment, *gives, *wakes]))
            self._count(before)
            if gives and self.now >= gives[0]:
                self.asked, self.rest = None, 0
                self.follow(self.arbiter.release("eve", self.now, 0))
            else:
                self.follow(self.arbiter.tick(self.now))

    def _count(self, before: int) -> None:
        if all(self.arbiter.shares[name].want is None for name in OWNERS):
            self.rest += self.now - before
        elif self.asked is not None:
            self.late += max(0, self.now - max(before, self.asked + LATE))


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "release"]), st.sampled_from([*OWNERS]), _pauses), max_size=12),
    st.lists(_lates, min_size=1, max_size=4),
)
def test_a_late_guest_waits_until_owners_have_rested_for_many_times_as_long(
    steps: list[tuple[str, str, int]], lates: list[int]
) -> None:
    """However late it is, and whatever owners do: from turn to turn, that is the least."""
    world = LateWorld(lates)
    world.follow(world.arbiter.put({**OWNERS, "eve": 0}, 0))
    world.follow(world.arbiter.ask("eve", 0))
    for step, name, amount in steps:
        world.pass_to(world.now + amount)
        act = world.arbiter.ask if step == "ask" else world.arbiter.release
        world.follow(act(name, world.now))
    for name in OWNERS:
        world.follow(world.arbiter.release(name, world.now))
    while world.arbiter.holder != "eve":
        assert world.arbiter.wake is not None, "it has the GPU again in the end"
        world.pass_to(world.arbiter.wake)


@settings(max_examples=15)
@given(st.integers(0, 4_000), st.integers(250, 1_000))
def test_second_owner_does_not_wait_for_the_guest_too(gap: int, kernel: int) -> None:
    """The time for which the first one waited for the guest comes off its first turn, where that is cut."""

    def wait(**guest: SimulatedProgram) -> int:
        owners = {
            name: SimulatedProgram(500, [(at, 8 * MS)], 250, silent=True)
            for name, at in (("ann", 1_000 * MS), ("bob", 1_000 * MS + gap))
        }
        return Simulation(owners | guest, TIMING, handover=100).run(1_100 * MS)["bob"].waits[0]

    assert wait(eve=hog(0, 2, kernel, lead=0)) < wait() + 1 * MS


def test_time_that_a_guest_takes_makes_no_burst_a_longer_one() -> None:
    """An owner that waited for long for a guest is no hog for that; and it keeps the shortest turn."""
    ledger = Ledger(500, TIMING, 50 * MS)
    order = TurnOrdering(TIMING)
    fresh, delayed = TurnShare("ann", ledger), TurnShare("bob", ledger, delayed=3_600_000 * MS)
    assert order.rank(delayed, 0) == order.rank(fresh, 0)
    delayed.had = TIMING.least - 1
    assert order.rank(delayed, 0) == order.rank(fresh, 0)


def test_time_that_owners_waited_for_a_guest_counts_in_whole_steps() -> None:
    """As their turns are checked in these, the next owner would wait for the rest of one."""
    one = TurnShare("ann", Ledger(500, TIMING, 50 * MS))
    found = []
    for delayed in (0, 1, TIMING.least, TIMING.least + 1, 99 * MS):
        one.delayed = delayed
        found.append(counted(one, TIMING))
    assert found == [0, TIMING.least, TIMING.least, 3 * MS, 3 * MS]


def test_time_in_which_a_late_guest_has_the_gpu_is_no_rest() -> None:
    """The owner for which it was asked has gone: its pause begins once it has given the GPU back."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"ann": 1000, "eve": 0}, 0)
    arbiter.ask("eve", 0)
    arbiter.ask("ann", 0)
    arbiter.release("ann", LATE + 10)
    arbiter.release("eve", LATE + 10 * MS, 0)
    assert arbiter.shares["eve"].pause == 10 * PAUSE


def test_pause_of_one_guest_is_not_that_of_another() -> None:
    """A guest that was late waits; another one that comes has done nothing."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"ann": 1000, "eve": 0}, 0)
    arbiter.ask("eve", 0)
    arbiter.ask("ann", 0)
    arbiter.release("eve", LATE + 10, 0)
    assert arbiter.release("ann", 20 * MS) == ()
    assert arbiter.holder is None
    assert arbiter.wake == 20 * MS + 10 * PAUSE
    assert not arbiter.fits("eve", (), 20 * MS, strictly=False)
    arbiter.put({"fay": 0}, 20 * MS)
    assert [order.share for order in arbiter.ask("fay", 20 * MS)] == ["fay"]
    arbiter.release("fay", 20 * MS + 10 * PAUSE - 1)
    assert [order.share for order in arbiter.tick(20 * MS + 10 * PAUSE)] == ["eve"]


def test_owner_that_may_not_run_here_waits_for_no_guest() -> None:
    """A program that must have other GPUs at the same time waits for these: the guest is not late by that."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"ann": 500, "bob": 500, "eve": 0}, 0)
    arbiter.apply_rule(Rule(barred=frozenset({"ann", "eve"})), 0)
    arbiter.ask("ann", 0)
    arbiter.ask("eve", 0)
    assert arbiter.holder is None
    assert arbiter.wake is None
    arbiter.apply_rule(Rule(barred=frozenset({"ann"})), 10 * MS)
    assert arbiter.holder == "eve"
    arbiter.ask("bob", 20 * MS)
    arbiter.release("eve", 20 * MS + LATE, 0)
    assert arbiter.shares["ann"].delayed == 0
    assert arbiter.shares["bob"].delayed == LATE
    assert arbiter.shares["eve"].pause == 0


def test_a_guest_uses_what_is_left_and_owes_nothing() -> None:
    """It earns and saves nothing; what it used while an owner waited is told, and not owed."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"ann": 1000, "eve": 0}, 0)
    arbiter.ask("eve", 0)
    arbiter.ask("ann", 300 * MS)
    arbiter.release("eve", 302 * MS, 0, work=0)
    account = arbiter.account("eve", 302 * MS)
    assert (account.guaranteed, account.borrowed, account.balance, account.slice) == (0, 0, 0, 0)
    assert (account.idle, account.overrun) == (300 * MS, 2 * MS)
    assert arbiter.owes("eve", 302 * MS).owed(302 * MS) == 0
    assert arbiter.account("ann", 302 * MS).switching == 0


def test_what_a_share_owes_fades_once_it_is_a_guest() -> None:
    """A debt of someone who earns nothing would stay for ever."""
    assert Debt(1_000, 0, 0).owed(500_000) == 500


def test_guests_take_turns_with_each_other() -> None:
    """The one that had less of the idle time comes first, for a short lease."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"ann": 1000, "eve": 0, "fay": 0}, 0)
    arbiter.ask("eve", 0)
    assert arbiter.ask("fay", 0) == ()
    assert [type(order) for order in arbiter.tick(GUEST_LEASE)] == [TurnRevoke]
    granted = arbiter.release("eve", GUEST_LEASE, 0)
    assert [order.share for order in granted] == ["fay"]


def test_programs_of_a_guest_are_never_far_ahead() -> None:
    """An owner would wait for all that they had queued; the guest is asked for the GPU as soon as one asks."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"ann": Terms(1), "eve": Terms(0, 1024)}, 0)
    guest, _ = manager.join("eve", 0)
    manager.receive(guest, Need(0, steps=True, ahead=True, single=True), 0)
    (sent,) = manager.receive(guest, Ask(0), 0)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Grant)
    assert sent.message == Grant(GUEST_LEASE, 1, single=True)
    owner, _ = manager.join("ann", 1 * MS)
    (sent,) = manager.receive(owner, Ask(0), 1 * MS)
    assert isinstance(sent, Send)
    assert sent.client is guest
    assert isinstance(sent.message, Revoke)
    answer = manager.receive(guest, Done(None, 0, guest.number), 2 * MS)
    assert [(one.client, one.message) for one in answer if isinstance(one, Send)] == [(owner, Grant(20 * MS, 1))]


def test_old_gate_of_a_guest_gets_a_lease_that_it_knows() -> None:
    """It would take the other for no message, and close the connection."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"eve": Terms(0, 1024)}, 0)
    guest, _ = manager.join("eve", 0)
    manager.receive(guest, Need(0, steps=True, ahead=True), 0)
    (sent,) = manager.receive(guest, Ask(0), 0)
    assert isinstance(sent, Send)
    assert sent.message == Grant(GUEST_LEASE, 1)


def test_books_of_a_guest_are_outside_of_co_adjustment() -> None:
    """It earns nothing by time that others do not use, and its user sees a thousandth."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"ann": Terms(1000 - 1), "eve": Terms(0, 1024)}, 0)
    books = GpuBooks(Elastic(), 0)
    guest, _ = manager.join("eve", 0)
    manager.receive(guest, Ask(0), 0)
    assert set(books.end_period(manager, TIMING.period)) == {"ann"}
    assert books.resume(manager, {}) == {}
    shown = books.file(manager, "GPU-1", "eve", TIMING.period, 0).share
    assert (shown.allocated, shown.effective, shown.cap, shown.memory_limit) == (1, 1, 0, 1024)


def test_owner_sees_what_a_guest_has() -> None:
    """Its part of the last period, and its memory; nothing while there is no guest, and the guest itself nothing."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"ann": Terms(1000, 4096)}, 0)
    books = GpuBooks(None, 0)
    assert books.share(manager, "GPU-1", "ann", 0).guest is None
    manager.set({"ann": Terms(1000, 4096), "eve": Terms(0, 1024)}, 0)
    assert books.share(manager, "GPU-1", "ann", 0).guest == (0, 0)
    guest, _ = manager.join("eve", 0)
    manager.receive(guest, Need(70), 0)
    manager.receive(guest, Ask(0), 0)
    manager.receive(guest, Done(None, 0, guest.number), TIMING.period // 4)
    books.end_period(manager, TIMING.period)
    assert books.share(manager, "GPU-1", "ann", TIMING.period).guest == (0.25, 70)
    assert books.share(manager, "GPU-1", "eve", TIMING.period).guest is None
    books.end_period(manager, 2 * TIMING.period)
    assert books.share(manager, "GPU-1", "ann", 2 * TIMING.period).guest == (0, 70)


def test_guest_pays_only_once_it_was_asked() -> None:
    """An owner's wait counts from its begin; without a turn, no guest keeps it waiting."""
    owner, eve = TurnShare("ann", Ledger(1000, TIMING, 0)), TurnShare("eve", Ledger(0, TIMING, 0))
    charge(None, [owner], [owner, eve], 0, 10)
    assert (owner.delayed, eve.pause) == (0, 0)
    turn = Turn(eve, 1, 0)
    charge(turn, [owner], [owner, eve], 0, 2 * LATE)
    assert (owner.delayed, eve.pause) == (2 * LATE, 0)
    turn.asked = 2 * LATE
    charge(turn, [owner], [owner, eve], 2 * LATE, 3 * LATE + 1)
    assert (owner.delayed, eve.pause) == (3 * LATE + 1, PAUSE)


def test_a_share_of_memory_alone_has_what_others_leave() -> None:
    """One machine has no guests: a share of a thousandth takes their place there."""
    owner = bursty(999, range(0, 2_000_000, 100_000), 10_000)
    uses = Simulation({"owner": owner, "alone": hog(1, 2)}, Timing(), handover=100).run(2_000_000)
    idle = 2_000_000 - uses["owner"].work
    assert uses["alone"].work > 0.98 * idle
    assert max(uses["owner"].waits) <= 2 * 1_000 + 200  # two kernels in flight, and two messages
