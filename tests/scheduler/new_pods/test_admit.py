"""The GPUs that a new pod gets with its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.errors import BackendUnavailable, GpuError, Infeasible, InvalidRequest, LimitExceeded, NoCapacity
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.new_pods.admit import Admission, admit, allocate
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from tests.builders import allocated, by_index, cluster, facts, inventory, new, pod, requested

GRANTED: dict[str, tuple[int | Sequence[Gpu], list[PodState], dict[str, Any], dict[int, int]]] = {
    "one": (2, [], {"wants": 1}, {0: 1000}),
    "none": (2, [], {}, {}),
    "none, and said so": (2, [], {"wants": 0}, {}),
    "two of one island": (
        inventory(4, island=2),
        [pod("a", wants=1, has=[0], node="n")],
        {"wants": 2},
        {2: 1000, 3: 1000},
    ),
    "three of one island": (
        inventory(8, island=4),
        [pod("a", wants=2, has=[0, 1], node="n")],
        {"wants": 3},
        {4: 1000, 5: 1000, 6: 1000},
    ),
    "four of two switches on one island": (
        inventory(8, island=4, switch=2),
        [pod("a", wants=1, has=[1], node="n")],
        {"wants": 4},
        dict.fromkeys(range(4, 8), 1000),
    ),
    "two of one switch of an island": (
        inventory(4, island=4, switch=2),
        [pod("a", wants=1, has=[1], node="n")],
        {"wants": 2},
        {2: 1000, 3: 1000},
    ),
    "a part beside another": (2, [pod("a", wants=0.5, has={1: 500}, node="n")], {"wants": 0.5}, {1: 500}),
    "what is left beside who came first": (
        inventory(2, models=["A100", "H100"]),
        [new("a", wants=2, model=("A100",), ticket=1, on="n")],
        {"wants": 1},
        {0: 1000},
    ),
    "what is not kept back": (
        inventory(2, models=["A100", "H100"]),
        [new("a", wants=1, model=("A100",), ticket=1, on="n")],
        {"wants": 1},
        {1: 1000},
    ),
}


def test_own_node_that_has_the_gpus_gives_them_also_to_a_pod_that_may_have_others() -> None:
    """The Binding then names no part of another node."""
    snapshot = cluster({"1": 1, "2": 1})
    me = replace(new("me", wants=1), anywhere=True)
    own = allocate(snapshot, me, "2")
    assert isinstance(own, Allocated)
    assert admit(snapshot, PairChooser(snapshot, PairPolicy()), me, "2") == Admission(own)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in GRANTED.items()])
def test_new_pod_gets_its_gpus_with_its_node(
    case: tuple[int | Sequence[Gpu], list[PodState], dict[str, Any], dict[int, int]],
) -> None:
    """A new pod gets sets from one island or switch, and parts where parts are gone; no other decision follows."""
    gpus, pods, wish, has = case
    snapshot = cluster({"n": gpus}, pods)
    me = new("me", **wish)
    found = allocate(snapshot, me, "n")
    assert isinstance(found, Allocated)
    assert by_index(found) == has
    assert found == Allocated(1 if wish else 0, found.shares)
    assert allocate(snapshot, me, "n") == found
    snapshot.put_pod(replace(me, node="n", allocated=found))
    assert not [step for step in decide(snapshot, "n") if step.uid == "me"]


def test_repeated_bind_changes_nothing() -> None:
    """A bind that is repeated, because its answer was lost, changes nothing whatever came free meanwhile."""
    bound = pod("me", wants=2, has=[1], node="n")
    snapshot = cluster({"n": 4, "m": 4}, [bound, pod("bare", node="n")])
    assert allocate(snapshot, new("me", wants=2), "n") == bound.allocated
    assert allocate(snapshot, new("bare", wants=2), "n") == Allocated(0)
    assert isinstance(allocate(snapshot, new("me", wants=2), "m"), InvalidRequest)


def test_bound_pod_leaves_the_line_and_keeps_unknown_fields() -> None:
    """Ticket, place and nomination end with the wait; fields of a newer version stay."""
    waiting = new("me", wants=1, ticket=3, on="n")
    before = replace(allocated(ticket=3, position=1), extra={NOMINATED: "n", "color": "blue"})
    waiting = replace(waiting, allocated=before, requested=requested(1, 5))
    found = allocate(cluster({"n": 2}, [waiting]), waiting, "n")
    assert isinstance(found, Allocated)
    assert found == Allocated(5, found.shares, extra={"color": "blue"})


@pytest.mark.parametrize(
    ("me", "error", "words"),
    [
        (new("me", wants=3), NoCapacity, "n can't serve this now: only 2 of 4 GPUs are free, 3 wanted."),
        (new("me", wants=5), Infeasible, "n can't serve this: only 4 GPUs, 5 wanted."),
        (new("me", wants=2, limit=1), LimitExceeded, "Your server's limit is 1 GPU,"),
        (new("me", fault="Not to be read."), Infeasible, "Not to be read."),
    ],
)
def test_pod_that_does_not_fit_any_more_is_refused(me: PodState, error: type[GpuError], words: str) -> None:
    """A bind is refused if another pod was faster, or if the pod never fitted."""
    found = allocate(cluster({"n": 4}, [pod("a", wants=2, has=[0, 1], node="n")]), me, "n")
    assert type(found) is error
    assert found.message.startswith(words)


def test_refusal_tells_place_and_free_gpus() -> None:
    """The error carries the pod's place in line and the GPUs that there are."""
    pods = [pod("a", wants=2, has=[0], ticket=4, priority=1, node="n"), pod("b", wants=2, has=[1, 2], node="n")]
    found = allocate(cluster({"n": 4}, pods), new("me", wants=1), "n")
    assert isinstance(found, NoCapacity)
    assert (found.have, found.queue) == (0, 2)


def test_missing_slot_or_inventory_refuses_the_bind() -> None:
    """A node without a slot, or whose GPUs are not known, takes no pod."""
    snapshot = cluster({"n": 4}, about={"n": facts(0)})
    assert isinstance(allocate(snapshot, new("me", wants=1), "n"), NoCapacity)
    assert isinstance(allocate(snapshot, new("me", wants=1), "m"), BackendUnavailable)
