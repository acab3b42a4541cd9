"""Ends of sliders that move alone: written as a decision would write them, without one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.slider_end import moved_end, moves_end, only_end_moved
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import NODE, allocated, apply, attached, cluster, pod, requested, world

LIMIT = PodLimit(2000, 3000, Source(SourceKind.USER, "ann"))


def _limited(uid: str, wants: float, allowance: float, ends: int) -> PodState:
    limit = replace(LIMIT, milli=ends)
    return replace(pod(uid, wants=wants), allowance=int(1000 * allowance), pod_limit=limit)


amounts = st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.0))
pods = st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4)


@given(pods, st.integers(0, 3), st.sampled_from((0, 500, 2000, 3000)), st.booleans())
def test_moved_end_is_written_as_a_decision_would_write_it(
    wishes: list[tuple[float, float]], which: int, ends: int, draining: bool
) -> None:
    """Once a node is decided, an end that moves changes that pod's record, in its limit, and nothing else there."""
    snapshot = world(3, [_limited(f"p{n}", *each, 1000) for n, each in enumerate(wishes)])
    if draining:
        snapshot.put_pod(pod("closes", has=(), draining=[0]))
    apply(snapshot, decide(snapshot, NODE))
    assert decide(snapshot, NODE) == ()
    before = snapshot.pod(f"p{which % len(wishes)}")
    assert before
    assert before.pod_limit
    after = replace(before, pod_limit=replace(before.pod_limit, milli=ends))
    assert only_end_moved(before, after)
    snapshot.show(after)
    assert snapshot.pod(before.uid) == snapshot.pods(NODE)[int(before.uid[1:]) + draining] == after
    assert snapshot.owned(before.owner)[int(before.uid[1:]) + draining] == after
    found = moved_end(snapshot, before.uid)
    assert found == decide(snapshot, NODE)
    assert bool(found) == (ends != 1000)
    apply(snapshot, found)
    assert moved_end(snapshot, before.uid) == decide(snapshot, NODE) == ()


def _other(name: str) -> Any:
    """Return a value that a field of a pod does not have by itself."""
    others = {
        "requested": requested(2),
        "attached": attached([0]),
        "limit": 1,
        "busy": frozenset("u"),
        "lacks": frozenset("u"),
        "gone": True,
        "finished": True,
        "created": 1.0,
        "slots": 2,
        "asks": {"cpu": 1},
        "selector": {"a": "b"},
        "blocked": True,
        "overdue": True,
        "cap": 1,
        "owner": replace(pod("x").owner, name="other"),
        "offered": frozenset("n"),
        "allowance": 7,
        "model_allowances": (("h100", 1),),
        "standing": OwnerStanding(1),
    }
    return others.get(name, "other")


@pytest.mark.parametrize("name", [each.name for each in fields(PodState) if each.compare and each.init])
def test_any_other_change_needs_a_decision(name: str) -> None:
    """Nothing but the end of the slider, and what is written of it, may differ."""
    before = replace(_limited("a", 1, 1, 2000), allocated=replace(allocated([0]), limit=LIMIT))
    if name not in ("allocated", "pod_limit"):
        assert not only_end_moved(before, replace(before, **{name: _other(name)}))
    assert only_end_moved(before, before)


@pytest.mark.parametrize(
    "changed",
    [
        {"max": 4000},
        {"source": Source(SourceKind.GROUP, "ml")},
        {"give_back_at": 1.0},
        {"milli": None, "max": None},
    ],
)
def test_another_limit_is_more_than_another_end(changed: dict[str, Any]) -> None:
    """A maximum, its source, and a notice are told at once."""
    before = replace(_limited("a", 1, 1, 2000), allocated=replace(allocated([0]), limit=LIMIT))
    after = replace(LIMIT, **changed)
    assert not only_end_moved(before, replace(before, pod_limit=after))
    assert not moves_end(before.allocated, replace(allocated([0]), limit=after))
    assert not only_end_moved(before, replace(before, pod_limit=None))
    snapshot = world(1, [replace(before, pod_limit=after)])
    assert moved_end(snapshot, "a") == ()  # its node is decided


def test_what_is_written_of_a_pod_counts_too() -> None:
    """A record that differs in more than the limit came from elsewhere."""
    before = allocated([0], limit=LIMIT)
    assert moves_end(before, replace(before, limit=replace(LIMIT, milli=1)))
    assert moves_end(before, before)
    assert not moves_end(before, replace(before, reason=Reason.PARTIAL))
    assert not moves_end(before, allocated([1], limit=LIMIT))
    assert not moves_end(None, before)
    assert not moves_end(None, None)


def test_pods_that_no_decision_is_written_for() -> None:
    """Pods that wait for a node, are gone, or have a node that is not known, are left to decisions."""
    state = replace(_limited("a", 1, 1, 1000), allocated=replace(allocated([0]), limit=LIMIT))
    assert moved_end(cluster({}, [state]), "a") == ()
    assert moved_end(world(1, [replace(state, gone=True)]), "a") == ()
    assert moved_end(world(1, [replace(state, allocated=None)]), "a") == ()
    assert moved_end(world(1), "a") == ()
    assert len(moved_end(world(1, [state]), "a")) == 1
    pending = replace(state, node="")
    assert not only_end_moved(pending, replace(pending, pod_limit=LIMIT))
