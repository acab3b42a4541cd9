"""Which GPUs the kernels of a worker are given, and how long one that rests is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.view import GpuState, PodGpu, View
from jupyter_gpu.remote.rules.keeping import (
    HERE,
    Choice,
    Gpus,
    choice,
    free_set,
    gained,
    has_room,
    is_kept,
    milli_of,
    places,
    sets,
    share_one,
    usable,
)
from tests.kernel.builders import gpu, view

states = st.sampled_from(GpuState)
parts = st.integers(1, 1000)
some_gpus = st.lists(st.tuples(states, parts), max_size=6)


def seen(*gpus: tuple[GpuState, int]) -> View:
    """Return a view with these GPUs."""
    return replace(view(), gpus=tuple(PodGpu(gpu(i), milli, state) for i, (state, milli) in enumerate(gpus)))


def uuids(gpus: Gpus) -> set[str]:
    """Return the uuids."""
    return {uuid for uuid, _ in gpus}


A, D, U = GpuState.ATTACHED, GpuState.DRAINING, GpuState.UNHEALTHY


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([(A, 1000)], [(A, 1000)], True),
        ([(A, 1000)], [(A, 1000), (A, 1000)], True),  # more came: for another kernel
        ([(A, 1000), (A, 1000)], [(A, 1000)], False),
        ([(A, 1000)], [(A, 500)], False),  # another part of it
        ([(A, 1000)], [(D, 1000)], False),
        ([(A, 1000)], [(U, 1000)], False),
        ([(A, 1000)], [(A, 1000), (D, 1000)], False),  # a library may have the other one open
        ([], [], True),
    ],
)
def test_kept(before: list[tuple[GpuState, int]], after: list[tuple[GpuState, int]], kept: bool) -> None:
    """While all that it was given is there, and nothing is being given back."""
    assert is_kept(usable(seen(*before)), seen(*after)) is kept


@given(some_gpus, some_gpus)
def test_no_gpu_that_is_given_back_has_a_resting_kernel(
    before: list[tuple[GpuState, int]], after: list[tuple[GpuState, int]]
) -> None:
    """Whatever changed: a kernel that is kept has only GPUs that can be used, and none drains."""
    now = seen(*after)
    if is_kept(usable(seen(*before)), now):
        assert usable(seen(*before)) <= usable(now)
        assert all(item.state is not GpuState.DRAINING for item in now.gpus)


@given(some_gpus, some_gpus)
def test_sharing_a_gpu(some: list[tuple[GpuState, int]], others: list[tuple[GpuState, int]]) -> None:
    """By the uuid, whatever the parts are."""
    one, other = usable(seen(*some)), usable(seen(*others))
    assert share_one(one, other) == share_one(other, one) == bool(uuids(one) & uuids(other))


@given(some_gpus, st.integers(1, 3000), st.integers(0, 6))
def test_sets(gpus: list[tuple[GpuState, int]], milli: int, number: int) -> None:
    """Each is large enough and no larger than it has to be; none shares a GPU; what is left is too little."""
    mine = usable(seen(*gpus))
    taken = frozenset(list(mine)[:number])
    found = sets(mine, milli, [taken])
    rest = mine - taken
    for one in found:
        assert one <= rest
        assert milli_of(one) >= milli
        assert milli_of(one) - min(part for _, part in one) < milli
    assert sum(len(one) for one in found) == len(frozenset().union(*found))
    assert milli_of(rest.difference(*found)) < milli


def test_sets_of_whole_gpus() -> None:
    """The largest parts come first, so that a half does not break a whole one."""
    mine = usable(seen((A, 500), (A, 1000), (A, 1000)))
    assert [milli_of(one) for one in sets(mine, 1000)] == [1000, 1000]
    assert [milli_of(one) for one in sets(mine, 2000)] == [2000]
    assert [milli_of(one) for one in sets(mine, 500)] == [1000, 1000, 500]
    assert sets(mine, 4000) == []


def worker(name: str, *parts: int, relation: Relation = Relation.SWITCH, milli: int | None = None) -> PodWorker:
    """Return a worker with these shares, and as much of the wish."""
    shares = tuple(GpuShare(f"GPU-{name}-{at}", part) for at, part in enumerate(parts))
    return PodWorker(name, f"node of {name}", relation, Stage.READY, sum(parts) if milli is None else milli, shares)


def test_places() -> None:
    """The own node comes first, then the nearest ones; one that is not reached, or has nothing, is none."""
    far, near = worker("w1", 1000, relation=Relation.OTHER), worker("w3", 1000)
    starts = worker("w2", 1000)._replace(stage=Stage.CONNECTING)
    odd = worker("w5", 1000, relation=Relation.UNKNOWN)
    known = replace(seen((A, 1000)), workers=(far, starts, odd, near, worker("w4")))
    assert places(known) == (HERE, "w3", "w5", "w1")
    assert usable(known, "w3") == {("GPU-w3-0", 1000)}
    assert usable(known, "w2") == usable(known, "w4") == usable(known, "w9") == frozenset()


def test_choice() -> None:
    """The first place that has enough by itself; with one place it is that, whatever it has."""
    known = replace(seen((A, 1000)), workers=(worker("w1", 1000, 1000),))
    assert choice(known, 1000) == Choice(HERE, usable(known))
    assert choice(known, 2000) == Choice("w1", usable(known, "w1"))
    assert choice(known, 3000) is None
    assert choice(seen((A, 1000)), 2000) == Choice(HERE, usable(known))


def test_gained() -> None:
    """The places in which something came; others keep their kernels."""
    before = replace(seen((A, 1000)), workers=(worker("w1", 1000),))
    after = replace(before, workers=(worker("w1", 1000), worker("w2", 1000)))
    assert gained(before, after) == {"w2"}
    assert gained(before, before) == set()
    assert gained(replace(before, gpus=()), before) == {HERE}


def test_sets_of_several_places() -> None:
    """None has GPUs of two nodes; those of the own one come first."""
    known = replace(seen((A, 1000)), workers=(worker("w1", 1000, 1000, 1000),))
    taken: list[Gpus] = []
    found = []
    while (one := free_set(known, 1000, taken)) is not None:
        found.append(one.place)
        taken.append(one.gpus)
    assert found == [HERE, "w1", "w1", "w1"]
    (pair,) = (free_set(known, 2000, []),)
    assert pair is not None
    assert (pair.place, len(pair.gpus)) == ("w1", 2)
    assert free_set(known, 4000, []) is None


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (worker("w1", 1000, 1000), True),
        (worker("w1", 1000, 1000, 1000), True),
        (worker("w1", 1000, 1000, milli=1000), False),  # one of them is given back
        (worker("w1", 1000, 1000, milli=0), False),
        (worker("w1", 1000), False),
        (worker("w1", 1000, 1000)._replace(stage=Stage.CONNECTING), False),  # another process
        (worker("w2", 1000, 1000), False),
    ],
)
def test_kept_on_another_node(after: PodWorker, kept: bool) -> None:
    """By what its own worker has; what drains here does not concern it."""
    given = usable(replace(seen(), workers=(worker("w1", 1000, 1000),)), "w1")
    assert is_kept(given, replace(seen((D, 1000)), workers=(after,)), "w1") is kept


def test_broken_gpu_of_another_node_serves_no_call() -> None:
    """As one of the own node: it is given to no kernel, and none that was given it is kept."""
    whole = worker("w1", 1000, 1000)
    given, after = usable(replace(seen(), workers=(whole,)), "w1"), whole._replace(health=("", "broken"))
    view = replace(seen(), workers=(after,))
    assert milli_of(usable(view, "w1")) == 1000
    assert not is_kept(given, view, "w1")
    assert choice(view, 2000) is None


def test_turns() -> None:
    """One GPU serves one call at a time, in the order of the calls; a place has so many kernels."""
    one, two, both = (frozenset((f"GPU-{n}", 1000) for n in numbers) for numbers in ((1,), (2,), (1, 2)))
    here, there = Choice(HERE, one), Choice("w1", one)
    assert has_room(here, [], [], 1)
    assert not has_room(here, [here], [], 8)
    assert has_room(Choice(HERE, two), [here], [], 8)
    assert not has_room(Choice(HERE, two), [here], [Choice(HERE, both)], 8)
    assert has_room(Choice(HERE, two), [here], [None], 8)
    assert not has_room(Choice(HERE, two), [here], [], 1)
    assert has_room(Choice(HERE, two), [there], [], 1)
