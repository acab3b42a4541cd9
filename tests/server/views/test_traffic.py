"""Figures of a pod's workers: bytes, round trips and loads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import InvalidRequest, TooLarge
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.view import GpuLoad, Mode, Sample, View
from jupyter_gpu.server.rules.shipped import decode_shipped
from jupyter_gpu.server.rules.traffic import MAX_PROCESSES, Traffic
from tests.model.strategies import json_values

BARE = View("i", 1, Mode.ENFORCED, False, "kubernetes", 4000, 4000, (0, 1000))
WORKERS = ("w1", "w2")
VIEW = replace(
    BARE,
    workers=tuple(
        PodWorker(name, "n", Relation.SWITCH, Stage.READY, 1000, (GpuShare(f"GPU-{name}", 1000),)) for name in WORKERS
    ),
)
OWNERS = [ReservationOwner(pid, 1, 1) for pid in range(1, 4)]
told = st.tuples(st.sampled_from(OWNERS), st.dictionaries(st.sampled_from([*WORKERS, "w9"]), st.integers(0, 99)))


def shipped(traffic: Traffic) -> dict[str, int | None]:
    """Return what a view says."""
    return {worker.id: worker.shipped for worker in traffic.added(VIEW).workers}


@given(st.lists(told), st.sets(st.sampled_from(OWNERS)))
def test_bytes_are_those_of_all_processes(messages: list[tuple[ReservationOwner, dict[str, int]]], ended: Any) -> None:
    """The most that each has told, in any order and again and again, also of those that ended; of known workers."""
    traffic = Traffic()
    most: dict[str, dict[ReservationOwner, int]] = {}
    for owner, counts in messages:
        before = shipped(traffic)
        news = traffic.tell(owner, counts, WORKERS)
        assert news or shipped(traffic) == before
        for name in counts.keys() & set(WORKERS):
            known = most.setdefault(name, {})
            known[owner] = max(known.get(owner, 0), counts[name])
        assert not traffic.tell(owner, counts, WORKERS)
    expected = {name: sum(most[name].values()) if name in most else None for name in WORKERS}
    assert shipped(traffic) == expected
    for owner in ended:
        traffic.end(owner)
    assert shipped(traffic) == expected


def test_processes_are_bounded() -> None:
    """One more is refused until another one ends; sums stay what JSON can say."""
    traffic = Traffic()
    owners = [ReservationOwner(pid + 1, 1, 1) for pid in range(MAX_PROCESSES + 1)]
    for owner in owners[:-1]:
        traffic.tell(owner, {"w1": strict.MAX_GENERATION}, WORKERS)
    with pytest.raises(InvalidRequest, match="256 processes"):
        traffic.tell(owners[-1], {}, WORKERS)
    assert shipped(traffic)["w1"] == strict.MAX_GENERATION
    traffic.end(owners[0])
    traffic.tell(owners[-1], {}, WORKERS)


def test_round_trips() -> None:
    """The latest is shown; one that does not answer has none."""
    traffic = Traffic()
    assert traffic.measure("w1", 240)
    assert not traffic.measure("w1", 240)
    assert [worker.round_trip for worker in traffic.added(VIEW).workers] == [240, None]
    away = replace(VIEW, workers=tuple(worker._replace(stage=Stage.CONNECTING) for worker in VIEW.workers))
    assert traffic.added(away) == away
    assert traffic.measure("w1", None)
    assert traffic.added(VIEW) == VIEW
    assert traffic.added(BARE) is BARE


def test_loads_are_those_of_the_workers_own_gpus() -> None:
    """A worker can say nothing of others, and nothing of this node's; else a sample stays as it is."""
    traffic, own = Traffic(), Sample(1.0, {"GPU-0": GpuLoad(1.0, 1)})
    assert traffic.sampled(own, VIEW) is own
    traffic.load("w1", {"GPU-w1": GpuLoad(50.0, 2), "GPU-w2": GpuLoad(99.0, 9), "GPU-0": GpuLoad(99.0, 9)}, {})
    assert traffic.sampled(own, VIEW).loads == {"GPU-0": GpuLoad(1.0, 1), "GPU-w1": GpuLoad(50.0, 2)}


def test_workers_that_are_gone_are_forgotten() -> None:
    """An id is of one worker only."""
    traffic = Traffic()
    for owner in OWNERS[:2]:
        traffic.tell(owner, {"w1": 1, "w2": 2}, WORKERS)
    traffic.end(OWNERS[0])
    traffic.measure("w1", 5)
    traffic.load("w1", {"GPU-w1": GpuLoad(1.0, 1)}, {"GPU-w1": GpuKind("H100", 80)})
    traffic.keep(["w2"])
    assert [(worker.shipped, worker.round_trip) for worker in traffic.added(VIEW).workers] == [(None, None), (4, None)]
    assert not traffic.sampled(Sample(1.0, {}), VIEW).loads
    assert not any(worker.kinds for worker in traffic.added(VIEW).workers)


def test_kinds_are_asked_for_once_and_kept() -> None:
    """A worker that says nothing more has the same GPUs; one with a GPU of an unknown kind shows none."""
    traffic, one, other = Traffic(), GpuKind("H100", 80), GpuKind("A100", 40)
    assert [traffic.asks_now(VIEW), traffic.asks_now(VIEW)] == [True, False]
    assert traffic.load("w1", {}, {"GPU-w1": one, "GPU-0": other})
    assert not traffic.load("w1", {}, {})
    assert [worker.kinds for worker in traffic.added(VIEW).workers] == [(one,), ()]
    first, second = VIEW.workers
    more = replace(VIEW, workers=(first._replace(gpus=(*first.gpus, GpuShare("GPU-x", 1000))), second))
    assert traffic.asks_now(more)
    assert [worker.kinds for worker in traffic.added(more).workers] == [(), ()]
    traffic.load("w1", {}, {"GPU-x": other})
    assert traffic.added(more).workers[0].kinds == (one, other)


BODY = {"owner": OWNERS[0].to_json(), "shipped": {"w1": 7}}


@given(st.sampled_from(["owner", "shipped", "more"]), json_values)
def test_any_body_is_read_or_refused(field: str, value: object) -> None:
    """It holds for each field; a missing one is named."""
    assert decode_shipped(json.dumps(BODY).encode()) == (OWNERS[0], {"w1": 7})
    for body in ({**BODY, field: value}, {key: item for key, item in BODY.items() if key != field}):
        named = True
        try:
            decode_shipped(json.dumps(body).encode())
        except InvalidRequest as error:
            named = bool(error.message)
        assert named


@pytest.mark.parametrize(
    "shipped_",
    [{f"w{number + 1}": 1 for number in range(9)}, {"x": 1}, {"w1": -1}, {"w1": 2**53}, {"w1": True}, {"w1": 1.5}, []],
)
def test_odd_counts_are_refused(shipped_: object) -> None:
    """More workers than there can be, names of none, and what is no number of bytes."""
    with pytest.raises(InvalidRequest):
        decode_shipped(json.dumps({**BODY, "shipped": shipped_}).encode())
    with pytest.raises(TooLarge):
        decode_shipped(b" " * 3000 + json.dumps(BODY).encode())
