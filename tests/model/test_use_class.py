"""The use of a pod's GPUs, as its node tells it."""

from __future__ import annotations

import pytest

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.use_class import UseClass, idle_shares, use_class

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
