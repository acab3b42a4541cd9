"""When something may be parked for others."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from jupyter_gpu.model.parking import RestingShare, UnparkableShare
from jupyter_gpu_scheduler.rules.parking.candidates import Candidates, ParkTimes, candidates
from jupyter_gpu_scheduler.rules.state.parked import Parkable
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, pod, uuid

TIMES = ParkTimes(rest=120, hold=300, retry=600)
NOW = 1000


def _rest(index: int, since: int = 500, bundle: str = "x") -> RestingShare:
    return RestingShare(uuid(index), bundle, since, 8 * GIB)


def _refused(index: int, why: str, since: int) -> UnparkableShare:
    return UnparkableShare(uuid(index), why, since)


def _pod(*resting: RestingShare, unparkable: tuple[UnparkableShare, ...] = (), keep: int | None = None) -> PodState:
    state = pod("a", wants=2, has=[0, 1])
    assert state.attached
    assert state.requested
    attached = replace(state.attached, resting=resting, unparkable=unparkable)
    return replace(state, attached=attached, requested=replace(state.requested, keep=keep))


CASES: dict[str, tuple[PodState, dict[str, Any], tuple[set[int], ...], float | None]] = {
    "nothing rests": (_pod(), {}, (), None),
    "nothing is attached": (pod("a", wants=1), {}, (), None),
    "it rests long enough": (_pod(_rest(0)), {}, ({0},), None),
    "it began to rest": (_pod(_rest(0, 950)), {"attached_since": {uuid(0): 0}}, (), 1070),
    "it was attached just now": (_pod(_rest(0, 850)), {"attached_since": {uuid(0): 800}}, (), 1100),
    "it was attached long ago": (_pod(_rest(0, 850)), {"attached_since": {uuid(0): 100}}, ({0},), None),
    "it is not known since when it is attached": (_pod(_rest(0, 850)), {}, (), 1150),
    "it cannot rest longer than it is attached": (
        _pod(_rest(0, 500)),
        {"attached_since": {uuid(0): 900}},
        ({0},),
        None,
    ),
    "the clock of the node is ahead": (_pod(_rest(0, 2000)), {}, (), 2300),
    "a bundle": (_pod(_rest(0), _rest(1)), {}, ({0, 1},), None),
    "a bundle of which one GPU began to rest": (_pod(_rest(0), _rest(1, 900)), {}, (), 1200),
    "two bundles": (_pod(_rest(0, bundle="y"), _rest(1)), {}, ({1}, {0}), None),
    "one of two bundles": (_pod(_rest(0, bundle="y"), _rest(1, 900)), {}, ({0},), 1200),
    "one GPU of a bundle is not attached any more": (_pod(_rest(0), _rest(7)), {}, (), None),
    "named twice": (_pod(_rest(0, 300), _rest(0, 400)), {}, ({0},), None),
    "named in two bundles": (_pod(_rest(0), _rest(0, bundle="y"), _rest(1, bundle="y")), {}, ({0},), None),
    "it could not be parked": (_pod(_rest(0), unparkable=(_refused(0, "in-use", 600),)), {}, (), 1200),
    "that is long ago": (_pod(_rest(0), unparkable=(_refused(0, "in-use", 400),)), {}, ({0},), None),
    "for a reason of a newer version": (_pod(_rest(0), unparkable=(_refused(0, "gamma-rays", 600),)), {}, (), 1200),
    "the driver failed at it": (_pod(_rest(0), unparkable=(_refused(0, "broken", 0),)), {}, (), None),
    "the driver failed at another one": (_pod(_rest(0), unparkable=(_refused(1, "broken", 0),)), {}, ({0},), None),
    "its user keeps it": (_pod(_rest(0), keep=1500), {}, (), 1500),
    "its user kept it": (_pod(_rest(0), keep=1000), {}, ({0},), None),
    "no longer than is permitted": (_pod(_rest(0), keep=1500), {"longest_keep": 1200}, (), 1200),
    "keeping is not permitted": (_pod(_rest(0), keep=1500), {"longest_keep": -inf}, ({0},), None),
    "it has no wish": (replace(_pod(_rest(0)), requested=None), {}, ({0},), None),
    "it is being deleted": (replace(_pod(_rest(0)), gone=True), {}, (), None),
}


@pytest.mark.parametrize(("state", "fields", "expected", "next_at"), CASES.values(), ids=CASES.keys())
def test_what_may_be_parked(
    state: PodState, fields: dict[str, Any], expected: tuple[set[int], ...], next_at: float | None
) -> None:
    """Each of the conditions above, and the time at which that changes."""
    found = candidates(state, TIMES, NOW, **fields)
    assert [each.uuids for each in found.parkable] == [frozenset(map(uuid, indexes)) for indexes in expected]
    assert found.next_at == next_at
    if next_at is not None:
        assert len(candidates(state, TIMES, next_at, **fields).parkable) > len(expected)
        assert candidates(state, TIMES, next_at - 1, **fields) == found


def test_candidate_has_all_that_the_choice_asks() -> None:
    """A bundle rests as long as the GPU of it that rests least, and takes the memory of all."""
    found = candidates(_pod(_rest(0, 300), _rest(1, 400)), TIMES, NOW, guaranteed=2000)
    both = frozenset((uuid(0), uuid(1)))
    assert found == Candidates((Parkable("x", both, 400, 16 * GIB, 2000),))
