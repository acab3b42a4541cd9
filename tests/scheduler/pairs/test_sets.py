"""Sets: GPUs on one node. Served by the own node, else whole by one other node; never at the cost of what is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.service import WorkerPart
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.sets import Left, alone, has_set, kept, left, set_of
from jupyter_gpu_scheduler.rules.pairs.split import granted
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from tests.builders import facts, inventory
from tests.scheduler.pairs.test_split import RULES, World, opened, shares_of

PART = WorkerPart("w1", "n2", 2000)


def test_what_is_left_beside_a_set() -> None:
    """Without one only the rest; the own node has the larger of both; beside one elsewhere it keeps what it has."""
    assert left(Wish(3000), (PART,), 1000) == Left(1000, 1000, 1000)
    waits = Wish(1000, set=2000)
    assert left(waits, (), 1000) == Left(3000, 2000, 1000), "one here and two elsewhere, or two here"
    assert left(waits, (), 0) == Left(2000, 2000, 1000)
    assert left(waits, (PART,), 1000) == Left(1000, 1000, 1000), "it keeps what it has"
    assert left(waits, (PART,), 0) == Left(0, 0, 0), "the set counts for the rest"
    assert left(waits, (PART,), 2000) == Left(0, 0, 0), "both have it: one is too many"
    assert left(Wish(MAX_MILLI, set=MAX_MILLI), (), 1).milli == MAX_MILLI
    assert (kept(waits, 500), kept(waits, 1500), kept(waits, 2000)) == (500, 1000, 0)
    assert (has_set((PART,), waits), has_set((PART,), Wish(2000)), has_set((), waits)) == (True, False, False)
    assert alone(Wish(2000, base=1000, set=2000)) == Wish(1000, set=2000), "nothing else raises it"
    for wish in (Wish(3000, base=1000, set=2000), Wish(2000, set=2000), Wish(2000, base=1000)):
        assert alone(wish) is wish
    assert [set_of(Wish(3000, set=2000, topology=word)) for word in (None, "any", "island", "switch")] == [
        *(2000, 2000),
        *(3000, 3000),
    ]


def sets(wants: object, size: float, **fields: Any) -> dict[str, Any]:
    """Return the fields of a wish with a set of so many GPUs."""
    return {"wants": wants, "set": round(size * 1000), **fields}


@pytest.mark.parametrize(
    ("nodes", "fields", "shape"),
    [
        ({"n1": 2, "n2": 2}, sets(1, 2), {"n1": 2000}),
        ({"n1": 1, "n2": 1, "n3": 2}, sets(2, 2), {"n1": 0, "n3": 2000}),
        ({"n1": 1, "n2": 1, "n3": 2}, sets(4, 2), {"n1": 1000, "n2": 1000, "n3": 2000}),
        ({"n1": 1, "n2": 4}, sets(4, 2), {"n1": 1000, "n2": 3000}),
        ({"n1": 1, "n2": 1, "n3": 1}, sets(2, 2), {"n1": 1000, "n2": 1000}),
        ({"n1": 1, "n2": 1, "n3": 1}, sets(2, 2, base=0), {"n1": 0}),
        ({"n1": 1, "n2": 1, "n3": 2}, sets(3, 2, base=0), {"n1": 1000, "n3": 2000}),
        ({"n1": 2, "n2": 1}, sets(0, 2), {"n1": 2000}),
        ({"n1": 1, "n2": 1}, sets(0, 2), {"n1": 0}),
        ({"n1": 1, "n2": 2}, sets(1, 2, placement="local"), {"n1": 1000}),
        ({"n1": 2, "n2": 2}, sets(1, 2, placement="local"), {"n1": 2000}),
        ({"n1": 1, "n2": inventory(4, island=2)}, sets(0, 2, topology="island"), {"n1": 0, "n2": 2000}),
        ({"n1": 1, "n2": 2}, sets(0, 0.9, each=300), {"n1": 0}),
        ({"n1": 1, "n2": 3}, sets(0, 0.9, each=300), {"n1": 0, "n2": 900}),
    ],
)
def test_set_is_on_one_node(nodes: Mapping[str, Any], fields: dict[str, Any], shape: Mapping[str, int]) -> None:
    """On the own node, else whole on another; nowhere in pieces. The rest of the wish is served as ever."""
    world = World(nodes)
    world.notebook("a", **fields)
    world.settle()
    assert {node: milli for node, milli in world.shape("a").items() if milli or node == "n1"} == shape


def test_set_beside_what_the_kernel_has() -> None:
    """A cell's two GPUs come beside the one of the slider; at its end they go, and the one stays here."""
    world = World({"n1": 1, "n2": 2})
    world.notebook("a", 1)
    world.settle()
    world.use("a", 0)
    world.notebook("a", **sets(2, 2, base=1000))
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}
    world.use("a-w1", 10, 11)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}
    world.use("a-w1")
    world.notebook("a", 1)
    world.settle()
    assert world.shape("a") == {"n1": 1000}


def test_set_of_a_worker_that_is_there() -> None:
    """Its node gives the GPU that is missing, though another would give both."""
    world = World({"n1": 0, "n2": 2, "n3": 0})
    world.notebook("a", 1)
    world.settle()
    world.snapshot.put_node("n3", inventory(3), facts())
    world.notebook("a", **sets(2, 2, base=1000))
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}


def test_part_in_use_stays_beside_a_set() -> None:
    """The slider's one on a node that has no more: the set of two is on another, and what works goes on."""
    world = World({"n1": 0, "n2": 1, "n3": 0})
    world.notebook("a", 1)
    world.settle()
    world.use("a-w1", 10)
    world.snapshot.put_node("n3", tuple(replace(gpu, uuid=f"new-{gpu.index}") for gpu in inventory(2)), facts())
    world.notebook("a", **sets(2, 2, base=1000))
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 1000, "n3": 2000}
    world.use("a-w1")
    world.settle()
    assert world.shape("a") == {"n1": 0, "n3": 2000}, "nothing uses it, so the set counts for it"


def test_shrink_leaves_the_set() -> None:
    """Two of three that work there stay, and what the own node has; then, without the set, no more than is wished."""
    world = World({"n1": 1, "n2": 3})
    world.notebook("a", **sets(4, 2))
    world.settle()
    world.use("a", 0)
    world.use("a-w1", 10, 11, 12)
    world.notebook("a", **sets(2, 2, base=1000))
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}
    world.notebook("a", 1)
    world.settle()
    assert world.shape("a") == {"n1": 1000}


def test_set_comes_home_whole() -> None:
    """Not before the own node can serve all of it, and not while a program has it open."""
    world = World({"n1": 2, "n2": 2})
    world.notebook("other", 2)
    world.settle()
    world.notebook("a", **sets(0, 2))
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.notebook("other", 1)
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.use("a-w1", 10)
    world.notebook("other", 0)
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.use("a-w1")
    world.settle()
    assert world.shape("a") == {"n1": 2000}


def test_set_moves_whole_from_a_node_that_fails() -> None:
    """To another that serves all of it; where there is none it stays, and so it does once a program has opened it."""
    world = World({"n1": 0, "n2": 2, "n3": 1})
    world.notebook("a", **sets(2, 2))
    world.divide("a")
    world.failed.add("a-w1")
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.snapshot.put_node("n3", tuple(replace(gpu, uuid=f"new-{gpu.index}") for gpu in inventory(2)), facts())
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n3": 2000}


@pytest.mark.parametrize("limit", [None, PodLimit(None, None)])
def test_surplus_beside_a_set_comes_home_alone(limit: PodLimit | None) -> None:
    """The own node can serve one of three closed ones: the set stays where it is. So it is in a fair line."""
    world = World({"n1": 1, "n2": 3})
    world.notebook("other", 1)
    world.settle()
    world.notebook("a", **sets(3, 2))
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 3000}
    world.snapshot.put_pod(replace(world.state("a"), pod_limit=limit))
    world.notebook("other", 0)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}


AMOUNTS = some.sampled_from([0, 1, 2, 3])
STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("wish"), some.sampled_from("ab"), some.tuples(AMOUNTS, AMOUNTS)),
        some.tuples(some.just("open"), some.sampled_from(["a", "b", "a-w1", "b-w1", "a-w2"]), some.booleans()),
        some.tuples(some.just("ready"), some.sampled_from(["n2", "n3"]), some.booleans()),
    ),
    max_size=6,
)
HOMES = {"a": "n1", "b": "n2"}


@settings(deadline=None, max_examples=25)
@given(some.tuples(*[some.integers(0, 3)] * 3), STEPS)
@example((0, 1, 2), [("wish", "a", (0, 2)), ("wish", "b", (1, 2)), ("wish", "a", (0, 0))])
def test_any_history_serves_sets_whole(counts: Sequence[int], steps: Sequence[Any]) -> None:
    """A set waits only if no other node could serve it; GPUs never twice; an open part stays; it comes to rest."""
    world = World(dict(zip(("n1", "n2", "n3"), counts, strict=True)))
    for kind, who, what in steps:
        if kind == "open" and (state := world.snapshot.pod(who)):
            had = frozenset(share.uuid for share in shares_of(state)) if what else frozenset[str]()
            world.snapshot.put_pod(replace(state, busy=had))
        elif kind == "ready":
            world.snapshot.put_node(who, world.snapshot.gpus(who) or (), facts(ready=what))
        before = {uid: opened(world, uid) for uid in HOMES}
        if kind == "wish":
            size = {"set": what[1] * 1000} if what[1] else {}
            world.notebook(who, what[0], HOMES[who], **size)
        world.settle()
        for uid, asked in world.asked.items():
            whole = sum(world.shape(uid).values())
            assert whole <= asked.milli + set_of(asked.wish), "more than both together"
            assert world.divide(uid) == 0, "it changes without a cause"
            if kind != "wish" or who != uid:
                assert before[uid] <= opened(world, uid), "an open part was taken"
            check_set(world, uid)
        for node in world.nodes:
            assert not world.snapshot.contested(node)


def check_set(world: World, uid: str) -> None:
    """One node serves the set, and then all is within the wish beside it; or no other node can serve it now."""
    wish, parts, state = world.asked[uid].wish, world.parts.get(uid, ()), world.state(uid)
    size = set_of(wish)
    here = granted(world.snapshot, state)
    if not size or here >= size:
        return
    if not has_set(parts, wish) and len(parts) < world.most:
        found = PairChooser(world.snapshot, RULES).for_running(
            state, with_amount(wish, size), {part.node for part in parts}
        )
        assert found is None, "another node could serve it"
