"""Words of terminals for workers on other nodes."""

from __future__ import annotations

import pytest
from hypothesis import given

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.worker_words import amount, distance, state, traffic
from tests.model import strategies as any_

READY = PodWorker("w1", "n2", Relation.SWITCH, Stage.READY)
ONE = (GpuShare("GPU-1", 1000),)


@pytest.mark.parametrize(
    ("milli", "gpus", "words", "much"),
    [
        (1000, ONE, "Attached", "1 GPU"),
        (2000, ONE, "Attaching", "1 GPU, 1 GPU to come"),
        (1000, (), "Attaching", "1 GPU to come"),
        (0, ONE, "Giving back", "1 GPU"),
        (0, (), "Kept for a while", "0 GPUs"),
    ],
)
def test_worker_that_runs(milli: int, gpus: tuple[GpuShare, ...], words: str, much: str) -> None:
    """It says what becomes of its GPUs."""
    worker = READY._replace(milli=milli, gpus=gpus)
    assert (state(worker), amount(worker), distance(worker)) == (words, much, "Other node, same switch")
    broken = worker._replace(health=tuple("broken" for _ in gpus))
    assert (state(broken), amount(broken)) == ("Not working" if gpus else words, much)


@given(any_.pod_workers)
def test_each_worker_has_words(worker: PodWorker) -> None:
    """The state alone decides for one that does not run."""
    assert distance(worker).startswith(("Other node", "This node"))
    assert state(worker)
    assert amount(worker)
    assert state(worker._replace(stage=Stage.PULLING)) == "Pulling the image"
    assert bool(traffic(worker)) == ((worker.shipped, worker.round_trip) != (None, None))


def test_traffic() -> None:
    """The bytes, the time of an answer, or both."""
    assert traffic(READY._replace(shipped=3 * 2**20)) == "3 MiB sent there and back"
    assert traffic(READY._replace(shipped=0, round_trip=240)) == "0 B sent there and back, answers in 0.2 ms"
