"""Rules that hold whatever users, nodes and writes do: never two owners, nothing stuck, bundles whole, no ping-pong."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import total
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import uuid

from .site import GPUS, HOLD, REST, Site

ACTIONS = ("use", "stop", "follow", "decide", "wait", "resize", "refuse", "park", "interrupt")
_actions = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 3)), max_size=40)


@pytest.mark.uncounted(after=25)
@given(_actions, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_no_gpu_has_two_owners_and_what_is_needed_returns(
    actions: list[tuple[str, int, int]], fair: bool, bundled: bool, chance: random.Random
) -> None:
    """In any order of cells, orders, refusals, wishes and writes that fail; and once all rest, each need is served."""
    site = Site(4, fair=fair, bundled=bundled)
    for action, number, amount in actions:
        site.act(action, number, amount, chance)
        site.check()
    site.come_to_rest()
    for uid in site.pods:
        state = site.state(uid)
        assert state.parked is None or not state.parked.needed, f"{uid} waits for ever"
        assert state.ticket is None or state.has < state.wished


def test_two_users_in_turn_have_the_gpu_for_as_long_as_they_need_it() -> None:
    """Each has it for the least time at a time, and none is parked while it works."""
    site = Site(2, gpus=1)
    for uid in site.pods:
        site.resize(uid, 1)
    turns = []
    for second in range(0, 3600, 10):
        site.now = second
        for uid in site.pods:
            if not site.opens(uid):
                site.use(uid)  # it waits, and would go on at once
            else:
                site.stop(uid)
                turns.append(uid)
        site.step()
        site.check()
    changes = [uid for before, uid in pairwise(turns) if before != uid]
    assert set(turns) == set(site.pods)
    assert len(changes) <= 3600 // min(REST, HOLD)
    assert site.parks <= len(changes) + 2


def test_user_who_parks_and_returns_in_a_loop_takes_nothing_from_others() -> None:
    """Each time the GPU is given to who waits for it; the return stands behind."""
    site = Site(3, gpus=2)
    for uid in site.pods:
        site.resize(uid, 1)
        site.step()
    site.use("b")  # it works all the time
    for _ in range(20):
        site.park_now("a")
        site.use("a")
        site.step()
        site.check()
    assert site.opens("b")
    assert site.opens("c")
    assert not site.opens("a")
    site.stop("c")
    site.now += REST + HOLD
    site.step()
    assert site.opens("a")
    assert not site.opens("c")


@pytest.mark.uncounted
def test_pool_serves_more_sessions_than_it_has_gpus_by_few_parks() -> None:
    """Sessions that mostly rest share a few GPUs, each need is served, and what nobody needs stays where it is."""
    chance = random.Random(7)
    site = Site(8, gpus=4)
    for uid in site.pods:
        site.resize(uid, 1)
    for _ in range(120):
        site.now += 60
        for uid in site.pods:
            if chance.random() < 0.05:
                site.use(uid)
            elif chance.random() < 0.3:
                site.stop(uid)
        site.step()
        site.check()
    before = site.parks
    site.come_to_rest()
    parks = site.parks
    for _ in range(20):
        site.now += 600
        site.step()
    assert site.parks == parks
    assert 0 < before < 60


@pytest.mark.parametrize("bundled", [False, True])
def test_site_really_parks_and_returns(bundled: bool) -> None:
    """The properties above would hold for a site on which nothing happens, too."""
    site = Site(2, gpus=GPUS, bundled=bundled)
    site.resize("a", 2)
    site.step()
    site.use("a")
    site.stop("a")
    site.now += REST + HOLD
    site.resize("b", 2)
    site.step()
    parked = site.state("a").parked
    assert parked
    assert parked.away == ({uuid(0), uuid(1)} if bundled else {uuid(0)})
    site.use("a")
    site.use("b")
    site.step()
    waits = site.state("a")
    assert waits.parked
    assert waits.parked.needed
    assert waits.ticket is not None
    assert waits.has == (0 if bundled else 1000)
    site.stop("b")
    site.now += REST + HOLD
    site.step()
    assert site.opens("a")
    assert site.state("a").has == 2000


def _holds(state: PodState) -> int:
    return total(state.attached.shares) if state.attached else 0


def test_node_side_that_refuses_is_asked_again_later() -> None:
    """The next candidate is parked instead; without one it is asked again after ten minutes."""
    site = Site(2, gpus=1)
    site.resize("a", 1)
    site.step()
    site.use("a")
    site.stop("a")
    site.now += REST + HOLD
    site.resize("b", 1)
    site.refuses.add("a")
    site.step()
    assert _holds(site.state("a")) == 1000
    refused = site.state("a").allocated
    assert refused
    assert not refused.park
    site.refuses.clear()
    site.now += 590
    site.step()
    assert _holds(site.state("a")) == 1000
    site.now += 10
    site.step()
    assert _holds(site.state("b")) == 1000
