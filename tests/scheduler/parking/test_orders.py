"""Which bundles are parked for pods that wait: one small world for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.parking import ParkCause
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import GIB, NODE, decided, inventory, new, pod, uuid, world

from .pods import away, node, ordered, orders, parked, rests

WAITS = pod("w", wants=1, has=[], ticket=1)
ONE = rests(pod("a", wants=1, has=[0]), 0)
TWO = rests(pod("b", wants=1, has=[1]), 1, since=50)
PAIR = rests(pod("a", wants=2, has=[0, 1]), 0, 1)
HALVES = [
    rests(pod("a", wants=0.5, has={0: 500}), 0, since=50),
    rests(pod("b", wants=0.5, has={0: 500}), 0, since=60),
]


def _of(name: str, state: PodState) -> PodState:
    return replace(state, owner=Owner("User", name))


def _preemptible(state: PodState) -> PodState:
    assert state.requested
    return replace(state, requested=replace(state.requested, extra={"preemptible": True}))


def _wants(wants: float, **fields: object) -> PodState:
    return pod("w", wants=wants, has=[], ticket=1, **fields)  # type: ignore[arg-type]


CASES: dict[str, tuple[int | Sequence[Gpu], list[PodState], dict[str, list[int]]]] = {
    "who rests, for who waits": (1, [ONE, WAITS], {"a": [0]}),
    "nobody, if nobody waits": (1, [ONE], {}),
    "nobody, if a GPU is free": (2, [ONE, WAITS], {}),
    "nobody, if one drains": (2, [ONE, pod("c", wants=0, has=[], draining=[1]), WAITS], {}),
    "nobody, if one is being taken back": (2, [ONE, pod("c", wants=0, has=[], attaches=[1]), WAITS], {}),
    "nobody, if one ends with its pod": (2, [ONE, pod("c", wants=1, has=[1], gone=True), WAITS], {}),
    "nobody who works": (1, [pod("a", wants=1, has=[0]), WAITS], {}),
    "nobody for themselves": (2, [rests(pod("a", wants=2, has=[0], ticket=1), 0), pod("b", wants=1, has=[1])], {}),
    "nobody who is about to give back": (
        1,
        [rests(pod("a", wants=0, has=[0]), 0), WAITS, pod("x", wants=1, has=[], ticket=2)],
        {},
    ),
    "the longest rest": (2, [ONE, TWO, WAITS], {"b": [1]}),
    "the longest rest, though it takes more bytes": (
        2,
        [ONE, rests(pod("b", wants=1, has=[1]), 1, since=50, size=16), WAITS],
        {"b": [1]},
    ),
    "of equal rests the fewest bytes": (
        2,
        [ONE, rests(pod("b", wants=1, has=[1]), 1, size=4), WAITS],
        {"b": [1]},
    ),
    "of equal ones the uid": (2, [ONE, rests(pod("b", wants=1, has=[1]), 1), WAITS], {"a": [0]}),
    "preemptible pods first": (2, [_preemptible(ONE), TWO, WAITS], {"a": [0]}),
    "owners above their guarantee first": (
        3,
        [
            _of("ann", rests(pod("a", wants=1, has=[0]), 0, since=10, guaranteed=1000)),
            _of("bob", rests(pod("b", wants=2, has=[1, 2]), 1, since=50, guaranteed=1000)),
            _of("cid", WAITS),
        ],
        {"b": [1]},
    ),
    "a guarantee does not protect what rests": (
        1,
        [_of("ann", rests(pod("a", wants=1, has=[0]), 0, guaranteed=1000)), _of("bob", WAITS)],
        {"a": [0]},
    ),
    "another pod of the same owner": (1, [_of("ann", ONE), _of("ann", WAITS)], {"a": [0]}),
    "a bundle as a whole": (2, [PAIR, WAITS], {"a": [0, 1]}),
    "one bundle for two pods": (2, [PAIR, WAITS, pod("x", wants=1, has=[], ticket=2)], {"a": [0, 1]}),
    "one for each that waits": (2, [ONE, TWO, WAITS, pod("x", wants=1, has=[], ticket=2)], {"a": [0], "b": [1]}),
    "a part of a running pod's wish": (2, [ONE, pod("c", wants=1, has=[1]), _wants(2)], {"a": [0]}),
    "the rest of a wish": (3, [ONE, TWO, pod("w", wants=2, has=[2], ticket=1)], {"b": [1]}),
    "not for a new pod that then lacks another one": (
        2,
        [ONE, pod("c", wants=1, has=[1]), new("w", wants=2, ticket=1, on=NODE)],
        {},
    ),
    "for a new pod": (1, [ONE, new("w", wants=1, ticket=1, on=NODE)], {"a": [0]}),
    "for two new pods": (
        2,
        [ONE, TWO, new("w", wants=1, ticket=1, on=NODE), new("x", wants=1, ticket=2, on=NODE)],
        {"a": [0], "b": [1]},
    ),
    "not for one that waits for something else": (1, [ONE, new("w", wants=1, ticket=1, on=NODE, blocked=True)], {}),
    "not for a preemptible pod": (1, [ONE, _preemptible(WAITS)], {}),
    "not for one whose limit permits nothing": (1, [ONE, replace(WAITS, allowance=0)], {}),
    "not a GPU to which a share that is in use cannot move": (
        2,
        [TWO, pod("c", wants=0.5, has={0: 500}), pod("w", wants=1, has={0: 500}, busy=[0], ticket=1)],
        {},
    ),
    "a GPU to which a share moves that nobody has open": (
        2,
        [TWO, pod("c", wants=0.5, has={0: 500}), pod("w", wants=1, has={0: 500}, ticket=1)],
        {"b": [1]},
    ),
    "no more than a limit of the model permits": (
        inventory(2, models=["A100"]),
        [ONE, rests(pod("b", wants=1, has=[1]), 1, since=200), replace(_wants(2), model_allowances=(("a100", 1000),))],
        {"a": [0]},
    ),
    "no bundle that another one with more GPUs makes needless": (
        3,
        [rests(pod("a", wants=1, has=[0]), 0, since=10), rests(pod("b", wants=2, has=[1, 2]), 1, 2), _wants(2)],
        {"b": [1, 2]},
    ),
    "nor two of them": (
        3,
        [
            rests(pod("a", wants=0.5, has={0: 500}), 0, since=10),
            rests(pod("b", wants=0.5, has={0: 500}), 0, since=20),
            rests(pod("c", wants=2, has=[1, 2]), 1, 2, since=30),
            _wants(2),
        ],
        {"c": [1, 2]},
    ),
    "not half a GPU for one that wants a whole": (1, [HALVES[0], pod("b", wants=0.5, has={0: 500}), WAITS], {}),
    "both halves for one that wants a whole": (1, [*HALVES, WAITS], {"a": [0], "b": [0]}),
    "one half for one that wants a half": (1, [*HALVES, _wants(0.5)], {"a": [0]}),
    "only the half that helps": (
        1,
        [
            rests(pod("a", wants=0.25, has={0: 250}), 0, since=10),
            rests(pod("b", wants=0.75, has={0: 750}), 0, since=20),
            _wants(0.5),
        ],
        {"b": [0]},
    ),
    "not the model that is wished": (inventory(1, models=["A100"]), [ONE, _wants(1, model=("H100",))], {}),
    "the model that is wished": (
        inventory(2, models=["A100", "H100"]),
        [PAIR, _wants(1, model=("H100",))],
        {"a": [0, 1]},
    ),
    "not on a GPU that is broken": (inventory(1, unhealthy=[0]), [ONE, WAITS], {}),
    "for a new pod that could use what those before it cannot": (
        inventory(2, models=["A100", "H100"]),
        [
            ONE,
            pod("c", wants=1, has=[1]),
            *(new(name, wants=1, ticket=number, on=NODE, model=("H100",)) for number, name in enumerate("wx", start=1)),
            new("z", wants=1, ticket=4, on=NODE, model=("A100",)),
        ],
        {"a": [0]},
    ),
    "not on one that is broken, for the second of two new pods": (
        inventory(2, unhealthy=[1]),
        [ONE, TWO, new("w", wants=1, ticket=1, on=NODE), new("x", wants=1, ticket=2, on=NODE)],
        {"a": [0]},
    ),
    "not where it has no device": (1, [ONE, replace(WAITS, lacks=frozenset({uuid(0)}))], {}),
    "one island": (
        inventory(4, island=2),
        [
            rests(pod("a", wants=2, has=[0, 2]), 0, 2, since=10),
            pod("b", wants=1, has=[1]),
            rests(pod("c", wants=1, has=[3]), 3, since=200),
            _wants(2, topology="island"),
        ],
        {"a": [0, 2], "c": [3]},
    ),
    "the island whose bundles rest longest": (
        inventory(4, island=2),
        [
            rests(pod("a", wants=2, has=[0, 1]), 0, 1, since=60),
            rests(pod("b", wants=2, has=[2, 3]), 2, 3, since=50),
            _wants(2, topology="island"),
        ],
        {"b": [2, 3]},
    ),
    "no island that would not be whole": (
        inventory(2, island=2),
        [ONE, pod("b", wants=1, has=[1]), _wants(2, topology="island")],
        {},
    ),
    "the rest of an island": (
        inventory(4, island=2),
        [
            rests(pod("a", wants=1, has=[0]), 0),
            rests(pod("b", wants=2, has=[2, 3]), 2, 3, since=50),
            pod("w", wants=2, has=[1], ticket=1, topology="island"),
        ],
        {"a": [0]},
    ),
    "another island than the one where it waits in vain": (
        inventory(4, island=2),
        [ONE, TWO, pod("c", wants=1, has=[2]), pod("w", wants=2, has=[3], ticket=1, topology="island")],
        {"a": [0], "b": [1]},
    ),
    "nobody, while it has shares in two islands": (
        inventory(6, island=3),
        [
            rests(pod("a", wants=2, has=[0, 1]), 0, 1),
            pod("b", wants=1, has=[5]),
            pod("w", wants=3, has=[2, 3, 4], busy=[2, 3, 4], ticket=1, topology="island"),
        ],
        {},
    ),
    "no other island than the one that it uses": (
        inventory(4, island=2),
        [ONE, TWO, pod("c", wants=1, has=[2]), pod("w", wants=2, has=[3], busy=[3], ticket=1, topology="island")],
        {},
    ),
    "whoever has the GPU where the data of another one belong": (
        3,
        [ONE, TWO, parked(pod("w", wants=1, has=[], ticket=1), away(0, needed=True))],
        {"a": [0]},
    ),
    "nobody, if that one works": (
        3,
        [pod("a", wants=1, has=[0]), TWO, parked(pod("w", wants=1, has=[], ticket=1), away(0, needed=True))],
        {},
    ),
    "all that a bundle needs": (
        3,
        [ONE, TWO, parked(pod("w", wants=2, has=[], ticket=1), away(0, needed=True), away(1))],
        {"a": [0], "b": [1]},
    ),
    "nothing of it, if one of them works": (
        3,
        [ONE, pod("b", wants=1, has=[1]), parked(pod("w", wants=2, has=[], ticket=1), away(0, needed=True), away(1))],
        {},
    ),
    "not what a limit of its model forbids to come back": (
        inventory(2, models=["A100", "H100"]),
        [
            ONE,
            TWO,
            replace(
                parked(pod("w", wants=2, has=[], ticket=1), away(0, needed=True), away(1, "y", needed=True)),
                model_allowances=(("a100", 0),),
            ),
        ],
        {"b": [1]},
    ),
    "not on a GPU where data of the waiting pod sleep": (1, [ONE, parked(_wants(2), away(0))], {}),
    "an order stands": (2, [ordered(ONE, 0), TWO, WAITS], {"a": [0]}),
    "an order ends if nobody waits": (2, [ordered(ONE, 0)], {}),
    "an order ends if a GPU is free": (2, [ordered(ONE, 0), WAITS], {}),
    "an order ends if it is in use again": (2, [ordered(pod("a", wants=1, has=[0]), 0), TWO, WAITS], {"b": [1]}),
    "an order is for the whole bundle": (2, [ordered(PAIR, 0), WAITS], {"a": [0, 1]}),
    "an order of another cause stands": (
        2,
        [ordered(ONE, 0, cause=ParkCause.IDLE), TWO, WAITS],
        {"a": [0]},
    ),
    "that ends with the share": (
        2,
        [ordered(pod("a", wants=0, has=[0]), 0, cause=ParkCause.IDLE)],
        {},
    ),
    "four at a time": (
        6,
        [
            *(rests(pod(name, wants=1, has=[number]), number) for number, name in enumerate("abcdef")),
            _wants(6),
        ],
        {"a": [0], "b": [1], "c": [2], "d": [3]},
    ),
    "what is ordered counts": (
        6,
        [
            *(ordered(rests(pod(name, wants=1, has=[number]), number), number) for number, name in enumerate("fed")),
            ordered(pod("c", wants=1, has=[3]), 3, cause=ParkCause.LIMIT),
            *(rests(pod(name, wants=1, has=[number]), number) for number, name in ((4, "a"), (5, "b"))),
            _wants(6),
        ],
        {"f": [0], "e": [1], "d": [2], "c": [3]},
    ),
}


@pytest.mark.parametrize(("gpus", "pods", "expected"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("fair", [False, True])
def test_who_is_parked(
    gpus: int | Sequence[Gpu], pods: list[PodState], expected: dict[str, list[int]], fair: bool
) -> None:
    """Each of the rules above, in both kinds of lines; deciding again changes nothing."""
    if fair:
        pods = [replace(each, standing=OwnerStanding(each.holds)) for each in pods]
    snapshot = node(gpus, pods)
    assert orders(snapshot) == expected
    assert not decide(snapshot, NODE)


BEHIND = [
    ONE,
    pod("c", wants=1, has=[1]),
    *(new(name, wants=2, ticket=number, on=NODE) for number, name in enumerate("wxy", start=1)),
    pod("z", wants=1, has=[], ticket=4),
]


@pytest.mark.parametrize(
    ("pods", "fair", "expected"),
    [
        pytest.param(BEHIND, False, {}, id="line"),
        pytest.param(BEHIND, True, {"a": [0]}, id="fair line"),
        pytest.param(
            [replace(each, overdue=each.uid == "w") for each in BEHIND], True, {}, id="fair line, one waited too long"
        ),
        pytest.param(
            [ONE, _preemptible(WAITS), pod("z", wants=1, has=[], ticket=4)], False, {}, id="behind a preemptible pod"
        ),
    ],
)
def test_nobody_is_parked_for_what_is_kept_back(
    pods: list[PodState], fair: bool, expected: dict[str, list[int]]
) -> None:
    """GPUs for which a pod before it waits, and nobody can make room for, would not be given to the one behind."""
    if fair:
        pods = [replace(each, standing=OwnerStanding(each.holds)) for each in pods]
    assert orders(node(2 if len(pods) > 3 else 1, pods)) == expected


def test_gpu_that_vanished_is_parked_for_nobody() -> None:
    """The rest of its bundle still makes room."""
    snapshot = node(inventory(2)[1:], [rests(pod("a", wants=1, has=[1]), 1), WAITS])
    assert orders(snapshot) == {"a": [1]}


def test_nobody_is_parked_by_default() -> None:
    """Orders that were written while it was switched on end."""
    snapshot = world(1, [ordered(ONE, 0), WAITS])
    decided(snapshot)
    state = snapshot.pod("a")
    assert state
    assert state.allocated
    assert not state.allocated.park


def test_guest_holds_no_room() -> None:
    """A guest goes away by itself when a pod waits for the GPU."""
    guest = _preemptible(pod("g", wants=0.5, has=[], ticket=5))
    assert guest.allocated
    guest = replace(guest, allocated=replace(guest.allocated, shares=(GpuShare(uuid(0), 0, GIB),)))
    assert orders(node(1, [ONE, guest, WAITS])) == {"a": [0]}


def test_memory_makes_room_too() -> None:
    """A share that records its memory is parked for one that needs this memory, not for one that finds room beside."""
    gpus = tuple(replace(each, gate=True) for each in inventory(1))
    held = rests(pod("a", wants=0.25, memory=60 * GIB, has={0: 250}), 0)
    assert held.allocated
    assert held.attached
    share = (GpuShare(uuid(0), 250, 60 * GIB),)
    held = replace(held, allocated=replace(held.allocated, shares=share), attached=replace(held.attached, shares=share))
    assert orders(node(gpus, [held, _wants(0.25, memory=30 * GIB)])) == {"a": [0]}
    assert orders(node(gpus, [held, _wants(0.25, memory=10 * GIB)])) == {}


def test_parked_gpu_goes_to_the_one_that_waited() -> None:
    """The order ends with the share, and who waits has the GPU in the same pass."""
    done = parked(ordered(pod("a", wants=1, has=[0], attaches=[]), 0), away(0))
    snapshot = node(1, [done, WAITS])
    assert orders(snapshot) == {}
    assert decided(snapshot) == {"a": {}, "w": {0: 1000}}
