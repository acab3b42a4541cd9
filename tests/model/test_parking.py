"""The words of parking: programs that do not know them keep them, and nothing that is parked is held."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta, timezone

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
from jupyter_gpu.model.cards import cards
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, Holder
from jupyter_gpu.model.parking import (
    Obstacle,
    ParkCause,
    ParkedMemory,
    ParkedShare,
    ParkOrder,
    UnparkableShare,
)
from jupyter_gpu.model.parking_words import clock, obstacle
from jupyter_gpu.model.strict import MAX_TIME
from jupyter_gpu.model.use_class import idle_shares
from jupyter_gpu.model.view import GpuState, PodGpu

from . import strategies as any_

pytestmark = pytest.mark.uncounted(after=25)


@given(any_.allocated, any_.attached)
def test_parking_changes_nothing_that_a_pod_holds(allocated: Allocated, attached: Attached) -> None:
    """Orders, parked GPUs, resting ones and unparkable ones neither add to what a pod holds nor take from it."""
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
    """The record of an older node plugin reads as before, and is written as before."""
    text = '{"observedGeneration":7,"shares":[{"uuid":"GPU-1","milli":1000}],"open":["GPU-1"]}'
    found = decode_attached(text)
    assert (found.parked, found.resting, found.unparkable) == ((), (), ())
    assert encode(found) == text


GPUS = {"a": Gpu("a", 0, "H100", 80), "b": Gpu("b", 1, "H100", 80, healthy=False)}
IN_A = ParkedShare("a", 1000, "one", 30, 500, back=6)


def card(attached: Attached, *granted: GpuShare) -> list[tuple[GpuState, int, ParkedMemory | None]]:
    """State, amount and parked memory on the cards of a pod."""
    return [(one.state, one.milli, one.parked) for one in cards(Allocated(1, granted), attached, GPUS, {})]


def test_each_parked_gpu_has_a_card() -> None:
    """Parked, coming back, swapped or still open elsewhere: one card says which, and how much is in memory."""
    memory, share, needed = ParkedMemory(30, 500, 6), GpuShare("a", 1000), IN_A._replace(needed=True)
    assert card(Attached(1, parked=(IN_A,))) == [(GpuState.PARKED, 1000, memory)]
    assert card(Attached(1, parked=(IN_A,)), share) == [(GpuState.PARKED, 1000, memory)]
    assert card(Attached(1, parked=(needed,))) == [(GpuState.RETURNING, 1000, memory)]
    assert card(Attached(1, (share,), parked=(needed,)), share) == [(GpuState.RETURNING, 1000, memory)]
    # Another program of the pod was given the GPU meanwhile.
    assert card(Attached(1, (share,), parked=(IN_A,)), share) == [(GpuState.ATTACHED, 1000, memory)]
    swapped = Attached(1, (share,), parked=(IN_A._replace(kept=True),))
    assert card(swapped, share) == [(GpuState.ATTACHED, 1000, memory)]
    assert card(replace(swapped, shares=()), share) == [(GpuState.ATTACHING, 1000, None)]
    open_elsewhere = Attached(1, draining=(DrainingShare("a", 1000),), parked=(IN_A,))
    assert card(open_elsewhere) == [(GpuState.DRAINING, 1000, memory)]
    assert card(Attached(1, parked=(IN_A._replace(uuid="b"), IN_A._replace(uuid="unknown")))) == [
        (GpuState.PARKED, 1000, memory)
    ]


def test_bundles_on_one_gpu_share_its_card() -> None:
    """Memory adds up, the first park counts, and the way back is as long as the longest."""
    other = IN_A._replace(bundle="two", bytes=12, since=400, back=None, needed=True)
    assert card(Attached(1, parked=(IN_A, other))) == [(GpuState.RETURNING, 1000, ParkedMemory(42, 400, 6))]
    unknown = card(Attached(1, parked=(other._replace(milli=250),)))
    assert unknown == [(GpuState.RETURNING, 250, ParkedMemory(12, 400))]


@pytest.mark.parametrize("state", [GpuState.PARKED, GpuState.RETURNING])
def test_older_readers_take_a_parked_gpu_for_one_that_is_not_there_yet(state: GpuState) -> None:
    """They read a word of the state that they know; a reader of today finds the state in the other fields."""
    one = PodGpu(GPUS["a"], 1000, state, parked=ParkedMemory(30, 500))
    body = one.to_json()
    assert body["state"] == "attaching"
    assert PodGpu.from_json(body) == one
    del body["parked"]
    assert PodGpu.from_json(body).state is GpuState.ATTACHING


def test_times_of_another_day_have_their_date() -> None:
    """A time of today is one of the clock; the day is that of the reader's time zone."""
    noon = 1_779_969_900  # 2026-05-28 12:05 UTC
    assert clock(noon, noon + 3600, UTC) == "12:05"
    assert clock(noon, noon + 86400, UTC) == "2026-05-28 12:05"
    east = timezone(timedelta(hours=13))
    assert clock(noon, noon + 3600, east) == "01:05"
    assert clock(noon, noon - 3 * 3600, east) == "2026-05-29 01:05"
    assert clock(MAX_TIME, noon, east).startswith("9999-12-31 ")
    assert len(clock(noon)) == 16


@pytest.mark.parametrize("why", Obstacle)
def test_each_obstacle_has_words_of_its_own(why: Obstacle) -> None:
    """It says why, and never ends as a sentence: it stands after a colon."""
    found = {obstacle(UnparkableShare("a", each, 0)) for each in Obstacle}
    assert len(found) == len(Obstacle)
    text = obstacle(UnparkableShare("a", why, 0))
    assert "another reason" not in text
    assert not text.endswith(".")


def test_obstacles_name_what_is_in_the_way() -> None:
    """Missing memory, programs, and the word of a newer node."""
    assert obstacle(UnparkableShare("a", "host-memory", 0, figure=4 * 2**30)).endswith("it: 4 GiB are missing")
    holders = (Holder(1, "python"), Holder(2, "python"), Holder(3, "gpustat"))
    assert obstacle(UnparkableShare("a", "no-gate", 0, holders=holders)).endswith("end python, gpustat")
    assert obstacle(UnparkableShare("a", "weather", 0)) == "the node has another reason (weather)"
