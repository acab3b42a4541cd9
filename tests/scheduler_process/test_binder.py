"""The binder on a real API server: leadership at each try, and pods that no watch ever shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jupyter_gpu.kube import Kube, ObjectChange, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu_scheduler import binder as module
from jupyter_gpu_scheduler.binder import Binder
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.rules.wire import BindingArgs
from jupyter_gpu_scheduler.settings import WriteSettings
from jupyter_gpu_scheduler.writer import AllocationWriter
from tests.scheduler_process.stage import Stage

pytestmark = pytest.mark.cluster


def play(
    stage: Stage, may: Callable[[], bool], work: Callable[[Kube, ClusterCache, Binder], Coroutine[Any, Any, None]]
) -> None:
    """Run `work` with a binder of its own, whose cache learns only what `work` puts into it."""

    async def run() -> None:
        async with Kube(kubeconfig(stage.plane.kubeconfig)) as kube:
            cache = ClusterCache(lambda: None)
            metrics = SchedulerMetrics(cache.snapshot)
            await work(kube, cache, Binder(kube, cache, AllocationWriter(kube, WriteSettings(), metrics, may), metrics))

    stage.do(run())


def question(stage: Stage, name: str, node: str) -> BindingArgs:
    """kube-scheduler's about a pod."""
    return BindingArgs(stage.namespace, name, objects.uid(stage.get(name)), node)


def test_former_leader_does_not_bind_again(stage: Stage) -> None:
    """The first try meets a conflict; until it is known what the pod is now another process leads."""
    node = stage.node(gpus=1)
    stage.pod("a", requested=1)
    old, asked = stage.get("a"), question(stage, "a", node)
    stage.annotate("a", changed="meanwhile")
    there = stage.get_node(node)
    leads = iter([True])

    async def work(kube: Kube, cache: ClusterCache, binder: Binder) -> None:
        cache.node_changed(ObjectChange("added", there))
        cache.pod_changed(ObjectChange("added", old))
        assert "does not lead" in await binder.bind(asked)
        assert cache.writes_in_flight == 0
        assert cache.snapshot.free(f"GPU-{node}-0") == 1000

    play(stage, lambda: next(leads, False), work)
    assert not objects.node_name(stage.get("a"))


def test_pod_that_no_watch_shows_gives_its_gpus_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was bound unseen, and came and went while the watch was cut off; a pod that is still there keeps its GPU."""
    monkeypatch.setattr(module, "SHOWN_SECONDS", 0.1)
    node = stage.node(gpus=2)
    for name in ("a", "b"):
        stage.pod(name, requested=1)
    asked = [question(stage, name, node) for name in ("a", "b")]
    there = stage.get_node(node)

    async def work(kube: Kube, cache: ClusterCache, binder: Binder) -> None:
        cache.node_changed(ObjectChange("added", there))
        for each in asked:
            assert await binder.bind(each) == ""
        assert cache.writes_in_flight == 2
        await kube.delete(paths.pod(stage.namespace, "a"), grace=0)
        async with asyncio.timeout(60):
            while cache.record(asked[0].uid):
                await asyncio.sleep(0.05)
        free = sorted(cache.snapshot.free(f"GPU-{node}-{index}") for index in range(2))
        assert free == [0, 1000]
        assert cache.is_unseen(asked[1].uid)
        cache.pod_changed(ObjectChange("added", await kube.get(paths.pod(stage.namespace, "b"))))
        assert cache.writes_in_flight == 0
        assert not cache.is_unseen(asked[1].uid)

    play(stage, lambda: True, work)
