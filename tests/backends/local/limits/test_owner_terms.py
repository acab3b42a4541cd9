"""Terms of a machine's pods: each server decides for itself alone, and together they keep to the limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.backends.local.decision import Decided, decision
from jupyter_gpu.backends.local.limits.rules.owner_terms import UserLimits
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.annotations import Attached, Reason
from jupyter_gpu.model.annotations import record as next_request
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.machine_file import HUB, limits_of
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from tests.builders import gpu, wish
from tests.model.limits.test_machine_file import limit, text

MONDAY = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()
LONG_AGO = 0.0


class Machine:
    """Servers that know each other by their records, in simulated time; what is given back is closed at once."""

    def __init__(self, count: int, *limits: dict[str, Any]) -> None:
        self.gpus = tuple(gpu(index) for index in range(count))
        self.records: dict[str, Record] = {}
        self.users: dict[str, str] = {}
        self.busy: dict[str, frozenset[str]] = {}
        self.resting: frozenset[str] = frozenset()
        self.now = MONDAY
        self.used: dict[str, int] = {}
        """Milli-GPU-seconds of today, by user."""
        self.reclaims = False
        self.limits = LimitIndex()
        self.limit(*limits)

    def limit(self, *limits: dict[str, Any]) -> None:
        """Write the file anew."""
        self.limits = LimitIndex(limits_of(text(*limits), "root", int(MONDAY)))

    def server(self, uid: str, user: str) -> None:
        """Start a server; those that start later are newer."""
        self.records[uid] = Record(uid, ProcessId(1, len(self.records)), "boot", 1)
        self.users[uid] = user

    def wants(self, uid: str, amount: object, **fields: Any) -> None:
        """Record a wish."""
        record = self.records[uid]
        self.records[uid] = record._replace(requested=next_request(record.requested, wish(amount, **fields)))

    def decide(self, uid: str, *, unreadable: bool = False) -> Decided:
        """Decide about one pod, as its server does, and attach that."""
        owners = {name: Owner("User", user, HUB) for name, user in self.users.items()}
        started = {name: float(record.server.start) for name, record in self.records.items()}
        today = datetime.fromtimestamp(self.now, UTC).date()
        used = {Owner("User", user, HUB): {today: amount} for user, amount in self.used.items()}
        users = UserLimits(self.limits, owners, started, UTC, self.now, used, reclaims=self.reclaims)
        record = self.records[uid]
        made = decision(
            uid,
            record,
            record.requested,
            busy=self.busy.get(uid, frozenset()),
            resting=self.resting,
            gpus=self.gpus,
            used_outside=frozenset(),
            other_pods=[OtherPod(other, 1000, dead=False) for name, other in self.records.items() if name != uid],
            unreadable=unreadable,
            patience=1e9,
            now=LONG_AGO,
            users=users if len(self.limits) else None,
        )
        done = Attached(0, made.allocated.shares, revision=made.allocated.revision) if made.allocated else None
        self.records[uid] = record._replace(allocated=made.allocated, attached=done)
        return made

    def settle(self) -> None:
        """Let each server decide until nothing changes any more."""
        for _ in range(40):
            before = dict(self.records)
            for uid in sorted(self.records):
                self.decide(uid)
            if self.records == before:
                return
        raise AssertionError("It does not come to rest.")

    def has(self) -> Mapping[str, int]:
        """Return the milli of each pod."""
        return {uid: total(made.shares) if (made := one.allocated) else 0 for uid, one in self.records.items()}

    def of(self, user: str) -> int:
        """Return the milli of all pods of a user."""
        return sum(milli for uid, milli in self.has().items() if self.users[uid] == user)

    def limit_of(self, uid: str) -> Any:
        """Return the limit that the panel of a pod shows."""
        made = self.records[uid].allocated
        assert made
        assert made.limit
        return made.limit


def two_servers(*limits: dict[str, Any], count: int = 4) -> Machine:
    """Return a machine where ann has two servers, and bob one."""
    machine = Machine(count, *limits)
    for uid, user in (("a1", "ann"), ("a2", "ann"), ("b1", "bob")):
        machine.server(uid, user)
    machine.settle()
    return machine


def test_servers_of_a_user_count_together() -> None:
    """The slider of each ends at what the others leave, also before a first wish; other users have limits of theirs."""
    machine = two_servers(limit("User", "ann", max=2), limit("Default", max=1))
    assert [machine.limit_of(uid).milli for uid in ("a1", "a2", "b1")] == [2000, 2000, 1000]
    machine.wants("a1", 1)
    machine.wants("a2", 2)
    machine.wants("b1", 3)
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 1000, "b1": 1000}
    assert [machine.limit_of(uid).milli for uid in ("a1", "a2", "b1")] == [1000, 1000, 1000]
    assert machine.limit_of("a2").source.sentence() == "set for you by root on 4 May"
    waiting = machine.records["a2"].allocated
    assert waiting
    assert waiting.reason is Reason.LIMIT_EXCEEDED


def test_raised_limit_serves_a_wish_without_a_click() -> None:
    """The wish was never rewritten."""
    machine = two_servers(limit("Default", max=1))
    machine.wants("a1", 3)
    machine.settle()
    assert machine.of("ann") == 1000
    machine.limit(limit("Default", max="unlimited"))
    machine.settle()
    assert machine.of("ann") == 3000
    machine.limit()
    machine.settle()
    made = machine.records["a1"].allocated
    assert made
    assert (machine.of("ann"), made.limit) == (3000, None)


def test_lowered_limit_takes_back_after_the_grace_from_the_newest_server() -> None:
    """The grace is the owner's: it begins with the first server that hears of it, and what is given back adds up."""
    machine = two_servers(limit("User", "ann", max=4))
    machine.wants("a1", 2)
    machine.wants("a2", 2)
    machine.settle()
    machine.busy = {"a2": frozenset(one.uuid for one in machine.gpus)}  # known to that server alone
    machine.limit(limit("User", "ann", max=1, grace="2m"))
    assert machine.decide("a1").due == MONDAY + 120
    machine.now += 60
    machine.settle()
    assert machine.has() == {"a1": 2000, "a2": 2000, "b1": 0}
    assert machine.limit_of("a2").give_back_at == MONDAY + 120
    machine.now = MONDAY + 120
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 0, "b1": 0}
    assert machine.limit_of("a1").give_back_at is None


@pytest.mark.parametrize("limited", [False, True])
def test_pod_gives_closed_gpus_back_first_then_resting_ones(limited: bool) -> None:
    """Whether its user wants less or may have less; one that a scan found closed does not rest, whatever looks said."""
    machine = two_servers(*[limit("User", "ann", max=4)] * limited)
    machine.wants("a1", 4)
    machine.settle()
    closed, working, rests, newest = (one.uuid for one in machine.gpus)
    machine.busy = {"a1": frozenset({working, rests, newest})}
    machine.resting = frozenset({rests, closed})
    for amount, gone in ((3, closed), (2, rests), (1, newest)):
        if limited:
            machine.limit(limit("User", "ann", max=amount, grace="0s"))
        else:
            machine.wants("a1", amount)
        machine.settle()
        made = machine.records["a1"].allocated
        assert made
        assert len(made.shares) == amount
        assert gone not in {share.uuid for share in made.shares}


def test_limit_lowered_further_begins_a_new_grace() -> None:
    """The first promise was for a higher maximum."""
    machine = two_servers(limit("User", "ann", max=4))
    machine.wants("a1", 3)
    machine.settle()
    machine.limit(limit("User", "ann", max=2, grace="2m"))
    machine.settle()
    machine.now += 60
    machine.limit(limit("User", "ann", max=1, grace="2m"))
    machine.settle()
    assert machine.limit_of("a1").give_back_at == MONDAY + 180
    machine.limit(limit("User", "ann", max=3, grace="2m"))
    machine.settle()
    assert machine.limit_of("a1").give_back_at is None


def test_clock_that_was_set_back_takes_nothing_early_and_gives_no_longer_grace() -> None:
    """A promise for a moment that is too far away counts as made now."""
    machine = two_servers(limit("User", "ann", max=2))
    machine.wants("a1", 2)
    machine.settle()
    machine.limit(limit("User", "ann", max=1, grace="2m"))
    machine.settle()
    machine.now -= 3600
    machine.settle()
    assert machine.limit_of("a1").give_back_at == machine.now + 120


def test_hours_lower_the_maximum_and_say_when_that_ends() -> None:
    """Time alone changes it, so each server gets the time of the change."""
    noon = {"from": "11:00", "to": "13:00", "max": 1}
    machine = two_servers(limit("User", "ann", max=3, grace="0s", hours=[noon]))
    machine.wants("a1", 3)
    assert machine.decide("a1").due == MONDAY + 3600
    assert (machine.of("ann"), machine.limit_of("a1").max) == (1000, 1000)
    machine.now += 3600
    machine.settle()
    assert machine.of("ann") == 3000


def test_used_up_budget_lowers_to_what_is_guaranteed_until_the_window_ends() -> None:
    """The moment at which it runs out is foreseen from what all of the user's servers hold; then the grace begins."""
    hour = 3600 * 1000
    machine = two_servers(
        limit("User", "ann", guaranteed=1, grace="2m", budget={"gpuHours": 4, "window": "Day"}), count=3
    )
    machine.wants("a1", 1)
    machine.wants("a2", 1)
    machine.settle()
    machine.used = {"ann": 3 * hour, "bob": 9 * hour}
    assert machine.decide("a1").due == MONDAY + 1800
    machine.now += 1800
    machine.used["ann"] = 4 * hour
    machine.settle()
    assert machine.limit_of("a2").give_back_at == machine.now + 120
    assert machine.limit_of("a2").source.sentence() == "the used-up budget for you, set by root on 4 May"
    machine.now += 120
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 0, "b1": 0}
    midnight = MONDAY + 12 * 3600
    assert machine.decide("a2").due == midnight
    machine.now, machine.used = midnight, {}
    machine.settle()
    assert machine.of("ann") == 2000


def test_guaranteed_comes_first_in_line_and_priority_is_capped() -> None:
    """The line is the one of a cluster with limits."""
    machine = two_servers(limit("User", "bob", guaranteed=1), limit("User", "ann", priority={"max": 2}), count=2)
    machine.wants("a1", 2)
    machine.settle()
    machine.wants("a2", 1, priority=9)
    machine.settle()
    machine.wants("b1", 1, priority=3)
    machine.settle()
    machine.wants("a1", 1)
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 0, "b1": 1000}


def reclaiming(*limits: dict[str, Any], count: int) -> Machine:
    """Return the machine of `two_servers`, where guaranteed GPUs are reclaimed and a grace has two minutes."""
    machine = two_servers(limit("Default", grace="2m"), *limits, count=count)
    machine.reclaims = True
    return machine


def test_guaranteed_gpus_are_reclaimed_after_a_notice() -> None:
    """From the newest server of the owner with the most; all servers come to the same, though each knows other uses."""
    machine = reclaiming(limit("User", "bob", guaranteed=1), count=2)
    machine.wants("a1", 1)
    machine.wants("a2", 1)
    machine.settle()
    machine.busy = {uid: frozenset(one.uuid for one in machine.gpus) for uid in ("a1", "a2")}  # known to each alone
    machine.wants("b1", 2)
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 1000, "b1": 0}
    assert machine.limit_of("a1").give_back_at is None
    assert machine.limit_of("a2").reclaimed == ((1000, MONDAY + 120),)
    assert machine.decide("a2").due == MONDAY + 120
    machine.now += 60
    machine.settle()
    assert machine.limit_of("a2").give_back_at == MONDAY + 120
    machine.now += 60
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 0, "b1": 1000}
    assert machine.limit_of("a2").reclaimed == ()
    machine.wants("b1", 0)
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 1000, "b1": 0}


def test_nothing_is_reclaimed_unless_the_file_says_so() -> None:
    """Guaranteed GPUs come first in line, and no more."""
    machine = reclaiming(limit("User", "bob", guaranteed=1), count=1)
    machine.reclaims = False
    machine.wants("a1", 1)
    machine.settle()
    machine.wants("b1", 1)
    machine.settle()
    assert machine.limit_of("a1").reclaimed == ()
    assert machine.decide("a1").due is None


def test_time_that_a_reclaim_was_announced_for_begins_no_grace() -> None:
    """A limit that is lowered meanwhile has a grace of its own, which outlives the reclaim."""
    machine = reclaiming(limit("User", "bob", guaranteed=1), count=2)
    machine.wants("a1", 2)
    machine.settle()
    machine.wants("b1", 1)
    machine.settle()
    assert machine.limit_of("a1").give_back_at == MONDAY + 120
    machine.now += 60
    machine.limit(limit("User", "bob", guaranteed=1), limit("User", "ann", max=0, grace="2m"))
    machine.settle()
    assert machine.limit_of("a1").give_back_at == MONDAY + 180
    machine.now = MONDAY + 120
    machine.settle()
    assert machine.has() == {"a1": 1000, "a2": 0, "b1": 1000}
    machine.now = MONDAY + 180
    machine.settle()
    assert machine.has() == {"a1": 0, "a2": 0, "b1": 1000}


wishes = st.lists(st.tuples(st.sampled_from(["a1", "a2", "b1"]), st.integers(0, 3)), max_size=8)


@given(wishes, st.integers(0, 2), st.integers(0, 1))
@settings(deadline=None)
def test_guaranteed_gpus_are_there_after_the_grace(steps: list[tuple[str, int]], anns: int, bobs: int) -> None:
    """Whatever others took before; no owner loses any of those guaranteed to it; and it always comes to rest."""
    guaranteed = {"ann": anns * 1000, "bob": bobs * 1000}
    limits = [limit("User", user, guaranteed=milli // 1000) for user, milli in guaranteed.items()]
    machine = reclaiming(*limits, count=3)
    wished = dict.fromkeys(machine.users, 0)
    for uid, amount in steps:
        wished[uid] = amount * 1000
        had = {user: machine.of(user) for user in guaranteed}
        machine.wants(uid, amount)
        machine.settle()
        machine.now += 120
        machine.settle()
        for user, milli in guaranteed.items():
            wants = sum(wished[name] for name, its in machine.users.items() if its == user)
            assert machine.of(user) >= min(wants, milli)
            assert machine.of(user) >= min(had[user], milli, wants)


amounts = st.sampled_from(["0", "0.5", "1", "2", "3", "unlimited"])
changes = st.one_of(
    st.tuples(st.just("wants"), st.sampled_from(["a1", "a2", "b1"]), st.sampled_from([0, 0.5, 1, 2, 3])),
    st.tuples(st.just("limit"), st.sampled_from(["ann", "bob", ""]), amounts),
    st.tuples(st.just("time"), st.just(""), st.sampled_from([1, 60, 600])),
)


@pytest.mark.uncounted(after=25)
@given(st.lists(changes, max_size=12))
@settings(deadline=None)
def test_no_user_ever_has_more_than_the_maximum_or_what_was_there_when_it_was_lowered(
    steps: list[tuple[str, str, Any]],
) -> None:
    """Whatever is wished and set, and whichever server decides when; and it always comes to rest."""
    machine = two_servers(limit("Default", max=2), count=3)
    most: dict[str, Any] = {"ann": "2", "bob": "2"}
    for kind, name, value in steps:
        had = {user: machine.of(user) for user in most}
        if kind == "wants":
            machine.wants(name, value)
        elif kind == "limit":
            most = {user: value if name in (user, "") else now for user, now in most.items()}
            machine.limit(*(limit("User", user, max=now, grace="1m") for user, now in most.items()))
        else:
            machine.now += value
        machine.settle()
        for user, now in most.items():
            allowed = 1e9 if now == "unlimited" else float(now) * 1000
            assert machine.of(user) <= max(allowed, had[user])
            if kind == "time" and value >= 60:
                assert machine.of(user) <= allowed
        assert sum(machine.has().values()) <= 3000


def test_damaged_record_is_of_no_user() -> None:
    """The GPUs that its pod holds are unknown, so no pod gets more, as without limits."""
    machine = two_servers(limit("Default", max=2))
    machine.wants("a1", 1)
    made = machine.decide("a1", unreadable=True).allocated
    assert made
    assert (made.shares, made.reason) == ((), Reason.DEFERRED)


def test_nothing_is_reclaimed_from_a_damaged_record() -> None:
    """Its pod counts as holding all that is left, but has no owner who could be told, and may hold nothing at all."""
    machine = reclaiming(limit("User", "bob", guaranteed=1), count=1)
    machine.wants("a1", 1)
    machine.settle()
    machine.wants("b1", 1)
    machine.settle()
    waiting = machine.records["b1"].allocated
    del machine.records["a1"], machine.users["a1"]
    found = machine.decide("b1", unreadable=True)
    assert waiting
    assert found.allocated
    assert (found.allocated.shares, found.allocated.ticket) == ((), waiting.ticket)
    assert found.due is None
