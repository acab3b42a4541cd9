"""Owners in the cluster cache: each change of a pod, a limit, a node or the hour gives their pods new terms at once."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.common.settings_file import parse
from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import ALLOCATED, REQUESTED, Allocated, encode
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_scheduler.clocks import Clocks
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from jupyter_gpu_scheduler.settings import LimitSettings, PrioritySettings, SchedulerSettings
from tests.scheduler_process.test_cluster_cache import NODES, node, pod

ANN = Owner("User", "ann", "hub")
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


class Clock:
    """Both clocks of a cache, which a test moves."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.set_by = 0.0

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.elapsed += seconds

    def now(self) -> float:
        """Return the seconds since 1970."""
        return NOON + self.elapsed + self.set_by


def cache(clock: Clock | None = None, complete: bool = True, **settings: Any) -> ClusterCache:
    """Return a cache with two nodes of two GPUs each."""
    clock = clock or Clock()
    made = ClusterCache(
        lambda: None,
        SchedulerSettings(**settings),
        complete=complete,
        clocks=Clocks(lambda: clock.elapsed, clock.now),
    )
    for name in NODES:
        made.node_changed(ObjectChange("added", node(name)))
    return made


def put_limit(made: ClusterCache, name: str = "ann", **spec: Any) -> None:
    """Write a limit, by default the one of ann."""
    subject = spec.pop("subject", {"kind": "User", "name": "ann"})
    made.limit_changed(read_limit({"metadata": {"name": name}, "spec": {"subject": subject, **spec}}))


def put_pod(
    made: ClusterCache,
    uid: str,
    version: int,
    on: str = "n0",
    wants: object = 1,
    has: tuple[str, ...] | None = None,
    user: str = "ann",
) -> None:
    """Put a pod of a user."""
    body = pod(uid, version, on, has, has)
    body["metadata"]["annotations"].update({USERNAME: user, HUB: "hub", REQUESTED: str(wants)})
    made.pod_changed(ObjectChange("changed", body))


def allowances(made: ClusterCache) -> dict[str, int | None]:
    """Return what each pod of ann may have."""
    return {state.uid: state.allowance for state in made.snapshot.owned(ANN)}


def test_pods_without_limits_have_no_terms() -> None:
    """Without known limits, nothing is limited and nothing is reported."""
    made = cache()
    put_pod(made, "a", 1)
    state = made.snapshot.pod("a")
    assert state
    assert (state.allowance, state.pod_limit, state.cap) == (None, None, 9)


def test_limit_that_comes_and_goes_changes_the_pods() -> None:
    """The pods of the owner are decided again, those of others are not."""
    made = cache()
    put_limit(made, "eve", subject={"kind": "User", "name": "eve"}, max=1)
    put_pod(made, "a", 1, "n0", 2)
    put_pod(made, "b", 2, "n1", 2, user="bob")
    made.take_changed_nodes()
    put_limit(made, max=1, priority={"max": 4})
    assert made.take_changed_nodes() == ("n0",)
    state = made.snapshot.pod("a")
    assert state
    assert state.pod_limit
    assert (state.allowance, state.pod_limit.milli, state.cap) == (1000, 1000, 4)
    made.limit_removed("ann")
    state = made.snapshot.pod("a")
    assert state
    assert (state.allowance, state.pod_limit, state.cap) == (None, PodLimit(None, None), 9)
    assert made.take_changed_nodes() == ("n0",)


def test_first_limit_and_the_last_concern_everyone() -> None:
    """Once there is any limit, owners whom none names stand in the fair line at once; without limits, they do not."""
    made = cache(limits=LimitSettings(queue="fair"))
    put_pod(made, "b", 1, "n1", 2, user="bob")
    made.take_changed_nodes()
    put_limit(made, max=1)
    state = made.snapshot.pod("b")
    assert state
    assert state.pod_limit == PodLimit(None, None)
    assert state.standing == OwnerStanding()
    assert made.take_changed_nodes() == ("n1",)
    put_limit(made, "ann-2", max=2)
    made.limit_removed("ann")
    assert made.take_changed_nodes() == ()
    made.limit_removed("ann-2")
    state = made.snapshot.pod("b")
    assert state
    assert (state.pod_limit, state.standing) == (None, None)
    assert made.take_changed_nodes() == ("n1",)


def test_priority_is_capped_by_namespace_and_limit() -> None:
    """The lower of the two counts, also after the limit's is raised again."""
    made = cache(priorities=PrioritySettings(default=6))
    put_pod(made, "a", 1)
    for most, cap in ((4, 4), (8, 6)):
        put_limit(made, priority={"max": most})
        state = made.snapshot.pod("a")
        assert state
        assert state.cap == cap


def lendable(made: ClusterCache) -> tuple[bool, bool]:
    """Return which of the pods a, which says nothing, and b, which says that it is, are lendable."""
    states = [made.snapshot.pod(uid) for uid in "ab"]
    a, b = (bool(state and state.requested and state.requested.wish.lent) for state in states)
    return a, b


@pytest.mark.parametrize("lends", [True, False])
def test_whole_gpus_are_lendable_if_a_limit_or_the_pod_says_so(lends: bool) -> None:
    """The limit counts where there is one, as soon as it is written; nothing is where nothing is lent."""
    made = cache(lending=lends)
    own = '{"generation": 1, "milli": 1000, "lendable": true}'
    for version in (1, 2):
        put_pod(made, "a", version, "n0")
        put_pod(made, "b", version, "n1", own)
        assert lendable(made) == (False, lends)
    put_limit(made, max=2)
    assert lendable(made) == (False, lends)
    made.take_changed_nodes()
    for value in (True, False):
        put_limit(made, lendable=value)
        assert lendable(made) == (lends and value, lends and value)
        assert made.take_changed_nodes() == ("n0", "n1") or not lends
        put_pod(made, "a", 4, "n0")
        assert lendable(made) == (lends and value, lends and value)
    made.limit_removed("ann")
    assert lendable(made) == (False, lends)


def test_pod_that_goes_leaves_its_part_to_the_others() -> None:
    """GPUs of a deleted pod may be had by the owner's other pods at once."""
    made = cache()
    put_limit(made, max=1)
    put_pod(made, "a", 1, "n0", 1, ("n0-0",))
    put_pod(made, "b", 2, "n1", 1)
    assert allowances(made) == {"a": 1000, "b": 0}
    made.pod_changed(ObjectChange("removed", pod("a", 3, "n0")))
    assert allowances(made) == {"b": 1000}


def test_pod_that_changes_its_owner_counts_for_the_new_one() -> None:
    """Its part is free for the pods of the old one."""
    made = cache()
    put_limit(made, max=1)
    put_pod(made, "a", 1, "n0", 1, ("n0-0",))
    put_pod(made, "b", 2, "n1", 1)
    put_pod(made, "a", 3, "n0", 1, ("n0-0",), user="bob")
    assert allowances(made) == {"b": 1000}


def test_unknown_pod_is_under_the_terms_of_its_owner() -> None:
    """kube-scheduler may ask for a pod before any watch has shown it."""
    made = cache()
    put_limit(made, max=1)
    put_pod(made, "a", 1, "n0", 1, ("n0-0",))
    body = pod("new", 5)
    body["metadata"]["annotations"].update({USERNAME: "ann", HUB: "hub"})
    assert made.under_terms(read_pod(body).state).allowance == 0
    assert made.snapshot.pod("new") is None


def test_terms_wait_until_all_is_known() -> None:
    """Thousands of pods are listed one by one; their terms are computed once, at the end."""
    made = cache(complete=False)
    put_pod(made, "a", 1, "n0", 2)
    put_limit(made, max=1)
    assert allowances(made) == {"a": None}
    made.begin()
    assert allowances(made) == {"a": 1000}
    made.begin()
    assert allowances(made) == {"a": 1000}


def test_grace_ends_by_itself() -> None:
    """A lowered limit takes back when the grace is over, and not before; a lower one begins it anew."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=2, grace="10m")
    put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
    put_limit(made, max=1, grace="10m")
    assert allowances(made) == {"a": 2000}
    assert made.seconds_until_due() == 600
    clock.wait(400)
    put_limit(made, max=0, grace="10m")
    state = made.snapshot.pod("a")
    assert state
    assert state.pod_limit
    assert state.pod_limit.give_back_at == NOON + 1000
    clock.wait(599)
    made.catch_up()
    assert allowances(made) == {"a": 2000}
    clock.wait(1)
    made.catch_up()
    assert allowances(made) == {"a": 0}
    assert made.seconds_until_due() is None


def test_grace_goes_on_in_the_next_process() -> None:
    """Its beginning in the account counts, so a restart does not begin it anew."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=1, grace="10m")
    put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
    assert made.seconds_until_due() == 600
    made.restore(Account(ANN, used=2000, over_since=int(NOON) - 500))
    assert made.seconds_until_due() == 100


def test_clock_that_is_set_back_prolongs_no_grace_for_ever() -> None:
    """The grace ends at most its whole length after the clock was set."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=1, grace="10m")
    put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
    clock.set_by = -7200
    put_pod(made, "b", 2, "n1", 0)
    assert made.seconds_until_due() == 600


def test_hours_of_the_day_change_the_limit() -> None:
    """From 13:00 on one GPU is allowed, without anybody writing anything."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=2, grace="0s", hours=[{"from": "13:00", "to": "14:00", "max": 1}])
    put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
    assert made.seconds_until_due() == 3600
    clock.wait(3600)
    made.catch_up()
    assert allowances(made) == {"a": 1000}


def test_budget_runs_out_and_is_filled_again() -> None:
    """Two GPUs use up a budget of one hour in half an hour; what is guaranteed stays, and the next day begins anew."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=2, guaranteed="500m", grace="0s", budget={"gpuHours": 1, "window": "Day"})
    put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
    assert made.seconds_until_due() == 1800
    clock.wait(1800)
    made.catch_up()
    assert allowances(made) == {"a": 500}
    clock.wait(11.5 * 3600)
    made.catch_up()
    assert allowances(made)["a"] == 2000


def test_used_up_budget_is_known_to_the_next_process() -> None:
    """Hours that the account has count for the budget."""
    made = cache()
    put_limit(made, max=2, grace="0s", budget={"gpuHours": 1, "window": "Day"})
    put_pod(made, "a", 1, "n0", 2)
    assert allowances(made) == {"a": 2000}
    made.restore(Account(ANN, hours={date(2026, 5, 4): 3_600_000}))
    assert allowances(made) == {"a": 0}


def test_account_counts_what_is_held() -> None:
    """GPU time is exact at each change, and asking for it is no change."""
    clock = Clock()
    made = cache(clock)
    changed, other = made.owners.follow(), made.owners.follow()
    put_pod(made, "a", 1, "n0", 2, ("n0-0",))
    clock.wait(10)
    put_pod(made, "a", 2, "n0", 2, ("n0-0", "n0-1"))
    clock.wait(5)
    assert changed.take() == (ANN,)
    assert made.owners.holding() == (ANN,)
    assert made.owners.account(ANN).hours == {date(2026, 5, 4): 1000 * 10 + 2000 * 5}
    assert changed.take() == ()
    assert other.take() == (ANN,)
    made.pod_changed(ObjectChange("removed", pod("a", 3, "n0")))
    clock.wait(100)
    assert made.owners.account(ANN).hours == {date(2026, 5, 4): 20_000}
    assert made.owners.holding() == ()
    assert made.owners.known() == (ANN,)


def test_owners_who_are_gone_are_forgotten() -> None:
    """An owner with a pod, or with hours in the last weeks, stays; who is forgotten may come again."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=2, budget={"gpuHours": 9, "window": "Day"})
    put_pod(made, "a", 1, "n0", 1, ("n0-0",))
    put_pod(made, "b", 2, "n1", 1, user="bob")
    clock.wait(60)
    for uid, user in (("a", "ann"), ("b", "bob")):
        made.pod_changed(ObjectChange("removed", pod(uid, 3, "n0")))
        assert made.owners.knows(Owner("User", user, "hub"))
    assert made.owners.forget_stale() == (Owner("User", "bob", "hub"),)
    assert not made.owners.knows(Owner("User", "bob", "hub"))
    clock.wait(36 * 86400)
    made.catch_up()
    put_pod(made, "b", 4, "n1", 1, user="bob")
    assert made.owners.forget_stale() == (ANN,)
    put_pod(made, "a", 5, "n0", 1)
    assert allowances(made) == {"a": 1000}
    assert made.owners.account(ANN).hours == {}


def test_other_kind_of_gpu_changes_a_limit_of_a_model() -> None:
    """A node whose GPUs turn out to be another model frees the owner's part in it."""
    made = cache()
    put_limit(made, models=[{"model": "m", "max": 1}])
    put_pod(made, "a", 1, "n0", 2)
    assert allowances(made) == {"a": 1000}
    other = node("n0")
    key = next(iter(other["metadata"]["annotations"]))
    other["metadata"]["annotations"][key] = other["metadata"]["annotations"][key].replace('"m"', '"other"')
    made.node_changed(ObjectChange("changed", other))
    assert allowances(made) == {"a": None}


def test_line_is_fair_where_limits_exist() -> None:
    """The owner with less comes first, whichever asked first; by tickets if the settings say so."""
    for queue, expected in (("fair", ["b"]), ("ticket", ["a2"])):
        made = cache(limits=parse({"queue": queue}, LimitSettings))
        put_limit(made, max=4)
        put_pod(made, "a", 1, "n0", 1, ("n0-0",))
        put_pod(made, "x", 2, "n0", 1, ("n0-1",), user="eve")
        put_pod(made, "a2", 3, "n0", 1)
        put_pod(made, "b", 4, "n0", 1, user="bob")
        made.pod_changed(ObjectChange("removed", pod("x", 5, "n0")))
        made.reclaim("n0")
        gains = [decision.uid for decision in decide(made.snapshot, "n0") if decision.added]
        assert gains == expected


def test_guaranteed_gpus_are_taken_back_if_the_settings_say_so() -> None:
    """A pod of an owner above what is guaranteed gives back, with its grace, for one below; by default it keeps all."""
    for reclaim, left in ((True, 1000), (False, 2000)):
        clock = Clock()
        made = cache(clock, limits=parse({"reclaim": reclaim}, LimitSettings))
        put_limit(made, max=2, grace="1m")
        put_limit(made, "bob", subject={"kind": "User", "name": "bob"}, max=2, guaranteed=1)
        put_pod(made, "a", 1, "n0", 2, ("n0-0", "n0-1"))
        put_pod(made, "b", 2, "n0", 1, (), user="bob")
        for decision in decide(made.snapshot, "n0"):
            made.assume(decision.uid, decision.allocated)
        made.reclaim("n0")
        assert allowances(made) == {"a": 2000}
        clock.wait(60)
        made.catch_up()
        assert allowances(made) == {"a": left}
        made.pod_changed(ObjectChange("removed", pod("b", 3, "n0")))
        made.reclaim("n0")
        assert allowances(made) == {"a": 2000}
        assert made.owners.reclaim("unknown") == ()


actions = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from("abc"), st.sampled_from(NODES), st.integers(0, 3)),
    st.tuples(st.just("gone"), st.sampled_from("abc")),
    st.tuples(st.just("limit"), st.integers(0, 4)),
    st.tuples(st.just("decide"), st.sampled_from(NODES)),
    st.tuples(st.just("wait"), st.integers(1, 900)),
)


@settings(max_examples=60)
@given(st.lists(actions, max_size=30))
def test_owner_never_gets_more_than_the_limit(steps: list[tuple[Any, ...]]) -> None:
    """Whatever changes in whatever order, no decision takes the pods of an owner above the maximum."""
    clock = Clock()
    made = cache(clock)
    put_limit(made, max=2, grace="5m")
    wishes: dict[str, tuple[str, int]] = {}
    records: dict[str, Allocated] = {}
    most = 2000
    versions = itertools.count(1)
    for what, *rest in steps:
        if what == "pod":
            uid, on, wants = rest
            on = wishes[uid][0] if uid in wishes else on
            wishes[uid] = (on, wants)
            _write(made, uid, next(versions), wishes[uid], records.get(uid))
        elif what == "gone" and rest[0] in wishes:
            made.pod_changed(ObjectChange("removed", pod(rest[0], next(versions), wishes.pop(rest[0])[0])))
            records.pop(rest[0], None)
        elif what == "limit":
            most = rest[0] * 1000
            put_limit(made, max=rest[0], grace="5m")
        elif what == "wait":
            clock.wait(rest[0])
            made.catch_up()
        elif what == "decide":
            before = sum(share.milli for record in records.values() for share in record.shares)
            for decision in decide(made.snapshot, rest[0]):
                records[decision.uid] = decision.allocated
                _write(made, decision.uid, next(versions), wishes[decision.uid], decision.allocated)
            after = sum(share.milli for record in records.values() for share in record.shares)
            assert after <= max(most, before)


def _write(made: ClusterCache, uid: str, version: int, wish: tuple[str, int], record: Allocated | None) -> None:
    """Have a pod seen with its wish and what was decided, all of it attached."""
    on, wants = wish
    has = tuple(share.uuid for share in record.shares) if record else None
    body = pod(uid, version, on, has, has)
    body["metadata"]["annotations"].update({USERNAME: "ann", HUB: "hub", REQUESTED: str(wants)})
    if record:
        body["metadata"]["annotations"][ALLOCATED] = encode(record)
    made.pod_changed(ObjectChange("changed", body))


def test_pod_that_waits_alone_is_not_decided_again_for_its_owner() -> None:
    """A pod that waits alone is behind no other, whatever its owner holds; beside another pod that waits it is."""
    made = cache()
    put_limit(made, max=9)
    put_pod(made, "a", 1, "n0", 3, ("n0-0", "n0-1"))
    _wait(made, "a", 2, "ann", 1, ("n0-0", "n0-1"))
    made.take_changed_nodes()
    put_pod(made, "b", 3, "n1", 1, ("n1-0",))
    state = made.snapshot.pod("a")
    assert state
    assert state.standing
    assert state.standing.holds == 3000
    assert made.take_changed_nodes() == ("n1",)
    _wait(made, "c", 4, "bob", 2, ())
    made.take_changed_nodes()
    put_pod(made, "b", 5, "n1", 2, ("n1-0", "n1-1"))
    assert set(made.take_changed_nodes()) == {"n0", "n1"}


def _wait(made: ClusterCache, uid: str, version: int, user: str, ticket: int, has: tuple[str, ...]) -> None:
    """Put a pod of a user on n0 that has a ticket for three GPUs."""
    body = pod(uid, version, "n0", has, has)
    record = Allocated(1, tuple(GpuShare(uuid, 1000) for uuid in has), ticket=ticket)
    names = {USERNAME: user, HUB: "hub", REQUESTED: "3", ALLOCATED: encode(record)}
    body["metadata"]["annotations"].update(names)
    made.pod_changed(ObjectChange("changed", body))
