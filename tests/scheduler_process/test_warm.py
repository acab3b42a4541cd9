"""Answers that a new process computes before the first question."""

import asyncio
import json
import random
from typing import Any

import pytest

from benchmarks.extender import new_pod, world
from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu_scheduler.rules.new_pods.places import rate
from jupyter_gpu_scheduler.rules.pairs import choose, expected
from jupyter_gpu_scheduler.rules.queue.fit_cache import known_fits
from jupyter_gpu_scheduler.rules.scoring.policy import TYPICAL, Policy, WorkloadKind
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.settings import NotebookWorkerSettings, SchedulerSettings

NODES = 7


def answers(*, warm: bool, namespaces: tuple[str, ...] = ()) -> list[Any]:
    """To filter and prioritize for some pods, of a process that knows the same cluster each time."""

    async def ask() -> list[Any]:
        workers = NotebookWorkerSettings(namespaces=namespaces)
        cache, extender = world(NODES, random.Random(1), SchedulerSettings(workers=workers))
        if warm:
            await extender.warm()
            for kind in (*TYPICAL, WorkloadKind(None, 0)):
                requested = Requested(0, kind.wish) if kind.wish else None
                known = known_fits(cache.snapshot, PodState("", requested=requested, anywhere=bool(namespaces)))
                assert set(known) == set(cache.snapshot.nodes())
        found = []
        for number, milli in enumerate((0, 250, 1000, 2000, 8000)):
            pod = new_pod(number, milli)
            cache.pod_changed(ObjectChange("added", pod))
            body = json.dumps({"Pod": pod, "NodeNames": [f"node-{number}" for number in range(NODES)]}).encode()
            found += [await extender.filter(body), await extender.prioritize(body)]
            cache.pod_changed(ObjectChange("removed", pod))
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize("namespaces", [(), ("hub",)])
def test_warm_cache_changes_no_answer(namespaces: tuple[str, ...]) -> None:
    """All nodes were examined for each usual wish, and the answers are those of a process without a warm cache."""
    assert answers(warm=True, namespaces=namespaces) == answers(warm=False, namespaces=namespaces)


def test_warm_cache_knows_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question about a usual pod that may have their GPUs examines no node anew."""

    async def ask() -> None:
        settings = SchedulerSettings(workers=NotebookWorkerSettings(namespaces=("hub",)))
        cache, extender = world(NODES, random.Random(1), settings)
        await extender.warm()
        chooser, snapshot = cache.notebooks.chooser, cache.snapshot
        monkeypatch.setattr(choose, "takes_worker", None)
        monkeypatch.setattr(expected, "takes_worker", None)
        for milli in (8000, 0):
            wish = Requested(0, Wish(milli)) if milli else None
            pod = PodState("", requested=wish, anywhere=True)
            assert set(rate(snapshot, chooser, pod, tuple(snapshot.nodes()), Policy())) == set(snapshot.nodes())

    asyncio.run(ask())
