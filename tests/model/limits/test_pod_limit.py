"""The limit in a pod's ``allocated``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Allocated, decode_allocated, encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.limits.pod_limit import LimitWithWorkers, PodLimit, Reclaim
from jupyter_gpu.model.limits.source import Source, SourceKind

from .strategies import pod_limits


@given(pod_limits)
def test_pod_limit_survives_a_round_trip(limit: PodLimit) -> None:
    """The limit is read from the annotation as it was written."""
    assert decode_allocated(encode(Allocated(1, limit=limit))).limit == limit


def test_pod_limit_leaves_out_what_is_unlimited() -> None:
    """No number stands for unlimited, and no limit in force leaves no field."""
    limit = PodLimit(None, None, Source(SourceKind.DEFAULT))
    assert encode(Allocated(1, limit=limit)) == (
        '{"observedGeneration":1,"shares":[],"limit":{"source":{"kind":"Default"}}}'
    )
    assert "limit" not in encode(Allocated(1))
    assert decode_allocated('{"observedGeneration":1,"shares":[],"limit":null}').limit is None


def test_limit_of_a_pod_and_its_workers() -> None:
    """It stands in the place of the pod's own, with the limit behind it; where none is said, the pod's own holds."""
    own = PodLimit(1000, 2000, Source(SourceKind.USER, "ann"), 5.0, memory=7)
    assert own.together() is own
    group = Source(SourceKind.GROUP, "ml")
    both = replace(own, with_workers=LimitWithWorkers(3000, 4000, group)).together()
    assert both == PodLimit(3000, 4000, group, 5.0, memory=7)
    free = replace(own, with_workers=LimitWithWorkers(None, None, group)).together()
    assert (free.milli, free.max) == (None, None)


def test_what_is_taken_back_of_workers_stands_with_the_pods_own() -> None:
    """The first of it is the time that is told, where nothing is above the limit."""
    group, own, both = Source(SourceKind.GROUP, "ml"), (Reclaim(1, 9.0),), (Reclaim(2, 8.0), Reclaim(1, 9.0))

    def told(at: float | None, reclaimed: tuple[Reclaim, ...]) -> PodLimit:
        limit = PodLimit(1000, 2000, group, at, reclaimed, with_workers=LimitWithWorkers(3000, 4000, group, both))
        return PodLimit.from_json(strict.loads(strict.dumps(limit.to_json()), 10**4)).together()

    assert told(None, ()) == told(9.0, own) == PodLimit(3000, 4000, group, 8.0, both)
    assert told(5.0, own) == told(5.0, ()) == PodLimit(3000, 4000, group, 5.0, both)


SOURCE = {"source": {"kind": "User", "name": "ann"}}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "limit must be a JSON object"),
        ({"milli": 1, "max": 2}, "'source' is missing"),
        ({**SOURCE, "milli": 1}, "must have both of 'milli' and 'max', or neither"),
        ({**SOURCE, "max": 1}, "must have both of 'milli' and 'max', or neither"),
        ({**SOURCE, "milli": -1, "max": 1}, "'milli' must be a whole number"),
        ({**SOURCE, "milli": 1, "max": "2"}, "'max' must be a whole number"),
        ({**SOURCE, "withWorkers": {**SOURCE, "reclaimed": [1]}}, r"reclaimed\[0\] must be a JSON object"),
        ({**SOURCE, "withWorkers": []}, "withWorkers must be a JSON object"),
        ({**SOURCE, "withWorkers": {"milli": 1, "max": 2}}, "'source' is missing"),
        ({**SOURCE, "withWorkers": {**SOURCE, "milli": 1}}, "must have both of 'milli' and 'max', or neither"),
        ({**SOURCE, "memory": -1}, "'memory' must be a whole number"),
        ({**SOURCE, "giveBackAt": True}, "'giveBackAt' must be seconds since 1970"),
        ({**SOURCE, "giveBackAt": "soon"}, "'giveBackAt' must be seconds since 1970"),
        ({**SOURCE, "giveBackAt": -1}, "'giveBackAt' must be seconds since 1970"),
        ({**SOURCE, "giveBackAt": 1e15}, "'giveBackAt' must be seconds since 1970"),
    ],
)
def test_bad_pod_limit_is_refused(body: Any, says: str) -> None:
    """A limit that is not as agreed makes the annotation unreadable."""
    with pytest.raises(InvalidAnnotation, match=says):
        decode_allocated(json.dumps({"observedGeneration": 1, "shares": [], "limit": body}))
