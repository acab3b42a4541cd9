"""Which workers start, go on and retire."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.dask.rules.follow import Steps, attached, steps
from jupyter_gpu.dask.rules.keeping import BATCH, batch, immovable, refusal, unmoved
from jupyter_gpu.dask.rules.targets import MAX_LINE, Target, read_target
from jupyter_gpu.dask.rules.words import Attend, Attending, Await, Drop, Keep, Living, Ready, Schedule, Work
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Run
from jupyter_gpu.remote.rules.keeping import HERE
from jupyter_gpu.remote.rules.switch import is_on
from tests.kernel.builders import gpu, view

VIEW = view(1000)
GPUS = st.frozensets(st.sampled_from("abcde"))


@given(attached=GPUS, working=GPUS, held=GPUS)
def test_all_is_in_line_after_one_turn(attached: frozenset[str], working: frozenset[str], held: frozenset[str]) -> None:
    """Each attached GPU has one worker that works, and all others were asked to retire."""
    held -= working
    todo = steps(attached, working, held)
    left = (working | held | todo.start) - todo.retire
    assert left == attached
    assert (working | todo.start | todo.resume) >= attached
    assert steps(attached, left, frozenset()) == Steps()
    assert not todo.start & (working | held)
    assert todo.resume <= held


def test_examples() -> None:
    """One of each row of the table."""
    assert steps({"new", "works", "back"}, {"works", "gone"}, {"back", "kept"}) == Steps(
        start=frozenset({"new"}), resume=frozenset({"back"}), retire=frozenset({"gone", "kept"})
    )


def test_words_there_and_back() -> None:
    """A key is in no representation."""
    worker = Work("c2VjcmV0", "gpu1://here:1", "GPU-1", (".", "/x"), "w1", 0, {"CUDA_VISIBLE_DEVICES": "GPU-1"})
    keeper = Keep("c2VjcmV0", "gpu1://here:1", 2)
    words = (keeper, Schedule("c2VjcmV0", "gpu1", ("/x",)), worker, Ready("gpu1://w1:1", 2), Attend("c2VjcmV0", "w1"))
    for word in (*words, Attending(1), Await("a"), Drop(("a",)), Living(())):
        assert control.read(word.dump(), Keep, Schedule, Work, Ready, Attend, Attending, Await, Drop, Living) == word
        assert "c2VjcmV0" not in repr(word)
    assert worker.scheme == keeper.scheme == "gpu1"


def test_worker_is_told_of_gpus_only_by_their_variables() -> None:
    """Another name is refused: it would be a variable of the process as well."""
    word = Work("c2VjcmV0", "gpu1://here:1", "GPU-1", (), "w1", 0, {"LD_PRELOAD": "x"})
    with pytest.raises(strict.FieldError, match="LD_PRELOAD"):
        control.read(word.dump(), Work)


@given(sizes=st.dictionaries(st.integers(), st.integers(0, 2 * BATCH), max_size=8))
@example(sizes={1: 2 * BATCH, 2: 1, 3: BATCH})
def test_results_move_some_at_a_time(sizes: dict[Hashable, int]) -> None:
    """All of them, in their order, and not more than the bound at once, if one alone has not more."""
    left = dict(sizes)
    moved: list[Hashable] = []
    while keys := batch(left):
        assert len(keys) == 1 or sum(left[key] for key in keys) <= BATCH
        moved += keys
        for key in keys:
            del left[key]
    assert moved == list(sizes)


@pytest.mark.parametrize(
    ("sizes", "actors", "free", "why"),
    [
        ({}, 0, 0, ""),
        ({"a": 1000}, 0, 2000, ""),
        ({"a": 1024}, 0, 2047, "1 KiB of results, and 2 KiB of memory is left, which is too little"),
        ({"a": BATCH, "b": BATCH}, 0, 3 * BATCH, ""),
        ({"a": BATCH, "b": BATCH}, 0, 3 * BATCH - 1, "128 MiB of results"),
        ({"a": 1}, 2, 10**9, "2 actors, which cannot be kept"),
    ],
)
def test_what_can_be_kept(sizes: dict[Hashable, int], actors: int, free: int, why: str) -> None:
    """Results are kept while memory is left for a second copy of what moves."""
    assert bool(refusal(sizes, actors, free)) == bool(why)
    assert why in refusal(sizes, actors, free)


def test_immovable_results() -> None:
    """One of them is named; of a worker that is not the last one it is not known which they are."""
    assert unmoved(2.0).startswith("A Dask worker has results that have not moved to others within 2 s.")
    assert immovable(["a", "b"]) == ("The Dask workers have 2 results that cannot be moved to another process, as a.")


def test_attached_gpus_of_all_nodes() -> None:
    """Those of a node that is giving some back are none; nor are those of a worker that is not there yet."""
    shares = tuple(GpuShare(uuid, 1000) for uuid in ("GPU-b", "GPU-a"))
    there = PodWorker("w1", "node2", Relation.SWITCH, Stage.READY, 2000, shares)
    seen = attached(replace(VIEW, workers=(there,)))
    assert {uuid: gpu.place for uuid, gpu in seen.items()} == {gpu(0).uuid: HERE, "GPU-a": "w1", "GPU-b": "w1"}
    assert seen["GPU-a"].gpus == {("GPU-a", 1000)}
    for other in (there._replace(milli=1000), there._replace(stage=Stage.PULLING)):
        assert attached(replace(VIEW, workers=(other,))).keys() == {gpu(0).uuid}


@given(place=st.sampled_from(["here", "w1", "w4294967295"]), port=st.integers(1, 65535))
def test_targets_there_and_back(place: str, port: int) -> None:
    """A line names one place and one port."""
    line = Target(place, port).line()
    assert len(line) <= MAX_LINE
    assert read_target(line) == Target(place, port)


@pytest.mark.parametrize(
    "line", [b"", b"offer\n", b"here:1", b"here:0\n", b"here:65536\n", b"w0:1\n", b"there:1\n", b"w1:1\nx"]
)
def test_line_that_leads_nowhere(line: bytes) -> None:
    """It is refused."""
    with pytest.raises(strict.FieldError):
        read_target(line)


def test_switch() -> None:
    """It is on, unless its variable says otherwise."""
    assert [is_on(environ, "X") for environ in ({}, {"X": ""}, {"X": "1"}, {"X": "0"})] == [True, True, True, False]
    with pytest.raises(strict.FieldError, match="X must be 0 or 1"):
        is_on({"X": "yes"}, "X")


def test_ports_of_gateways() -> None:
    """Those of a worker's kernels follow that for large objects, one for each; on one machine it may be any."""
    ports = range(101, 101 + control.CHANNELS * control.MAX_KERNELS, control.CHANNELS)
    runs = [Run("0.0.0.0", "p", "s", (), "k", port, 133) for port in ports]
    assert [run.dask for run in runs] == list(range(134, 142))
    assert Run("127.0.0.1", "p", "s", (), "k").dask == 0
