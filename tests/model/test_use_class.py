"""The use of a pod's GPUs, as its node tells it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.use_class import UseClass, idle_for, idle_shares, resting_since, use_class

A, B, C = GpuShare("A", 1000), GpuShare("B", 500), GpuShare("C", 250)


@pytest.mark.parametrize(("uuid", "found"), [("A", UseClass.CLOSED), ("B", UseClass.RESTING), ("C", UseClass.WORKING)])
def test_use_class_follows_from_what_is_open_and_rests(uuid: str, found: UseClass) -> None:
    """A closed GPU does not rest, whatever the record says."""
    assert use_class(uuid, ("B", "C"), ("A", "B")) is found


def test_classes_sort_in_the_order_in_which_shares_are_given_back() -> None:
    """The closed first, those that work last."""
    assert sorted(UseClass) == [UseClass.CLOSED, UseClass.RESTING, UseClass.WORKING]


def test_idle_shares_are_closed_or_rest() -> None:
    """Only those that the pod keeps; a record without `rests`, as an older node's, counts each open GPU as working."""
    allocated = Allocated(1, (A, B, C))
    attached = Attached(1, (A, B, C), open=("B", "C"), rests=("B",))
    assert idle_shares(allocated, attached) == (A, B)
    assert idle_shares(allocated, Attached(1, (A, B, C), open=("B", "C"))) == (A,)
    assert idle_shares(Allocated(1, (B,)), attached) == (B,)
    assert idle_shares(allocated, Attached(1, draining=(DrainingShare("A", 1000),))) == ()
    assert idle_shares(None, attached) == idle_shares(allocated, None) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 min"), (119, "1 min"), (12 * 60 + 59, "12 min"), (3600, "1 h 0 min"), (7500, "2 h 5 min"), (-9, "1 min")],
)
def test_idle_time_is_in_whole_minutes(seconds: int, text: str) -> None:
    """The first minute counts as one, and so does a clock that is behind."""
    assert idle_for(1000, 1000.0 + seconds) == f"idle for {text}"


@given(st.lists(st.frozensets(st.sampled_from("ABC")), max_size=8))
def test_time_of_a_rest_is_that_of_its_first_view(rests: list[frozenset[str]]) -> None:
    """It is kept for as long as the GPU rests; one that is used between begins anew."""
    since: Mapping[str, int] = {}
    for now, uuids in enumerate(rests):
        attached = Attached(1, (A, B, C), open=("A", "B", "C"), rests=tuple(sorted(uuids)))
        since = resting_since(since, attached, now)
        assert since.keys() == uuids
        for uuid, begin in since.items():
            assert all(uuid in then for then in rests[begin : now + 1])
            assert begin == 0 or uuid not in rests[begin - 1]


def test_only_an_attached_gpu_that_is_open_rests() -> None:
    """Whatever else a record names."""
    assert resting_since({"C": 3}, Attached(1, (A, B), open=("B", "C"), rests=("A", "B", "C")), 5) == {"B": 5}
    assert resting_since({"C": 3}, None, 5) == {}
