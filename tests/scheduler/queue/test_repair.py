"""Two records that can't both be true: which pod keeps the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import apply, by_index, pod, world

WHO: dict[str, tuple[list[PodState], dict[str, dict[int, int]]]] = {
    "who has it attached": (
        [pod("a", wants=1, has=[0], attaches=[]), pod("b", wants=1, has=[0])],
        {"a": {}, "b": {0: 1000}},
    ),
    "then who has the lower ticket": (
        [pod("a", wants=2, has=[0], ticket=2), pod("b", wants=2, has=[0], ticket=1)],
        {"a": {}, "b": {0: 1000}},
    ),
    "who has one before who has none": (
        [pod("a", wants=1, has=[0]), pod("b", wants=2, has=[0], ticket=9)],
        {"a": {}, "b": {0: 1000}},
    ),
    "then the older pod": (
        [replace(pod("a", wants=1, has=[0]), created=2.0), replace(pod("b", wants=1, has=[0]), created=1.0)],
        {"a": {}, "b": {0: 1000}},
    ),
    "then by name": ([pod("a", wants=1, has=[0]), pod("b", wants=1, has=[0])], {"a": {0: 1000}, "b": {}}),
    "as many parts as there is room for": (
        [
            pod("a", wants=0.5, has={0: 500}),
            pod("b", wants=0.75, has={0: 750}),
            pod("c", wants=0.5, has={0: 500}),
        ],
        {"a": {0: 500}, "b": {}, "c": {0: 500}},
    ),
    "a promise is nothing while another one drains": (
        [pod("a", wants=1, has=[0], attaches=[]), pod("b", wants=0, has=[], draining=[0])],
        {"a": {}, "b": {}},
    ),
    "who has it open keeps it while another one drains": (
        [pod("a", wants=1, has=[0]), pod("b", wants=0, has=[], draining=[0])],
        {"a": {0: 1000}, "b": {}},
    ),
    "room to grow was promised to two": (
        [pod("a", wants=1, has=[0], attaches={0: 500}), pod("b", wants=0.5, has={0: 500}, attaches=[])],
        {"a": {0: 1000}, "b": {}},
    ),
    "only what is contested is lost": (
        [pod("a", wants=2, has=[0, 1]), pod("b", wants=2, has=[1, 2], attaches=[2])],
        {"a": {0: 1000, 1: 1000}, "b": {2: 1000}},
    ),
    "the dead keep what they have attached": (
        [pod("a", wants=1, has=[0], attaches=[]), pod("b", has=[0], gone=True)],
        {"a": {}, "b": {0: 1000}},
    ),
    "nothing is wrong": (
        [pod("a", wants=0.5, has={0: 500}), pod("b", wants=0.5, has={0: 500})],
        {"a": {0: 500}, "b": {0: 500}},
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in WHO.items()])
def test_one_of_two_claimants_keeps_the_gpu(case: tuple[list[PodState], dict[str, Any]]) -> None:
    """The expected pod keeps the GPU, and a second repair finds nothing more."""
    pods, expected = case
    snapshot = world(3, pods)
    apply(snapshot, repair(snapshot, "node"))
    assert {state.uid: by_index(state.allocated) for state in snapshot.pods("node")} == expected
    assert repair(snapshot, "node") == ()


def test_other_claimant_stands_in_line() -> None:
    """It has lost nothing that it had, and is owed what it was promised."""
    snapshot = world(1, [pod("a", wants=1, has=[0], attaches=[]), pod("b", wants=1, has=[0])])
    steps = repair(snapshot, "node")
    assert [(step.uid, by_index(step.allocated), len(step.removed)) for step in steps] == [("a", {}, 1)]
    apply(snapshot, steps)
    (owed,) = decide(snapshot, "node")
    assert (owed.uid, owed.allocated.ticket, owed.added) == ("a", 1, ())


def test_unknown_node_has_nothing_to_repair() -> None:
    """Nothing is decided for a node that is not known."""
    assert repair(world(1), "elsewhere") == ()
