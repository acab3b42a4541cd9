"""The words of parking: programs that do not know them keep them, and nothing that is parked is held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from jupyter_gpu.model.annotations import (
    Allocated,
    Attached,
    Requested,
    Wish,
    decode_attached,
    encode,
    held,
    record,
)
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.parking import ParkCause, ParkedShare, ParkOrder
from jupyter_gpu.model.use_class import idle_shares

from . import strategies as any_

pytestmark = pytest.mark.uncounted(after=25)


@given(any_.allocated, any_.attached)
def test_parking_changes_nothing_that_a_pod_holds(allocated: Allocated, attached: Attached) -> None:
    """What is ordered, parked, resting or not to be parked neither adds to what a pod holds nor takes from it."""
    plain = replace(attached, parked=(), resting=(), unparkable=())
    assert held(allocated, attached) == held(replace(allocated, park=()), plain)
    assert idle_shares(allocated, attached) == idle_shares(allocated, plain)


def test_an_ordered_gpu_is_held_until_it_is_parked() -> None:
    """An order leaves the GPU among the shares; once parked and taken out, nobody holds it."""
    share = GpuShare("GPU-1", 1000)
    ordered = Allocated(1, (share,), park=(ParkOrder("GPU-1", ParkCause.LINE),))
    assert held(ordered, Attached(1, (share,))) == {"GPU-1": 1000}
    parked = Attached(1, parked=(ParkedShare("GPU-1", 1000, "b1", 34 * 2**30, 1_780_000_000),))
    assert held(ordered, parked) == {"GPU-1": 1000}
    assert held(replace(ordered, shares=(), park=()), parked) == {}
    assert parked.parked[0].share == share


def test_a_new_wish_keeps_what_is_kept() -> None:
    """The time until which nothing is parked is no part of the wish: it stays with the next, and is no new one."""
    first = Requested(3, Wish(1000), keep=1_780_000_000)
    assert record(first, Wish(1000)) is first
    assert record(first, Wish(2000)) == Requested(4, Wish(2000), keep=1_780_000_000)


def test_a_record_of_an_older_program_has_nothing_parked() -> None:
    """What an older node plugin writes reads as before, and is written as before."""
    text = '{"observedGeneration":7,"shares":[{"uuid":"GPU-1","milli":1000}],"open":["GPU-1"]}'
    found = decode_attached(text)
    assert (found.parked, found.resting, found.unparkable) == ((), (), ())
    assert encode(found) == text
