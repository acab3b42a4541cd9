"""Answers that a new process computes before the first question."""

import asyncio
import json
import random
from typing import Any

from benchmarks.extender import new_pod, world
from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import Requested
from jupyter_gpu_scheduler.rules.queue.fit_cache import known_fits
from jupyter_gpu_scheduler.rules.scoring.policy import TYPICAL
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

NODES = 7


def answers(*, warm: bool) -> list[Any]:
    """To filter and prioritize for some pods, of a process that knows the same cluster each time."""

    async def ask() -> list[Any]:
        cache, extender = world(NODES, random.Random(1))
        if warm:
            await extender.warm()
            for kind in TYPICAL:
                known = known_fits(
                    cache.snapshot, PodState("", requested=Requested(0, kind.wish) if kind.wish else None)
                )
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


def test_warm_cache_changes_no_answer() -> None:
    """All nodes were examined for each usual wish, and the answers are those of a process without a warm cache."""
    assert answers(warm=True) == answers(warm=False)
