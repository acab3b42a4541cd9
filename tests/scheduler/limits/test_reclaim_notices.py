"""Each pod's own notice of what is reclaimed from it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limit_words import lowered
from jupyter_gpu.model.limits.pod_limit import MAX_RECLAIMS, PodLimit, Reclaim
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.reclaim_notices import due, joined, next_at, noticed
from jupyter_gpu_scheduler.rules.limits.terms import terms
from tests.builders import pod, world

TWO = pod("a", wants=2, has=[0, 1])


def test_second_reclaim_has_a_notice_of_its_own() -> None:
    """An amount reclaimed later is given back later, and does not put off the first."""
    first = noticed((), 1000, seconds=60, now=0)
    second = noticed(first, 3000, seconds=60, now=40)
    assert second == (Reclaim(1000, 60), Reclaim(2000, 100))
    assert [due(second, now) for now in (59, 60, 99, 100)] == [0, 1000, 1000, 3000]
    assert [next_at(second, now) for now in (0, 60, 100)] == [60, 100, None]


def test_what_is_not_reclaimed_any_more_is_taken_from_the_earliest() -> None:
    """It was given back, or is not needed: what was announced later keeps its time."""
    known = (Reclaim(1000, 60), Reclaim(2000, 100))
    assert noticed(known, 2000, seconds=60, now=70) == (Reclaim(2000, 100),)
    assert noticed(known, 2500, seconds=60, now=70) == (Reclaim(500, 60), Reclaim(2000, 100))
    assert noticed(known, 0, seconds=60, now=70) == ()


def test_clock_that_is_set_back_prolongs_no_notice_for_ever() -> None:
    """A time is at most the grace away."""
    assert noticed([Reclaim(1000, 9999)], 1000, seconds=60, now=0) == (Reclaim(1000, 60),)


steps = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 4000)), min_size=1, max_size=20)


@given(steps)
def test_nothing_is_given_back_before_its_notice(history: list[tuple[int, int]]) -> None:
    """At every moment the notices are for what is reclaimed, few, in order, and none is longer than the grace; an
    amount that is due was reclaimed a grace ago, at least as much of it in all moments since.
    """
    known: tuple[Reclaim, ...] = ()
    now, past = 0, list[tuple[int, int]]()
    for pause, amount in history:
        now += pause
        past.append((now, amount))
        known = noticed(known, amount, seconds=60, now=now)
        assert sum(item.milli for item in known) == amount
        assert len(known) <= MAX_RECLAIMS
        assert [item.at for item in known] == sorted(item.at for item in known)
        assert all(item.at <= now + 60 for item in known)
        since = [milli for at, milli in past if at > now - 60]
        before = [milli for at, milli in past if at <= now - 60][-1:]
        assert due(known, now) <= min([*before, *since]) if before else due(known, now) == 0


def test_allowance_follows_the_notices() -> None:
    """The pod keeps what it has until its own time, and gets nothing more meanwhile; other pods keep theirs."""
    other = pod("b", wants=1, has=[2])
    snapshot = world(4, [TWO, other])
    limits = OwnerLimits(reclaimed={"a": 1000}, grace=60)
    first = terms(snapshot, [TWO, other], limits, stored=None, now=0)
    assert (first.pods["a"].allowance, first.pods["b"].allowance, first.reclaims_at) == (2000, None, 60)
    assert first.pods["a"].pod_limit.reclaimed == (Reclaim(1000, 60),)
    assert (first.pods["a"].pod_limit.give_back_at, first.pods["b"].pod_limit.give_back_at) == (60, None)
    assert first.grace.since is None
    snapshot.put_pod(first.pods["a"].applied(TWO))
    more = terms(snapshot, [TWO, other], replace(limits, reclaimed={"a": 2000}), stored=None, now=40)
    assert more.pods["a"].pod_limit.reclaimed == (Reclaim(1000, 60), Reclaim(1000, 100))
    snapshot.put_pod(more.pods["a"].applied(TWO))
    for now, allowance, at in ((59, 2000, 60), (60, 1000, 100), (100, 0, None)):
        found = terms(snapshot, [TWO, other], replace(limits, reclaimed={"a": 2000}), stored=None, now=now)
        assert (found.pods["a"].allowance, found.reclaims_at) == (allowance, at)


def test_notebook_is_told_what_is_taken_back_from_its_workers() -> None:
    """With its own notices, which stay what they are; a worker is told its own alone."""
    workers = [replace(pod(uid, wants=1, has=[index]), notebook="a") for uid, index in (("v", 2), ("w", 3))]
    pods = [TWO, *workers]
    snapshot = world(5, pods)
    limits = OwnerLimits(reclaimed={"w": 1000}, grace=60)
    first = terms(snapshot, pods, limits, stored=None, now=0)
    notebook, worker = first.pods["a"].pod_limit, first.pods["w"].pod_limit
    assert (notebook.reclaimed, notebook.give_back_at) == ((), None)
    assert (notebook.together().reclaimed, notebook.together().give_back_at) == ((Reclaim(1000, 60),), 60)
    assert (worker.reclaimed, worker.with_workers) == ((Reclaim(1000, 60),), None)
    assert lowered(notebook.together(), 4000) == lowered(worker, 1000) != ""
    for one in pods:
        snapshot.put_pod(first.pods[one.uid].applied(one))
    all_of_them = replace(limits, reclaimed={"a": 500, "v": 1000, "w": 1000}, gpus=Maximum(9000))
    more = terms(snapshot, pods, all_of_them, stored=None, now=40).pods["a"].pod_limit
    assert more.reclaimed == (Reclaim(500, 100),)
    assert more.together().reclaimed == (Reclaim(1000, 60), Reclaim(1500, 100))


@given(st.lists(st.lists(st.builds(Reclaim, st.integers(1, 9), st.integers(0, 99)), max_size=6), max_size=4))
def test_joined_notices_are_no_earlier_and_no_less(notices: list[list[Reclaim]]) -> None:
    """In order, few, and at each moment at most what is due of all pods; in the end all of it."""
    found, single = joined(notices), [item for some in notices for item in some]
    assert len(found) <= MAX_RECLAIMS
    assert [item.at for item in found] == sorted({item.at for item in found})
    assert all(due(found, now) <= due(single, now) for now in range(99))
    assert due(found, 99) == due(single, 99)


def test_next_leader_goes_on_from_the_record() -> None:
    """The notice is in the pod's annotation, and is not begun anew."""
    limit = PodLimit(None, None, reclaimed=(Reclaim(1000, 60),))
    shares = (GpuShare("g0", 1000), GpuShare("g1", 1000))
    told = replace(TWO, allocated=Allocated(1, shares, limit=limit), attached=None)
    found = terms(world(2, [told]), [told], OwnerLimits(reclaimed={"a": 1000}, grace=60), stored=None, now=50)
    assert found.pods["a"].pod_limit.reclaimed == (Reclaim(1000, 60),)


def test_many_small_amounts_are_told_together() -> None:
    """A record holds few notices: the last ones are put off to the latest of them, and none comes early."""
    known: tuple[Reclaim, ...] = ()
    for number in range(1, MAX_RECLAIMS + 3):
        known = noticed(known, 100 * number, seconds=60, now=number)
    assert len(known) == MAX_RECLAIMS
    assert known[0] == Reclaim(100, 61)
    assert known[-1] == Reclaim(300, 60 + MAX_RECLAIMS + 2)
