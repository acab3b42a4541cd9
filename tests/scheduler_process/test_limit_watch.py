"""The watch of limits: what holds without their kind, and when it is deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from jupyter_gpu.kube import Kube, kubeconfig
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu_scheduler.limit_watch import LimitWatch
from tests.cluster.testbed import ControlPlane
from tests.scheduler_process.definitions import PATIENCE, define, limit_body, undefine

pytestmark = pytest.mark.cluster

DEFAULT = limit_body("default", {"subject": {"kind": "Default"}, "max": 2})
CAP = limit_body("cap", {"subject": {"kind": "Cap"}, "max": 8})


class Follower:
    """The limits as a `LimitWatch` reports them."""

    def __init__(self, kube: Kube) -> None:
        self.limits: dict[str, Limit] = {}
        self.removed: list[str] = []
        self.troubles: list[str] = []
        self.watch = LimitWatch(kube, self._put, self._remove, self.troubles.append, recheck_seconds=0.05)

    def _put(self, limit: Limit) -> None:
        self.limits[limit.object_name] = limit

    def _remove(self, name: str) -> None:
        del self.limits[name]
        self.removed.append(name)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.02)


def follow(plane: ControlPlane, play: Callable[[Kube, Follower], Awaitable[None]]) -> None:
    """Run a test with a follower that runs, and delete the kind at the end."""

    async def whole() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as kube:
            follower = Follower(kube)
            task = asyncio.create_task(follower.watch.run())
            try:
                await play(kube, follower)
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.wait((task,))
                await undefine(kube, "gpulimits")

    asyncio.run(whole())


def test_cluster_without_the_kind_has_no_limits(plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    """The watch is synced, says once that there are no limits, and finds them when the kind is installed."""

    async def play(kube: Kube, follower: Follower) -> None:
        await asyncio.wait_for(follower.watch.synced.wait(), PATIENCE)
        assert follower.watch.absent
        assert follower.watch.trouble
        await follower.until(lambda: "there are no limits" in caplog.text)
        await define(kube, "gpulimits")
        await kube.create(paths.limits(), DEFAULT)
        await follower.until(lambda: "default" in follower.limits)
        assert not follower.watch.absent
        assert not follower.watch.trouble
        assert follower.limits["default"].max == 2000
        assert caplog.text.count("there are no limits") == 1

    with caplog.at_level(logging.WARNING):
        follow(plane, play)


def test_limits_are_changed_and_removed(plane: ControlPlane) -> None:
    """A change counts at once, a removal as soon as it is known that the kind stays."""

    async def play(kube: Kube, follower: Follower) -> None:
        await define(kube, "gpulimits")
        await kube.create(paths.limits(), DEFAULT)
        await kube.create(paths.limits(), CAP)
        await follower.until(lambda: len(follower.limits) == 2)
        await kube.patch(paths.limit("default"), {"spec": {"max": "500m"}})
        await follower.until(lambda: follower.limits["default"].max == 500)
        await kube.delete(paths.limit("default"))
        await follower.until(lambda: follower.removed == ["default"])
        assert follower.watch.held == 0
        assert list(follower.limits) == ["cap"]

    follow(plane, play)


def test_limits_hold_when_their_kind_is_deleted(plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    """Deleting the CustomResourceDefinition lifts no limit; installed again, it counts as what it has."""

    async def play(kube: Kube, follower: Follower) -> None:
        await define(kube, "gpulimits")
        await kube.create(paths.limits(), DEFAULT)
        await kube.create(paths.limits(), CAP)
        await follower.until(lambda: len(follower.limits) == 2)
        await undefine(kube, "gpulimits")
        await follower.until(lambda: follower.watch.held == 2 and follower.watch.absent)
        await follower.until(lambda: "Install it again" in caplog.text)
        assert sorted(follower.limits) == ["cap", "default"]
        await define(kube, "gpulimits")
        await kube.create(paths.limits(), {**DEFAULT, "spec": {"subject": {"kind": "Default"}, "max": 1}})
        await follower.until(lambda: "default" in follower.limits and follower.limits["default"].max == 1000)
        await follower.until(lambda: list(follower.limits) == ["default"])
        assert follower.watch.held == 0

    with caplog.at_level(logging.ERROR):
        follow(plane, play)


def test_limits_hold_while_the_kind_cannot_be_read(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the API server refuses to tell whether the kind stays, a removed limit holds."""

    async def play(kube: Kube, follower: Follower) -> None:
        await define(kube, "gpulimits")
        await kube.create(paths.limits(), DEFAULT)
        await follower.until(lambda: "default" in follower.limits)
        with monkeypatch.context() as patch:
            patch.setattr(paths, "definition", lambda _: "/apis/apiextensions.k8s.io/v1/nothing/%")
            await kube.delete(paths.limit("default"))
            await follower.until(lambda: follower.watch.held == 1)
            await asyncio.sleep(0.3)
            assert "default" in follower.limits
        await follower.until(lambda: follower.removed == ["default"])

    follow(plane, play)
