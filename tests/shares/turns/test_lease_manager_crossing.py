"""The leases of one GPU with clients whose messages cross: what must hold whatever happens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.framing import MOST, Malformed
from jupyter_gpu_node.shares.rules.protocol import (
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Need,
    Revoke,
)
from jupyter_gpu_node.shares.rules.turns.actions import Action, Close, LeaseOverdue, Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.served_share import ShareClient
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

TIMING = Timing()
MS = 1_000


@dataclass(eq=False)
class Process:
    """A client as the gate is one: what it sends and what it is sent is under way for some time."""

    client: ShareClient
    to: deque[FromClient] = field(default_factory=deque)
    fro: deque[FromServer | None] = field(default_factory=deque)
    """None: the connection is closed."""
    given_back: int = 0
    number: int = 0
    """The number of the lease that it believes to have; 0: none."""
    work: bool = False
    asked_back: bool = False
    alive: bool = True
    free_until: int = -1
    """It has the whole GPU from before, and goes on with it until then."""

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
            assert message.once or not self.asked_back, "what was asked back is extended for one launch at most"
            self.number = message.number
            self.free_until = -1
        elif isinstance(message, Revoke) and message.number > self.given_back:
            assert self.number == message.number, "what is asked back was given before"
            self.asked_back = True


class World:
    """A lease manager and processes: many connect, end or die, and some never answer."""

    def __init__(self) -> None:
        self.now = 0
        self.manager = LeaseManager(Arbiter(TIMING, 0), 0)
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
            self.act(self.manager.receive(one.client, one.to.popleft(), self.now))
        elif kind in (9, 10, 11) and one.fro:
            one.hear()
        elif kind == 12 and amount % 4 == 0:
            self.kill(one)
        elif kind == 13 and one.asked_back:
            one.to.append(Ask(0, True, True))
        self.check()

    def join(self, name: str) -> Process:
        client, out = self.manager.join(name, self.now)
        one = Process(client)
        self.processes.append(one)
        self.act(out)
        return one

    def kill(self, one: Process) -> None:
        one.alive, one.number = False, 0
        self.act(self.manager.leave(one.client, self.now))

    def resize(self, name: str, amount: int) -> None:
        milli = [0, 1, 100, 250, 500, 1000][amount % 6]
        after = {other: one for other, one in self.terms.items() if other != name} | ({name: milli} if milli else {})
        if sum(after.values()) <= 1000:
            self.terms = after
            self.act(self.manager.set({other: Terms(one) for other, one in after.items()}, self.now))

    def pass_time(self, amount: int) -> None:
        end = self.now + amount
        while (wake := self.manager.wake) is not None and wake <= end:
            self.now = max(self.now, wake)
            self.act(self.manager.tick(self.now))
        self.now = end

    def act(self, out: list[Action]) -> None:
        by_client = {one.client: one for one in self.processes}
        for item in out:
            match item:
                case Send(client, message):
                    by_client[client].fro.append(message)
                case Close(client):
                    by_client[client].fro.append(None)

    def check(self) -> None:
        """All programs that believe to have a lease are of one share, which may be one that only drains."""
        believing = {one.client.share for one in self.processes if one.number or one.free_until > self.now}
        assert len(believing) <= 1, [(one.client.share.key, one.number) for one in self.processes]
        for share in self.manager.shares.values():
            assert share.holding == sum(client.holds for client in share.clients)
            if share.holding:
                assert self.manager.holder is share

    def settle(self) -> None:
        """Deliver everything that is under way, and have every client answer."""
        for _ in range(10_000):
            busy = False
            for one in [one for one in self.processes if one.alive]:
                while one.to or one.fro:
                    busy = True
                    if one.fro:
                        one.hear()
                    elif one.to:
                        self.act(self.manager.receive(one.client, one.to.popleft(), self.now))
                    self.check()
                if one.alive and one.asked_back:
                    busy = True
                    one.end(5 * MS if one.work else None)
            if not busy:
                return
        raise AssertionError("messages without end")


events = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 30), st.integers(0, 30_000)), max_size=120)


@pytest.mark.uncounted(after=50)
@settings(max_examples=150)
@given(events)
def test_two_shares_never_have_the_gpu(happens: list[tuple[int, int, int]]) -> None:
    """They never do, however messages cross, and in the end every client with work gets its turn."""
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


@settings(max_examples=200)
@given(st.integers(0, 2), st.integers(0, 100 * MS), st.booleans(), events)
def test_client_with_a_whole_gpu_outlives_its_server(
    how_many: int, connects: int, whole: bool, happens: list[tuple[int, int, int]]
) -> None:
    """It goes on until it notices the new one, at most for half of the rest, and never beside another share."""
    world = World()
    if whole:
        world.resize("a", 5)
    else:
        world.resize("a", 3)
        world.resize("b", 3)
        world.join("b").begin()
    world.manager.rest(200 * MS)
    world.pass_time(connects)
    for _ in range(how_many):
        one = world.join("a")
        one.to.append(Ask(0, True))
        one.work, one.free_until = True, connects + 100 * MS
    for event in happens:
        world.do(*event)
    world.settle()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 4), st.integers(0, MOST - 1))))
def test_other_share_gets_its_turn_whatever_a_client_sends(happens: list[tuple[int, int, int, int]]) -> None:
    """Nonsense is refused, or is of no use: the other share has its turn when the grace is over, at the latest."""
    manager = LeaseManager(Arbiter(TIMING, 0), 0)
    manager.set({"a": Terms(500), "b": Terms(500)}, 0)
    (bad, _), (good, _) = manager.join("a", 0), manager.join("b", 0)
    now = 0
    for kind, small, number, large in happens:
        now += small * MS
        kinds: list[FromClient] = [Ask(large), Done(large, large, number), Done(None, 0, number), Need(large)]
        kinds.append(Ask(large, True, True))
        try:
            manager.receive(bad, kinds[kind], now)
        except Malformed:
            manager.leave(bad, now)
            bad, _ = manager.join("a", now)
        assert not (bad.holds and good.holds)
    manager.receive(good, Ask(), now)
    while not good.holds and (wake := manager.wake) is not None:
        now = wake
        if any(isinstance(one, LeaseOverdue) for one in manager.tick(now)):
            manager.leave(bad, now)
    assert good.holds
