"""Returns, when a program needs its GPUs: each bundle as a whole, with its own GPUs, by the standing in the line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import GIB, NODE, decided, inventory, pod, uuid, world

from .pods import away, parked

NEEDS = parked(pod("a", wants=1, has=[], ticket=1), away(0, needed=True))
BUNDLE = parked(pod("a", wants=2, has=[], ticket=1), away(0, needed=True), away(1))


def _fair(state: PodState, name: str, holds: int = 0) -> PodState:
    return replace(state, owner=Owner("User", name), standing=OwnerStanding(holds))


CASES: dict[str, tuple[int, list[PodState], dict[str, dict[int, int]]]] = {
    "its own GPU": (3, [NEEDS], {"a": {0: 1000}}),
    "no other one": (
        2,
        [NEEDS, pod("b", wants=1, has=[0])],
        {"a": {}, "b": {0: 1000}},
    ),
    "beside what it has": (
        3,
        [parked(pod("a", wants=2, has=[2], ticket=1), away(0, needed=True))],
        {"a": {2: 1000, 0: 1000}},
    ),
    "before more": (3, [parked(pod("a", wants=3, has=[]), away(2, needed=True))], {"a": {2: 1000}}),
    "a part of a GPU beside another one": (
        1,
        [parked(pod("a", wants=0.5, has=[]), away(0, milli=500, needed=True)), pod("b", wants=0.5, has={0: 500})],
        {"a": {0: 500}, "b": {0: 500}},
    ),
    "a bundle as a whole": (2, [BUNDLE], {"a": {0: 1000, 1: 1000}}),
    "nothing of a bundle of which one GPU is taken": (
        3,
        [BUNDLE, pod("b", wants=1, has=[1])],
        {"a": {}, "b": {1: 1000}},
    ),
    "one bundle, though another must wait": (
        2,
        [
            parked(pod("a", wants=2, has=[]), away(0, "x", needed=True), away(1, "y", needed=True)),
            pod("b", wants=1, has=[0]),
        ],
        {"a": {1: 1000}, "b": {0: 1000}},
    ),
    "what is ahead comes first": (
        1,
        [parked(pod("a", wants=1, has=[], ticket=2), away(0, needed=True)), pod("b", wants=1, has=[], ticket=1)],
        {"a": {}, "b": {0: 1000}},
    ),
    "only as long as it is wished": (2, [parked(pod("a", wants=0, has=[]), away(0, needed=True))], {"a": {}}),
    "less is wished meanwhile": (
        3,
        [parked(pod("a", wants=1, has=[1, 2]), away(0, needed=True))],
        {"a": {1: 1000}},
    ),
}


@pytest.mark.parametrize(("gpus", "pods", "expected"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("fair", [False, True])
def test_return(gpus: int, pods: list[PodState], expected: dict[str, dict[int, int]], fair: bool) -> None:
    """Each of the rules above, in both kinds of lines."""
    if fair:
        pods = [_fair(state, state.uid, state.holds) for state in pods]
    snapshot = world(gpus, pods)
    assert decided(snapshot) == expected
    assert not decide(snapshot, NODE)


def test_what_a_bundle_waits_for_is_kept_back() -> None:
    """Otherwise others would take one of its GPUs after the other; in a fair line only once it waited too long."""
    holder, later = pod("b", wants=1, has=[1]), pod("c", wants=1, has=[], ticket=2)
    assert decided(world(2, [BUNDLE, holder, later])) == {"a": {}, "b": {1: 1000}, "c": {}}
    waits, holder, later = _fair(BUNDLE, "a"), _fair(holder, "b"), _fair(later, "c")
    assert decided(world(2, [waits, holder, later])) == {"a": {}, "b": {1: 1000}, "c": {0: 1000}}
    waits = replace(waits, overdue=True)
    assert decided(world(2, [waits, holder, later])) == {"a": {}, "b": {1: 1000}, "c": {}}


def test_need_waits_with_a_ticket_and_its_reason() -> None:
    """A need stands in line as any other wish."""
    state = parked(pod("a", wants=1, has=[]), away(0, needed=True))
    snapshot = world(1, [state, pod("b", wants=1, has=[0])])
    (decision,) = decide(snapshot, NODE)
    assert decision.allocated.ticket == 1
    assert decision.allocated.reason is Reason.DEFERRED


@pytest.mark.parametrize("gpus", [inventory(2, unhealthy=[0]), inventory(2)[1:]], ids=["broken", "vanished"])
def test_need_waits_for_a_gpu_that_broke_or_vanished_and_keeps_nothing_back(gpus: tuple[Gpu, ...]) -> None:
    """The data are safe; pods behind it go on."""
    found = decided(world(gpus, [NEEDS, pod("b", wants=1, has=[], ticket=2)]))
    assert found == {"a": {}, "b": {1: 1000}}


def test_need_waits_while_its_own_wish_forbids_its_gpu() -> None:
    """A pod that wishes another model meanwhile gets none of it for what is parked, and keeps nothing back."""
    gpus = inventory(2, models=["A100", "H100"])
    state = parked(pod("a", wants=1, has=[], ticket=1, model=("H100",)), away(0, needed=True))
    snapshot = world(gpus, [state, pod("b", wants=2, has=[], ticket=2)])
    assert decided(snapshot) == {"a": {}, "b": {0: 1000, 1: 1000}}
    assert not decide(snapshot, NODE)


def test_need_waits_while_it_would_not_be_joined_to_the_rest() -> None:
    """A wish for one island has nothing back on another one; what is on one is joined to nothing elsewhere."""
    gpus = inventory(4, island=2)
    apart = parked(pod("a", wants=2, has=[2], ticket=1, topology="island"), away(0, needed=True))
    snapshot = world(gpus, [apart])
    assert decided(snapshot) == {"a": {2: 1000}}
    assert not decide(snapshot, NODE)
    beside = parked(pod("a", wants=2, has=[1], ticket=1, topology="island"), away(0, needed=True))
    assert decided(world(gpus, [beside])) == {"a": {1: 1000, 0: 1000}}


def test_need_waits_for_memory() -> None:
    """A share comes back with the memory of its wish, where that is free."""
    gpus = tuple(replace(each, gate=True) for each in inventory(1))
    state = parked(pod("a", wants=0.5, memory=50 * GIB, has=[], ticket=1), away(0, milli=500, needed=True))
    assert decided(world(gpus, [state, pod("b", wants=0.5, has={0: 500})])) == {"a": {}, "b": {0: 500}}
    assert decided(world(gpus, [state])) == {"a": {0: 500}}


def test_limit_of_a_model_holds_for_returns() -> None:
    """A GPU that a limit of its model does not permit stays parked, and waits for the limit in no line."""
    gpus = inventory(2, models=["A100", "H100"])
    state = replace(parked(pod("a", wants=2, has=[1]), away(0, needed=True)), model_allowances=(("a100", 0),))
    (decision,) = decide(world(gpus, [state]), NODE)
    assert [share.uuid for share in decision.allocated.shares] == [uuid(1)]
    assert decision.allocated.reason is Reason.LIMIT_EXCEEDED
    assert decision.allocated.ticket is None
    free = replace(state, model_allowances=(("a100", 1000),))
    assert decided(world(gpus, [free])) == {"a": {1: 1000, 0: 1000}}


def test_no_pod_gives_up_what_it_gained_for_one_that_must_have_its_own_gpu() -> None:
    """The end of a circular wait counts GPUs that serve any wish, which is not so for what is parked."""
    waits = replace(_fair(NEEDS, "a"), overdue=True)
    other = _fair(pod("b", wants=2, has=[0], ticket=2), "b")
    assert other.allocated
    other = replace(other, allocated=replace(other.allocated, extra={"had": 0}))
    assert decided(world(1, [waits, other]))["b"] == {0: 1000}
