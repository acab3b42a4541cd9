"""Counters of users in the scheduler's metrics: they follow the cluster, while the process leads."""

from __future__ import annotations

import asyncio
import contextlib

from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.usage_counters import UsageCounters
from tests.scheduler_process.test_cluster_cache import NODES, node, pod
from tests.scheduler_process.test_owners import put_pod


class Counted:
    """A cache with a clock that a test moves, and its counters as Prometheus reads them."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.cache = ClusterCache(lambda: None)
        self.cache.counters = self.counters = UsageCounters(self.cache.snapshot, elapsed=lambda: self.nanoseconds)
        for name in NODES:
            self.cache.node_changed(ObjectChange("added", node(name)))

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.nanoseconds += round(seconds * 10**9)

    def values(self) -> dict[tuple[str, str, str, str], float]:
        """Return the seconds by metric, user, model and kind."""
        metrics = SchedulerMetrics(self.cache.snapshot, self.counters.text).text().decode()
        return {
            (sample.name, sample.labels["username"], sample.labels["model"], sample.labels["kind"]): sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name.startswith("jupyter_gpu_user_")
        }


HELD = "jupyter_gpu_user_gpu_seconds_total"


def test_each_change_of_a_pod_is_counted() -> None:
    """GPU time of a pod that grows, shrinks and goes is exact; nobody need scrape in between."""
    made = Counted()
    put_pod(made.cache, "a", 1, "n0", 2, ("n0-0",))
    made.counters.begin()
    made.wait(10)
    put_pod(made.cache, "a", 2, "n0", 2, ("n0-0", "n0-1"))
    made.wait(5)
    made.cache.pod_changed(ObjectChange("removed", pod("a", 3, "n0")))
    made.wait(100)
    assert made.values()[HELD, "ann", "m", "owned"] == 10 + 2 * 5


def test_model_that_becomes_known_is_counted_from_then_on() -> None:
    """A node that vanishes takes the names of its models along; its pods' time is counted without one."""
    made = Counted()
    put_pod(made.cache, "a", 1, "n0", 1, ("n0-0",))
    made.counters.begin()
    made.wait(3)
    body = node("n0")
    made.cache.node_changed(ObjectChange("removed", body))
    made.wait(4)
    made.cache.node_changed(ObjectChange("added", body))
    made.wait(5)
    values = made.values()
    assert values[HELD, "ann", "m", "owned"] == 3 + 5
    assert values[HELD, "ann", "", "owned"] == 4


def test_only_a_leader_counts() -> None:
    """Before it leads, and after, a process has no counters: those of all replicas can be added up."""

    async def play() -> None:
        made = Counted()
        put_pod(made.cache, "a", 1, "n0", 1, ("n0-0",))
        assert made.values() == {}
        made.counters.begin()
        counting = asyncio.create_task(made.counters.keep())
        await asyncio.sleep(0)
        made.wait(2)
        assert made.values()[HELD, "ann", "m", "owned"] == 2
        counting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await counting
        assert made.values() == {}
        made.counters.begin()
        assert made.values()[HELD, "ann", "m", "owned"] == 0

    asyncio.run(play())


def test_odd_names_are_escaped() -> None:
    """A name with quotes, backslashes and line breaks is one label, read as it was."""
    made = Counted()
    odd = 'a"\\\nb'
    put_pod(made.cache, "a", 1, "n0", 1, ("n0-0",), user=odd)
    made.counters.begin()
    made.wait(1)
    assert made.values()[HELD, odd, "m", "owned"] == 1
