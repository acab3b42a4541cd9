"""Running pods whose limit permits less than they wish: their GPUs and their messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import NODE, allocated, apply, attached, decided, inventory, pod, world

LIMIT = PodLimit(2000, 2000, Source(SourceKind.GROUP, "ml", by="root", at=1777766400))
SENTENCE = "Your limit is 2 GPUs for all your servers together, set for group ml by root on 3 May."


def _limited(state: PodState, allowance: int | None) -> PodState:
    return replace(state, allowance=allowance)


def _decision(*pods: PodState, gpus: int = 4) -> Decision:
    (found,) = [one for one in decide(world(gpus, pods), NODE) if one.uid == "a"]
    return found


SERVED = {
    "what the allowance permits": (_limited(pod("a", wants=3), 2000), {0: 1000, 1: 1000}),
    "nothing": (_limited(pod("a", wants=3), 0), {}),
    "a smaller share": (_limited(pod("a", wants=1), 300), {0: 300}),
    "a pod that has more gives idle ones back": (
        _limited(pod("a", wants=3, has=[0, 1, 2], busy=[0, 2]), 2000),
        {0: 1000, 2: 1000},
    ),
    "one that rests goes before one that works": (
        _limited(pod("a", wants=3, has=[0, 1, 2], busy=[0, 1, 2], resting=[1]), 2000),
        {0: 1000, 2: 1000},
    ),
    "without a wish that can be read, too": (
        replace(_limited(pod("a", has=[0, 1, 2], busy=[0, 1, 2], resting=[0]), 2000), fault="It can't be read."),
        {1: 1000, 2: 1000},
    ),
    "a share shrinks": (_limited(pod("a", wants=1, has=[0], busy=[0]), 500), {0: 500}),
    "a wish that can't be read keeps what it has": (
        replace(_limited(pod("a", has=[0, 1]), 2000), fault="It can't be read."),
        {0: 1000, 1: 1000},
    ),
    "a wish that can't be read keeps no more than is allowed": (
        replace(_limited(pod("a", has=[0, 1, 2], busy=[0, 1]), 1500), fault="It can't be read."),
        {0: 1000},
    ),
    "a wish that can't be served keeps no more than is allowed": (
        _limited(pod("a", wants=2, has=[0, 1], model=("none",)), 1000),
        {0: 1000},
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_allowance_bounds_what_a_pod_has(name: str) -> None:
    """A pod gets and keeps the part of its wish that its allowance permits, whatever its wish is."""
    state, expected = SERVED[name]
    snapshot = world(4, [state])
    assert decided(snapshot)["a"] == expected
    assert decide(snapshot, NODE) == ()


def test_rest_stands_in_no_line() -> None:
    """The part that is forbidden gets no ticket and keeps nothing back; the record says why, and whose limit it is."""
    found = _decision(replace(_limited(pod("a", wants=3), 2000), pod_limit=LIMIT)).allocated
    assert (found.ticket, found.position, found.reason) == (None, None, Reason.LIMIT_EXCEEDED)
    assert found.message == f"2 of 3 GPUs. {SENTENCE}"
    assert found.limit == LIMIT
    snapshot = world(3, [_limited(pod("a", wants=3), 2000), pod("b", wants=1)])
    assert decided(snapshot) == {"a": {0: 1000, 1: 1000}, "b": {2: 1000}}


def test_permitted_part_waits_with_a_ticket() -> None:
    """The part that is permitted and not free is owed as ever; the message tells of both bounds."""
    waits = replace(_limited(pod("a", wants=3), 2000), pod_limit=LIMIT)
    found = _decision(waits, gpus=2), _decision(waits, pod("b", wants=1, has=[0]), gpus=2)
    assert [one.allocated.ticket for one in found] == [None, 1]
    assert found[1].allocated.message == f"1 of 2 GPUs; 1 more is owed. {SENTENCE}"
    none = _decision(waits, pod("b", wants=2, has=[0, 1]), gpus=2).allocated
    assert none.message == f"2 GPUs are owed; not enough is free now. {SENTENCE}"


def test_raised_allowance_is_served_without_a_new_wish() -> None:
    """Raising the limit serves the wish that stands."""
    snapshot = world(4, [_limited(pod("a", wants=3), 1000)])
    assert decided(snapshot)["a"] == {0: 1000}
    state = snapshot.pod("a")
    assert state is not None
    snapshot.put_pod(replace(state, allowance=3000))
    assert decided(snapshot)["a"] == {0: 1000, 1: 1000, 2: 1000}
    state = snapshot.pod("a")
    assert state is not None
    assert state.allocated is not None
    assert (state.allocated.reason, state.allocated.message) == (None, "")


def test_lowered_allowance_drains() -> None:
    """A GPU that is given back is held until it is closed: no other pod gets it before."""
    had = pod("a", wants=2, has=[0, 1], busy=[0, 1])
    snapshot = world(2, [_limited(had, 1000), pod("b", wants=1)])
    assert decided(snapshot) == {"a": {0: 1000}, "b": {}}
    state = snapshot.pod("a")
    assert state is not None
    revision = state.allocated.revision if state.allocated else 0
    snapshot.put_pod(replace(state, attached=attached([0], draining=[1], revision=revision)))
    assert decided(snapshot)["b"] == {}
    snapshot.put_pod(replace(state, attached=attached([0], revision=revision)))
    assert decided(snapshot)["b"] == {1: 1000}


def test_limit_is_written_to_pods_without_a_wish() -> None:
    """The panel of a pod that never asked shows the limit, too; without limits nothing is written for it."""
    snapshot = world(1, [replace(pod("a"), pod_limit=LIMIT), pod("b")])
    found = decide(snapshot, NODE)
    assert [(one.uid, one.allocated) for one in found] == [("a", allocated(generation=0, limit=LIMIT))]
    apply(snapshot, found)
    assert decide(snapshot, NODE) == ()


def test_message_without_a_figure() -> None:
    """A pod whose owner's maximum is not told still hears that its limit is the reason."""
    found = _decision(_limited(pod("a", wants=3), 2000)).allocated
    assert found.message == "2 of 3 GPUs. The limit permits no more."


def test_island_stays_an_island() -> None:
    """A wish for one island that is cut is served on one island."""
    state = _limited(pod("a", wants=4, topology="island"), 2000)
    snapshot = world(inventory(4, island=2), [state, pod("b", wants=1, has=[0])])
    assert decided(snapshot)["a"] == {2: 1000, 3: 1000}
