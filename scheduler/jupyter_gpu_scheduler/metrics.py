"""What the scheduler tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .snapshot import ClusterSnapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_SLOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One process's; with a registry of its own, so that several can live in one test."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        registry = self.registry = CollectorRegistry()
        self.leading = Gauge("jupyter_gpu_scheduler_leading", "1 while this replica leads.", registry=registry)
        self.decisions = Counter(
            "jupyter_gpu_scheduler_decisions",
            "Changes of what a pod is allocated, by kind.",
            ["kind"],
            registry=registry,
        )
        self.decide_seconds = Histogram(
            "jupyter_gpu_scheduler_decide_seconds", "To decide for one node.", buckets=_FAST, registry=registry
        )
        self.answers = Counter(
            "jupyter_gpu_scheduler_extender_answers",
            "Answers to kube-scheduler, by verb and outcome.",
            ["verb", "outcome"],
            registry=registry,
        )
        self.answer_seconds = Histogram(
            "jupyter_gpu_scheduler_extender_seconds",
            "To answer kube-scheduler, by verb.",
            ["verb"],
            buckets=_SLOW,
            registry=registry,
        )
        self.writes = Counter(
            "jupyter_gpu_scheduler_writes",
            "Writes to the API server, by kind and outcome.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.write_seconds = Histogram(
            "jupyter_gpu_scheduler_write_seconds",
            "From the decision to its confirmation by the API server.",
            buckets=_SLOW,
            registry=registry,
        )
        self.in_flight = Gauge(
            "jupyter_gpu_scheduler_writes_in_flight", "Decisions that are not confirmed yet.", registry=registry
        )
        self.waiting = Gauge(
            "jupyter_gpu_scheduler_waiting_pods", "Pods without a node that stand in line.", registry=registry
        )
        self.watch_troubles = Counter(
            "jupyter_gpu_scheduler_watch_troubles",
            "How often the API server could not be followed, by what was watched.",
            ["watch"],
            registry=registry,
        )
        registry.register(_Gpus(snapshot))

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)


class _Gpus(Collector):
    """GPUs by node, counted when somebody asks."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Free, held and unhealthy ones, as parts of GPUs."""
        gpus = GaugeMetricFamily(
            "jupyter_gpu_scheduler_gpus", "GPUs of a node, in GPUs, by state.", labels=["node", "state"]
        )
        for node in sorted(self._snapshot.nodes()):
            counts = {"free": 0, "held": 0, "unhealthy": 0}
            for gpu in self._snapshot.gpus(node) or ():
                free = self._snapshot.free(gpu.uuid)
                counts["held"] += MILLI_PER_GPU - free
                counts["free" if gpu.healthy else "unhealthy"] += free
            for state, milli in counts.items():
                gpus.add_metric([node, state], milli / MILLI_PER_GPU)
        yield gpus
