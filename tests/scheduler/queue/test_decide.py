"""Shares that pods gain and lose: one small world for each rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, allocated, decided, inventory, pod, requested, shares, wish, world

World = tuple[int | tuple[Gpu, ...], list[PodState], dict[str, dict[int, int]]]

GROW: dict[str, World] = {
    "no part is taken for the whole that is owed": (
        4,
        [pod("a", wants=1.5, has={0: 500}), pod("b", wants=1, each=250, has=dict.fromkeys(range(4), 250))],
        {"a": {0: 500}, "b": dict.fromkeys(range(4), 250)},
    ),
    "in place, though it still holds another one": (
        2,
        [pod("a", wants=1, has={0: 500}, draining=[1])],
        {"a": {0: 1000}},
    ),
    "two halves in use become a whole where there is room": (
        2,
        [pod("a", wants=1, has={0: 500, 1: 500}, busy=[0, 1]), pod("b", wants=0.5, has={0: 500})],
        {"a": {1: 1000}, "b": {0: 500}},
    ),
    "the half never goes where its memory is too small": (
        inventory(3, memory=[40, 80, 40]),
        [pod("a", wants=1.5, has=[0], memory=40 * GIB), pod("b", wants=0.75, has={1: 750})],
        {"a": {0: 1000}, "b": {1: 750}},
    ),
    "the smaller island that is large enough": (
        inventory(5, island=3),
        [pod("a", wants=2, topology="island")],
        {"a": {3: 1000, 4: 1000}},
    ),
    "all of it": (4, [pod("a", wants=2)], {"a": {0: 1000, 1: 1000}}),
    "part of it, the rest is owed": (
        4,
        [pod("a", wants=3, has=[0]), pod("b", has=[1, 2], wants=2)],
        {"a": {0: 1000, 3: 1000}, "b": {1: 1000, 2: 1000}},
    ),
    "a whole and a half": (3, [pod("a", wants=1.5, has=[0])], {"a": {0: 1000, 1: 500}}),
    "a part beside others": (
        3,
        [pod("a", wants=0.5), pod("b", wants=0.5, has={1: 500})],
        {"a": {1: 500}, "b": {1: 500}},
    ),
    "halves on different GPUs": (3, [pod("a", wants=1, each=500)], {"a": {0: 500, 1: 500}}),
    "a larger part where it is": (2, [pod("a", wants=0.75, has={1: 500}, busy=[1])], {"a": {1: 750}}),
    "a whole where its half is": (2, [pod("a", wants=1, has={1: 500}, busy=[1])], {"a": {1: 1000}}),
    "idle, without room: it moves": (
        2,
        [pod("a", wants=1, has={0: 500}), pod("b", wants=0.5, has={0: 500})],
        {"a": {1: 1000}, "b": {0: 500}},
    ),
    "in use, without room: it waits in place": (
        2,
        [pod("a", wants=1, has={0: 500}, busy=[0]), pod("b", wants=0.5, has={0: 500})],
        {"a": {0: 500}, "b": {0: 500}},
    ),
    "idle, no room anywhere: it stays": (
        1,
        [pod("a", wants=1, has={0: 500}), pod("b", wants=0.5, has={0: 500})],
        {"a": {0: 500}, "b": {0: 500}},
    ),
    "two halves become a whole": (2, [pod("a", wants=1, has={0: 500, 1: 500})], {"a": {0: 1000}}),
    "two halves become a whole where there is room": (
        2,
        [pod("a", wants=1, has={0: 500, 1: 500}), pod("b", wants=0.5, has={0: 500})],
        {"a": {1: 1000}, "b": {0: 500}},
    ),
    "a whole becomes two halves": (2, [pod("a", wants=1, has=[1], each=500)], {"a": {1: 500, 0: 500}}),
    "one half may become the whole, if another half is free": (
        3,
        [pod("a", wants=1.5, has={0: 500}), pod("b", wants=1.5, has={1: 1000, 2: 500})],
        {"a": {0: 1000, 2: 500}, "b": {1: 1000, 2: 500}},
    ),
    "a cancelled shrink takes back its own": (
        3,
        [pod("a", wants=2, has=[0], draining=[2])],
        {"a": {0: 1000, 2: 1000}},
    ),
    "what another one is closing is not free": (
        1,
        [pod("a", wants=1), pod("b", wants=0, has=[], draining=[0])],
        {"a": {}, "b": {}},
    ),
    "what another one still has attached is not free": (
        1,
        [pod("a", wants=1), pod("b", wants=0, has=[], attaches=[0])],
        {"a": {}, "b": {}},
    ),
    "what is not attached yet may be opened just now: revoked, it is not free": (
        1,
        [pod("a", wants=1), pod("b", wants=0, has=[0], attaches=[])],
        {"a": {}, "b": {}},
    ),
    "what is given back by one behind is kept for the one before until it is closed": (
        inventory(2, models=["A100", "H100"]),
        [pod("a", wants=1, model=("A100",)), pod("b", wants=1, has=[0], attaches=[], model=("H100",))],
        {"a": {}, "b": {1: 1000}},
    ),
    "a broken GPU is not granted": (inventory(2, unhealthy=[0]), [pod("a", wants=2)], {"a": {1: 1000}}),
    "a broken GPU is kept while nothing changes": (
        inventory(2, unhealthy=[0]),
        [pod("a", wants=1, has=[0])],
        {"a": {0: 1000}},
    ),
    "a share on a broken GPU does not grow there": (
        inventory(2, unhealthy=[0]),
        [pod("a", wants=1, has={0: 500}, busy=[0])],
        {"a": {1: 1000}},
    ),
    "a GPU that vanished is owed again": (
        (*inventory(1), *inventory(3)[2:]),
        [pod("a", wants=2, has=[0, 1])],
        {"a": {0: 1000, 2: 1000}},
    ),
    "the model changes": (
        inventory(2, models=["A100", "H100"]),
        [pod("a", wants=1, has=[0], model=("h100",))],
        {"a": {1: 1000}},
    ),
    "an island": (
        inventory(4, island=2),
        [pod("a", wants=2, has=[1], topology="island"), pod("b", wants=1, has=[2])],
        {"a": {1: 1000, 0: 1000}, "b": {2: 1000}},
    ),
    "an island that is only partly free": (
        inventory(4, island=2),
        [pod("a", wants=2, topology="island"), pod("b", wants=2, has=[0, 2])],
        {"a": {1: 1000}, "b": {0: 1000, 2: 1000}},
    ),
    "idle, and another island has all": (
        inventory(4, island=2),
        [pod("a", wants=2, has=[1], topology="island"), pod("b", wants=1, has=[0])],
        {"a": {2: 1000, 3: 1000}, "b": {0: 1000}},
    ),
    "in use, and another island has all": (
        inventory(4, island=2),
        [pod("a", wants=2, has=[1], busy=[1], topology="island"), pod("b", wants=1, has=[0])],
        {"a": {1: 1000}, "b": {0: 1000}},
    ),
    "an island with a broken GPU comes last": (
        inventory(4, island=2, unhealthy=[0]),
        [pod("a", wants=2, topology="island"), pod("b", wants=2, has=[2, 3])],
        {"a": {}, "b": {2: 1000, 3: 1000}},
    ),
    "two islands become one: least in use is lost": (
        inventory(4, island=2),
        [pod("a", wants=2, has=[0, 2], busy=[2], topology="island")],
        {"a": {2: 1000, 3: 1000}},
    ),
}

SHRINK: dict[str, World] = {
    "the whole stays, the half does not grow": (2, [pod("a", wants=1, has={0: 500, 1: 1000})], {"a": {1: 1000}}),
    "to one and a half: what is in use stays whole": (
        2,
        [pod("a", wants=1.5, has=[0, 1], busy=[1])],
        {"a": {0: 500, 1: 1000}},
    ),
    "three to one and a half: the idle one": (
        3,
        [pod("a", wants=1.5, has=[0, 1, 2], busy=[0, 2])],
        {"a": {0: 1000, 2: 500}},
    ),
    "three to one and a half: the broken one": (
        inventory(3, unhealthy=[0]),
        [pod("a", wants=1.5, has=[0, 1, 2])],
        {"a": {1: 1000, 2: 500}},
    ),
    "the half stays the half": (
        3,
        [pod("a", wants=1.5, has={1: 1000, 2: 1000, 0: 500})],
        {"a": {1: 1000, 0: 500}},
    ),
    "nothing wanted": (2, [pod("a", wants=0, has=[0, 1], busy=[0])], {"a": {}}),
    "no wish any more": (2, [pod("a", has=[0, 1])], {"a": {}}),
    "the newest": (3, [pod("a", wants=2, has=[2, 0, 1])], {"a": {2: 1000, 0: 1000}}),
    "the idle before the newest": (3, [pod("a", wants=1, has=[2, 0, 1], busy=[0])], {"a": {0: 1000}}),
    "the broken before the idle": (
        inventory(3, unhealthy=[2]),
        [pod("a", wants=2, has=[2, 0, 1], busy=[2])],
        {"a": {0: 1000, 1: 1000}},
    ),
    "the half before a whole": (3, [pod("a", wants=2, has={0: 500, 1: 1000, 2: 1000})], {"a": {1: 1000, 2: 1000}}),
    "to a half, where it is in use": (2, [pod("a", wants=0.5, has=[0, 1], busy=[1])], {"a": {1: 500}}),
    "the half in use is kept": (2, [pod("a", wants=0.5, has={0: 1000, 1: 500}, busy=[1])], {"a": {1: 500}}),
    "to one and a half": (2, [pod("a", wants=1.5, has=[0, 1])], {"a": {0: 1000, 1: 500}}),
    "a part of a broken GPU is replaced when it changes": (
        inventory(2, unhealthy=[0]),
        [pod("a", wants=0.5, has=[0])],
        {"a": {1: 500}},
    ),
    "a part of a broken GPU shrinks in place where there is no other": (
        inventory(1, unhealthy=[0]),
        [pod("a", wants=0.5, has=[0])],
        {"a": {0: 500}},
    ),
}

LINE: dict[str, World] = {
    "who waits and is idle keeps any GPU that it could move to": (
        2,
        [
            pod("a", wants=1, has={0: 500}, ticket=1),
            pod("b", wants=0.5),
            pod("c", wants=0.5, has={0: 500}),
            pod("d", wants=0.5, has={1: 500}),
        ],
        {"a": {0: 500}, "b": {}, "c": {0: 500}, "d": {1: 500}},
    ),
    "who waits in place keeps the room there": (
        2,
        [
            pod("a", wants=1, has={0: 500}, busy=[0], ticket=1),
            pod("b", wants=0.25),
            pod("c", wants=0.25, has={0: 250}),
            pod("d", wants=1, has=[1]),
        ],
        {"a": {0: 500}, "b": {}, "c": {0: 250}, "d": {1: 1000}},
    ),
    "who came first": (1, [pod("a", wants=1, ticket=2), pod("b", wants=1, ticket=1)], {"a": {}, "b": {0: 1000}}),
    "priority before age": (1, [pod("a", wants=1, ticket=1), pod("b", wants=1, priority=1)], {"a": {}, "b": {0: 1000}}),
    "a new one does not overtake": (
        2,
        [pod("a", wants=2, has=[0], ticket=1), pod("b", wants=1)],
        {"a": {0: 1000, 1: 1000}, "b": {}},
    ),
    "a part that the first cannot use yet is kept for it": (
        1,
        [pod("a", wants=1, ticket=1), pod("b", wants=0.25), pod("c", wants=0.5, has={0: 500})],
        {"a": {}, "b": {}, "c": {0: 500}},
    ),
    "what the first cannot use is not held back": (
        inventory(2, models=["A100", "H100"]),
        [pod("a", wants=1, ticket=1, model=("A100",)), pod("b", wants=1), pod("c", wants=1, has=[0])],
        {"a": {}, "b": {1: 1000}, "c": {0: 1000}},
    ),
    "nor what has too little memory for it": (
        inventory(2, memory=[80, 40]),
        [pod("a", wants=1, ticket=1, memory=60 * GIB), pod("b", wants=1), pod("c", wants=1, has=[0])],
        {"a": {}, "b": {1: 1000}, "c": {0: 1000}},
    ),
    "nor what is on an island too small for it": (
        inventory(3, island=2),
        [pod("a", wants=2, ticket=1, topology="island"), pod("b", wants=1), pod("c", wants=2, has=[0, 1])],
        {"a": {}, "b": {2: 1000}, "c": {0: 1000, 1: 1000}},
    ),
    "nor other GPUs than the one it grows on": (
        2,
        [pod("a", wants=1, has={0: 500}, busy=[0], ticket=1), pod("b", wants=1), pod("c", wants=0.5, has={0: 500})],
        {"a": {0: 500}, "b": {1: 1000}, "c": {0: 500}},
    ),
    "nor the other half of a GPU where it needs no more": (
        2,
        [pod("a", wants=1, has={0: 500}, each=500, ticket=1), pod("b", wants=0.5), pod("c", wants=1, has=[1])],
        {"a": {0: 500}, "b": {0: 500}, "c": {1: 1000}},
    ),
    "who waits takes back what it still holds": (
        2,
        [pod("a", wants=2, ticket=1), pod("b", wants=1, has=[], draining=[0]), pod("c", wants=1, has=[1])],
        {"a": {}, "b": {0: 1000}, "c": {1: 1000}},
    ),
    "the dead stand in no line": (
        1,
        [pod("a", wants=1, ticket=1, gone=True), pod("b", wants=1)],
        {"a": {}, "b": {0: 1000}},
    ),
    "the dead keep what they hold until they are removed": (
        1,
        [pod("a", wants=0, has=[0], gone=True), pod("b", wants=1)],
        {"a": {0: 1000}, "b": {}},
    ),
    "who is refused stands in no line": (
        1,
        [pod("a", wants=1, limit=0.5, ticket=1), pod("b", wants=1)],
        {"a": {}, "b": {0: 1000}},
    ),
}


def _cases(worlds: dict[str, World]) -> Iterable[Any]:
    return [pytest.param(*case, id=name) for name, case in worlds.items()]


@pytest.mark.parametrize(("gpus", "pods", "expected"), [*_cases(GROW), *_cases(SHRINK), *_cases(LINE)])
def test_decision_gives_the_expected_shares(
    gpus: int | tuple[Gpu, ...], pods: list[PodState], expected: dict[str, Any]
) -> None:
    """Each pod has the expected shares after one decision, oldest first; the next one changes nothing."""
    snapshot = world(gpus, pods)
    found = decided(snapshot)
    assert {uid: list(has.items()) for uid, has in found.items()} == {
        uid: list(has.items()) for uid, has in expected.items()
    }
    assert decide(snapshot, "node") == ()


def answers(snapshot: ClusterSnapshot) -> dict[str, Decision]:
    """Decisions by uid."""
    return {decision.uid: decision for decision in decide(snapshot, "node")}


def test_decision_lists_its_changes() -> None:
    """Shares that come and go; one that changes its size does both."""
    decision = answers(world(3, [pod("a", wants=requested(1.5, 7).wish, has=[0, 1])]))["a"]
    assert decision.removed == shares([1])
    assert decision.added == shares({1: 500})
    assert decision.allocated == Allocated(1, shares({0: 1000, 1: 500}), revision=1, revoked=shares([1]))


def test_losing_pods_come_before_gaining_ones() -> None:
    """Applied in their order, the decisions never give what is not free yet; then in line order."""
    snapshot = world(
        2,
        [
            pod("a", wants=1, ticket=2),
            pod("b", wants=1, ticket=1),
            pod("c", wants=9, has=[]),
            pod("d", wants=0, has=[0, 1], attaches=[]),
        ],
    )
    assert [decision.uid for decision in decide(snapshot, "node")] == ["d", "b", "a", "c"]


def test_ticket_lasts_while_something_is_owed() -> None:
    """A ticket is taken once, kept while something is owed, and gone when the pod is served."""
    snapshot = world(
        4,
        [
            pod("new", wants=1),
            pod("older", wants=3, has=[0], ticket=5),
            pod("urgent", wants=1, priority=9),
            pod("served", wants=1, has=[1], ticket=4),
            pod("other", wants=1, has=[2]),
        ],
    )
    found = {
        uid: (decision.allocated.ticket, decision.allocated.position) for uid, decision in answers(snapshot).items()
    }
    assert found == {
        "urgent": (None, None),
        "older": (5, 1),
        "served": (None, None),
        "new": (6, 2),
    }


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        (pod("a", wants=2, has=[], limit=1), Reason.LIMIT_EXCEEDED, "Your server's limit is 1 GPU,"),
        (pod("a", wants=3, has=[]), Reason.INFEASIBLE, "Only 2 GPUs"),
        (pod("a", wants=1), Reason.DEFERRED, "1 GPU is owed; not enough is free now."),
        (pod("a", wants=2), Reason.DEFERRED, "2 GPUs are owed; not enough is free now."),
        (pod("a", wants=0.5), Reason.DEFERRED, "0.5 GPU is owed; not enough is free now."),
    ],
)
def test_decision_says_the_reason(state: PodState, reason: Reason, message: str) -> None:
    """A pod that lacks GPUs has a reason for programs and a message for the reader of the annotation."""
    found = answers(world(2, [state, pod("z", wants=2, has=[0, 1])]))["a"].allocated
    assert found.reason is reason
    assert found.message.startswith(message)
    assert found.observed_generation == 1


@pytest.mark.parametrize(
    ("wants", "message"),
    [
        (2, "1 of 2 GPUs; 1 more is owed."),
        (3, "1 of 3 GPUs; 2 more are owed."),
        (1.5, "1 of 1.5 GPUs; 0.5 more is owed."),
    ],
)
def test_partial_grant_names_the_amount_owed(wants: float, message: str) -> None:
    """The message says what the pod has and what it is owed, and mentions no other pod."""
    found = answers(world(3, [pod("a", wants=wants, has=[0]), pod("z", wants=2, has=[1, 2])]))["a"].allocated
    assert (found.reason, found.message) == (Reason.PARTIAL, message)


@pytest.mark.parametrize("state", [pod("a", wants=2, has=[0], limit=1), pod("a", wants=9, has=[0])])
def test_a_refusal_takes_nothing(state: PodState) -> None:
    """The pod gets the reason and loses its place in line, and all that it has stays."""
    waiting = replace(state, allocated=replace(state.allocated or allocated(), observed_generation=0, ticket=3))
    decision = answers(world(2, [waiting]))["a"]
    assert (decision.added, decision.removed) == ((), ())
    assert decision.allocated.shares == shares([0])
    assert decision.allocated.observed_generation == 1
    assert decision.allocated.ticket is None


def test_limit_below_the_grant_takes_nothing() -> None:
    """A lower limit takes nothing that was granted, but says so."""
    found = answers(world(2, [pod("a", wants=2, has=[0, 1], limit=1)]))["a"]
    assert (found.allocated.reason, found.removed) == (Reason.LIMIT_EXCEEDED, ())


def test_a_refused_share_on_a_vanished_gpu_is_dropped() -> None:
    """A vanished GPU is not allocated, whatever else holds."""
    found = answers(world(1, [pod("a", wants=2, has=[0, 1])]))["a"]
    assert found.allocated.reason is Reason.INFEASIBLE
    assert found.removed == shares([1])


def test_unknown_fields_are_kept() -> None:
    """Fields of a newer version survive a rewrite."""
    old = Allocated(0, extra={"color": "blue"})
    found = answers(world(1, [replace(pod("a", wants=1), allocated=old)]))["a"]
    assert found.allocated.extra == {"color": "blue"}


def test_nothing_is_decided_without_a_wish_or_a_node() -> None:
    """A node that is not known yet is not a node without GPUs: its pods lose nothing."""
    assert decide(world(1, [pod("a")]), "node") == ()
    assert decide(world(1, [pod("a", wants=0, has=[0], node="elsewhere")]), "elsewhere") == ()
    assert answers(world(1, [pod("a", wants=0)]))["a"].allocated == Allocated(1)


def test_records_that_contradict_each_other_give_nothing_more_away() -> None:
    """Two pods that both claim a GPU keep what they claim, and no other pod gets a part of it."""
    snapshot = world(1, [pod("a", wants=1, has=[0]), pod("b", wants=1, has=[0]), pod("c", wants=0.5)])
    assert decided(snapshot) == {"a": {0: 1000}, "b": {0: 1000}, "c": {}}


def test_a_large_node_is_decided_in_full() -> None:
    """Everything at once on 256 GPUs, the most an inventory can have."""
    pods = [pod(f"p{number:03}", wants=wish(1.5)) for number in range(170)]
    found = decided(world(inventory(256, island=8, switch=4), pods))
    assert sum(milli for has in found.values() for milli in has.values()) == 170 * 1500


def test_unreadable_wish_takes_nothing() -> None:
    """The pod keeps what it has and gets the reason; pods behind it are served meanwhile."""
    bad = replace(pod("a", has=[0], ticket=1), fault="requested cannot be read.")
    found = answers(world(2, [bad, pod("b", wants=1)]))
    assert found["a"].removed == ()
    assert found["a"].allocated == Allocated(1, shares([0]), Reason.INFEASIBLE, "requested cannot be read.")
    assert found["b"].added == shares([1])


def lacking(one: PodState, *indices: int) -> PodState:
    """The pod's containers have no device of these GPUs."""
    return replace(one, lacks=frozenset(f"GPU-{index}" for index in indices))


@pytest.mark.parametrize(
    ("wants", "has", "after"),
    [
        (2, [0], {0: 1000, 2: 1000}),  # the next one that it can use
        (2, [0, 1], {0: 1000, 2: 1000}),  # what it was given and can't use is given back
        (1, [0], {0: 1000}),
        (3, [0], {0: 1000}),  # refused
        (0, [0, 1], {}),
    ],
)
def test_gpu_that_came_after_the_container_is_not_given_to_it(
    wants: int, has: list[int], after: dict[int, int]
) -> None:
    """Other pods may have the GPU; a second decision changes nothing; more than the pod can use is refused, with what
    to do.
    """
    snapshot = world(3, [lacking(pod("a", wants=wants, has=has), 1), pod("b", wants=1)])
    found = {decision.uid: decision.allocated for decision in decide(snapshot, "node")}
    known = snapshot.pod("a")
    assert known
    now = found.get("a", known.allocated)
    assert now
    assert now.shares == shares(after)
    if wants == 3:
        assert now.reason is Reason.INFEASIBLE
        assert "Some GPUs came to this node after this server was started" in now.message
    else:
        assert now.reason is None
    assert found["b"].shares == shares([] if wants and 1 in has else [1] if wants else [2])


def test_wish_beyond_the_node_is_refused_as_usual() -> None:
    """A wish that the whole node cannot serve has the usual reason, as a new container would not help."""
    (decision,) = decide(world(2, [lacking(pod("a", wants=3, has=[0]), 1)]), "node")
    assert decision.allocated.reason is Reason.INFEASIBLE
    assert "came to this node" not in decision.allocated.message
