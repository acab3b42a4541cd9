"""Pods that wait for a node: those that no watch ever shows are forgotten."""

import asyncio

import pytest

from jupyter_gpu.kube import Change
from jupyter_gpu_scheduler import waiting as module
from jupyter_gpu_scheduler.mirror import Mirror
from jupyter_gpu_scheduler.policy import Policy
from jupyter_gpu_scheduler.waiting import WaitingPods
from tests.scheduler_process.test_mirror import pod


def test_a_pod_that_is_never_shown_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted before the watch had it; one that the watch shows meanwhile waits on."""
    monkeypatch.setattr(module, "STRANGER_SECONDS", 0.05)

    async def run() -> None:
        mirror = Mirror(lambda: None)
        waiting = WaitingPods(mirror, lambda decisions, kind: None, Policy(), wake_seconds=1)
        for uid in ("never", "later", "known"):
            if uid == "known":
                mirror.pod_changed(Change("added", pod(uid, 1)))
            waiting.asked(uid, ("n0",), fits=False)
        mirror.pod_changed(Change("added", pod("later", 1)))
        assert waiting.count == 3
        async with asyncio.timeout(60):
            while waiting.count != 2:
                await asyncio.sleep(0.01)
        waiting.stop()

    asyncio.run(run())
