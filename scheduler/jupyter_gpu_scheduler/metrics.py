"""Metrics of the scheduler for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .limit_watch import LimitWatch

_GPUS: Final = "jupyter_gpu_scheduler_gpus"
_ABOUT_GPUS: Final = f"# HELP {_GPUS} GPUs of a node, in GPUs, by state.\n# TYPE {_GPUS} gauge\n"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_SLOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class SchedulerMetrics:
    """The metrics of one process; with a registry of its own, so that several can live in one test."""

    def __init__(self, snapshot: ClusterSnapshot, usage: Callable[[], str] = lambda: "") -> None:
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
        self.claimed_twice = Gauge(
            "jupyter_gpu_scheduler_gpus_claimed_twice", "GPUs that several nodes say they have.", registry=registry
        )
        self.watch_troubles = Counter(
            "jupyter_gpu_scheduler_watch_troubles",
            "How often the API server could not be followed, by what was watched.",
            ["watch"],
            registry=registry,
        )
        self.limits = Gauge("jupyter_gpu_scheduler_limits", "Limits that are known.", registry=registry)
        self.limits_absent = Gauge(
            "jupyter_gpu_scheduler_limits_absent", "1 while the cluster does not have GpuLimits.", registry=registry
        )
        self.limits_held = Gauge(
            "jupyter_gpu_scheduler_limits_held",
            "Limits that hold though they were deleted, as their CustomResourceDefinition was: install it again.",
            registry=registry,
        )
        self._snapshot = snapshot
        self._usage = usage

    def follow_limits(self, count: Callable[[], int], watch: LimitWatch) -> None:
        """Tell of the limits as they are when the metrics are asked for."""
        self.limits.set_function(count)
        self.limits_absent.set_function(lambda: int(watch.absent))
        self.limits_held.set_function(lambda: watch.held)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry) + (_gpus(self._snapshot) + self._usage()).encode()


def _gpus(snapshot: ClusterSnapshot) -> str:
    """Return the free, held and unhealthy GPUs of each node, as parts of GPUs.

    Written here and not by the library: for thousands of nodes that takes it a fifth of a second, in which no request
    would be answered. The lines of a node are kept until it changes.
    """
    kept: dict[str, str] = snapshot.memo("metrics")
    for node in snapshot.nodes():
        if node not in kept:
            kept[node] = _gpus_of(snapshot, node)
    return _ABOUT_GPUS + "".join(kept[node] for node in sorted(snapshot.nodes()))


def _gpus_of(snapshot: ClusterSnapshot, node: str) -> str:
    counts = {"free": 0, "held": 0, "unhealthy": 0}
    for gpu in snapshot.gpus(node) or ():
        free = snapshot.free(gpu.uuid, node)
        counts["held"] += MILLI_PER_GPU - free
        counts["free" if gpu.healthy else "unhealthy"] += free
    name = node.translate(_ESCAPED)
    return "".join(
        f'{_GPUS}{{node="{name}",state="{state}"}} {milli / MILLI_PER_GPU}\n' for state, milli in counts.items()
    )
