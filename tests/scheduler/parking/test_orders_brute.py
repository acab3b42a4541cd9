"""The chosen orders against all sets of bundles that could be parked: none is needless, and none is missed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import NODE, apply, inventory, pod, uuid, wish

from .pods import away, node, orders, parked, rests

GPUS = 4

_layouts = st.lists(st.lists(st.sampled_from([250, 500, 1000]), max_size=3), min_size=1, max_size=GPUS)
_wishes = st.sampled_from(
    [wish(1), wish(2), wish(2, topology="island"), wish(0.5), wish(1, each=500), wish(0.75, each=250)]
)
"""Wishes for shares of one size: of others one may have to move before the next one fits, which is not thought of."""


def _pods(layout: list[list[int]], joined: bool, resting: frozenset[int]) -> list[PodState]:
    """Return pods with these shares on each GPU where there is room; ``joined``: the first two whole ones are one's."""
    found: list[PodState] = []
    wholes = [index for index, amounts in enumerate(layout) if 1000 in amounts][:2]
    for index, amounts in enumerate(layout):
        if joined and index in wholes[1:]:
            continue
        for amount in [1000] if index in wholes else [each for each in amounts if each < 1000][:2]:
            indexes = wholes if joined and index in wholes else [index]
            has = dict.fromkeys(indexes, amount)
            number = len(found)
            state = pod(f"p{number}", wants=sum(has.values()) / 1000, has=has)
            found.append(rests(state, *indexes, since=number) if number in resting else state)
    return found


def _gain(gpus: int, pods: Collection[PodState], waits: PodState, gone: Collection[str]) -> int:
    """Return what the waiting pod has once the bundles of these pods are parked; of an island all or nothing."""
    states = []
    for state in pods:
        assert state.allocated
        shares = [away(int(share.uuid[4:]), milli=share.milli) for share in state.allocated.shares]
        assert state.attached
        after = parked(replace(state, attached=replace(state.attached, shares=())), *shares)
        states.append(after if state.uid in gone else state)
    snapshot = node(inventory(gpus, island=2), [*states, waits])
    for _ in range(3):
        apply(snapshot, decide(snapshot, NODE))
    found = snapshot.pod("w")
    assert found
    assert found.wish
    return found.has if found.wish.topology is None or found.has == found.wished else 0


@pytest.mark.uncounted(after=25)
@given(_layouts, st.booleans(), st.frozensets(st.integers(0, 5)), _wishes)
@settings(max_examples=100)
def test_orders_are_enough_and_none_is_needless(
    layout: list[list[int]], joined: bool, resting: frozenset[int], wanted: Wish
) -> None:
    """Whatever can be had by parking is had by what is ordered, and by nothing less of it."""
    pods = _pods(layout, joined, resting)
    waits = pod("w", wants=wanted, has=[], ticket=1)
    able = [state.uid for state in pods if state.parkable]
    sets = chain.from_iterable(combinations(able, count) for count in range(len(able) + 1))
    gains = {frozenset(chosen): _gain(len(layout), pods, waits, chosen) for chosen in sets}
    snapshot = node(inventory(len(layout), island=2), [*pods, waits])
    chosen = frozenset(orders(snapshot))
    assert chosen == frozenset(orders(snapshot))
    assert gains[chosen] == max(gains.values())
    assert all(gains[chosen - {uid}] < gains[chosen] for uid in chosen)


def test_layouts_of_the_test_above_are_what_they_say() -> None:
    """Two whole GPUs of one bundle, and two halves of pods of their own."""
    first, second, third = _pods([[1000], [1000], [500, 500]], True, frozenset({0}))
    assert first.parkable[0].uuids == {uuid(0), uuid(1)}
    assert second.held == third.held == {uuid(2): 500}
