"""A long look lets others have their turn: kube-scheduler's questions are answered in between."""

import asyncio
import itertools
from collections.abc import Callable, Generator
from typing import Any

import pytest

from jupyter_gpu.kube import Kube, ObjectChange, Recorder
from jupyter_gpu.kube.credentials import Credentials
from jupyter_gpu.model.annotations import ALLOCATED, Allocated, encode
from jupyter_gpu_scheduler import controller as module
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.controller import Controller
from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide_in_steps
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.settings import WriteSettings
from jupyter_gpu_scheduler.writer import AllocationWriter
from tests.scheduler_process.test_cluster_cache import node, pod

COUNT = 1500


def _line() -> ClusterCache:
    """So many new pods in the line of one node, which has one free GPU of two."""
    cache = ClusterCache(lambda: None)
    cache.node_changed(ObjectChange("added", node("n0")))
    cache.pod_changed(ObjectChange("added", pod("owner", 1, "n0", has=("n0-0",), attaches=("n0-0",))))
    for number in range(COUNT):
        item = pod(f"p{number:04}", 1)
        waits = Allocated(1, ticket=number + 1, extra={NOMINATED: "n0"})
        item["metadata"]["annotations"] = {**item["metadata"]["annotations"], ALLOCATED: encode(waits)}
        cache.pod_changed(ObjectChange("added", item))
    return cache


def _turns(cache: ClusterCache, meanwhile: Callable[[int], Any]) -> int:
    """Return how often another task had a turn during one reconciliation; ``meanwhile`` is what it does then."""

    async def run() -> int:
        kube = Kube(Credentials("https://127.0.0.1:1"))
        metrics = SchedulerMetrics(cache.snapshot)
        writer = AllocationWriter(kube, WriteSettings(), metrics, lambda: False)
        controller = Controller(cache, writer, Recorder(kube, "test"), metrics, Policy())
        reconciliation = asyncio.create_task(controller.reconcile())
        for turn in itertools.count():
            await asyncio.sleep(0)
            if reconciliation.done():
                reconciliation.result()
                return turn
            meanwhile(turn)
        raise AssertionError

    return asyncio.run(run())


def test_long_line_is_decided_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task has a turn every few hundred pods."""
    monkeypatch.setattr(module, "YIELD_SECONDS", 0.0)
    assert _turns(_line(), lambda _: None) >= 2 * COUNT // 256


def test_line_that_keeps_changing_is_decided_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision about a line that changed since is dropped; after some tries the line is decided in one go."""
    monkeypatch.setattr(module, "YIELD_SECONDS", 0.0)
    cache = _line()
    begun: list[str] = []

    def counted(snapshot: ClusterSnapshot, name: str) -> Generator[None, None, tuple[Decision, ...]]:
        begun.append(name)
        return decide_in_steps(snapshot, name)

    monkeypatch.setattr(module, "decide_in_steps", counted)
    _turns(cache, lambda turn: cache.snapshot.remove_pod(f"p{turn:04}"))
    assert len(begun) == module.TRIES
