"""Pods that wait for a node: what kube-scheduler said of them; those that no watch ever shows are forgotten."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import ALLOCATED, Allocated, encode
from jupyter_gpu_scheduler import waiting as module
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.waiting import WaitingPods
from tests.scheduler_process.test_cluster_cache import node, pod


def test_pod_that_is_never_shown_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted before the watch had it; a pod that the watch shows meanwhile waits on."""
    monkeypatch.setattr(module, "UNSEEN_SECONDS", 0.05)

    async def run() -> None:
        cache = ClusterCache(lambda: None)
        waiting = WaitingPods(cache, lambda decisions, kind: None, Policy(), wake_seconds=1)
        for uid in ("never", "later", "known"):
            if uid == "known":
                cache.pod_changed(ObjectChange("added", pod(uid, 1)))
            waiting.asked(uid, ("n0",), fits=False)
        cache.pod_changed(ObjectChange("added", pod("later", 1)))
        assert waiting.count == 3
        async with asyncio.timeout(60):
            while waiting.count != 2:
                await asyncio.sleep(0.01)
        waiting.stop()

    asyncio.run(run())


class Line:
    """The cache of two full nodes, and one pod that waits; decisions are written at once."""

    def __init__(self) -> None:
        self.cache = ClusterCache(lambda: None)
        self.waiting = WaitingPods(self.cache, self._write, Policy(), wake_seconds=100)
        self.writes = 0
        self._pod = pod("a", 1)
        for name in ("n0", "n1"):
            self.cache.node_changed(ObjectChange("added", node(name, 1)))
            self.cache.pod_changed(ObjectChange("added", pod(f"on-{name}", 1, name, (f"{name}-0",), (f"{name}-0",))))
        self._show()

    @property
    def node(self) -> str:
        """Return the node in whose line the pod is."""
        state = self.cache.snapshot.pod("a")
        return state.nominated if state else ""

    def status(self, **status: Any) -> None:
        """kube-scheduler writes its status."""
        self._pod = {**self._pod, "status": status}
        self._show()

    def _write(self, decisions: Iterable[Decision], kind: str) -> None:
        for decision in decisions:
            self.writes += 1
            metadata = self._pod["metadata"]
            words = {**metadata["annotations"], ALLOCATED: encode(decision.allocated)}
            self._pod = {**self._pod, "metadata": {**metadata, "annotations": words}}
            self._show()

    def _show(self) -> None:
        metadata = self._pod["metadata"]
        version = str(int(metadata["resourceVersion"]) + 1)
        self._pod = {**self._pod, "metadata": {**metadata, "resourceVersion": version}}
        self.cache.pod_changed(ObjectChange("changed", self._pod))
        self.waiting.pod_changed("a")


def _in_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


def test_pod_is_nominated_where_others_may_end_for_it() -> None:
    """No other pod takes what they free; once kube-scheduler has chosen a node, it is that one."""

    def work() -> None:
        line = Line()
        line.waiting.asked("a", ("n0",), fits=False)
        assert line.node == "n0"
        line.waiting.preempts("a", ("n1",))
        assert line.node == "n1"
        line.waiting.preempts("a", ("n0", "n1"))
        assert line.node == "n1"
        line.status(nominatedNodeName="elsewhere")
        assert line.node == "n1"
        line.status(nominatedNodeName="n0")
        assert line.node == "n0"
        line.waiting.asked("a", ("n1",), fits=False)
        assert line.node == "n1", "the newest question counts"
        line.status(nominatedNodeName="n0", phase="Pending")
        assert line.node == "n1"
        assert line.writes == 4
        line.waiting.stop()

    _in_loop(work)


def test_pod_takes_its_ticket_after_those_that_are_not_decided() -> None:
    """A pod before it has a wish that nobody has decided about; once that is done, the pod is put in line."""

    def work() -> None:
        line = Line()
        line.cache.pod_changed(ObjectChange("added", pod("0", 1, "n0")))
        line.waiting.asked("a", ("n0", "n1"), fits=False)
        line.waiting.enqueue_early()
        assert (line.node, line.writes) == ("", 0)
        first = pod("0", 2, "n0")
        first["metadata"]["annotations"][ALLOCATED] = encode(Allocated(0))
        line.cache.pod_changed(ObjectChange("changed", first))
        line.waiting.enqueue_early()
        assert (line.node, line.writes) == ("n0", 1)
        line.waiting.enqueue_early()
        assert line.writes == 1
        line.waiting.stop()

    _in_loop(work)


def test_offer_is_known_until_the_pod_has_a_node() -> None:
    """It is forgotten with the pod, and while there is room: then the pod is about to be bound."""

    def work() -> None:
        line = Line()

        def offered() -> tuple[str, ...] | None:
            state = line.cache.snapshot.pod("a")
            return state.offered.names if state and state.offered else None

        assert offered() is None
        line.waiting.asked("a", ("n1", "n0"), fits=False)
        assert offered() == ("n0", "n1")
        line.waiting.asked("a", ("n0",), fits=True)
        assert offered() is None
        line.waiting.asked("a", ("n0",), fits=False)
        line.cache.pod_changed(ObjectChange("changed", pod("a", 100, "n0")))
        line.waiting.pod_changed("a")
        assert offered() is None
        assert line.waiting.count == 0

    _in_loop(work)


def test_pod_that_starts_as_a_guest_takes_no_ticket() -> None:
    """Its Binding carries it. But that no node has room for it is known until then."""

    async def run() -> None:
        line = Line()
        for as_guest in (True, False):
            line.waiting.asked("a", ("n0", "n1"), fits=as_guest, as_guest=as_guest)
            state = line.cache.snapshot.pod("a")
            assert state
            assert state.offered
            assert (line.writes, bool(line.node)) == ((0, False) if as_guest else (1, True))
        line.waiting.stop()

    asyncio.run(run())


def test_pod_on_its_way_is_counted_until_it_has_arrived() -> None:
    """It ends when the pod is bound, asked for again, or gone; it never counts for itself, and in parts where it may go
    to several nodes.
    """

    def work() -> None:
        line = Line()
        for uid in ("a", "b", "c"):
            line.waiting.asked(uid, ("n0", "n1"), fits=True)
        line.waiting.scored("a", ("n0", "n1"))
        line.waiting.scored("b", ("n0",))
        line.waiting.scored("nobody asked for it", ("n0",))
        assert line.waiting.coming("c") == {"n0": 1.5, "n1": 0.5}
        assert line.waiting.coming("b") == {"n0": 0.5, "n1": 0.5}
        line.waiting.bound("b")
        assert line.waiting.coming("c") == {"n0": 0.5, "n1": 0.5}
        line.cache.pod_changed(ObjectChange("changed", pod("a", 100, "n0")))
        line.waiting.pod_changed("a")
        assert line.waiting.coming("c") == {}
        line.waiting.scored("b", ("n0",))
        line.waiting.asked("b", ("n0", "n1"), fits=True)
        assert line.waiting.coming("c") == {}
        line.waiting.bound("nobody asked for it")
        line.waiting.stop()

    _in_loop(work)
