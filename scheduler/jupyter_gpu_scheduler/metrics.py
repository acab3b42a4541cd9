"""Metrics of the scheduler for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .limit_watch import LimitWatch
from .notebooks import RemoteFigures

_PREFIX: Final = "jupyter_gpu_scheduler_"
_GPUS: Final = _PREFIX + "gpus"
_ABOUT_GPUS: Final = f"# HELP {_GPUS} GPUs of a node, in GPUs, by state.\n# TYPE {_GPUS} gauge\n"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_SLOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class SchedulerMetrics:
    """The metrics of one process; with a registry of its own, so that several can live in one test."""

    def __init__(self, snapshot: ClusterSnapshot, usage: Callable[[], str] = lambda: "") -> None:
        self._snapshot = snapshot
        self._usage = usage
        self.registry = CollectorRegistry()
        self.leading = self._gauge("leading", "1 while this replica leads.")
        self.decisions = self._counter("decisions", "Changes of what a pod is allocated, by kind.", "kind")
        self.decide_seconds = self._histogram("decide_seconds", "To decide for one node.", _FAST)
        answers = "Answers to kube-scheduler, by verb and outcome."
        self.answers = self._counter("extender_answers", answers, "verb", "outcome")
        self.answer_seconds = self._histogram("extender_seconds", "To answer kube-scheduler, by verb.", _SLOW, "verb")
        self.writes = self._counter("writes", "Writes to the API server, by kind and outcome.", "kind", "outcome")
        self.write_seconds = self._histogram(
            "write_seconds", "From the decision to its confirmation by the API server.", _SLOW
        )
        self.in_flight = self._gauge("writes_in_flight", "Decisions that are not confirmed yet.")
        self.waiting = self._gauge("waiting_pods", "Pods without a node that stand in line.")
        self.remote_parts = self._gauge("remote_parts", "Parts of notebooks' requests that other nodes serve.")
        self.remote_gpus = self._gauge(
            "remote_gpus", "GPUs of these parts: those that workers have, or not yet.", "state"
        )
        self.waiting_notebooks = self._gauge(
            "waiting_notebooks", "Running notebooks that another node could serve once it has room."
        )
        self.claimed_twice = self._gauge("gpus_claimed_twice", "GPUs that several nodes say they have.")
        self.watch_troubles = self._counter(
            "watch_troubles", "How often the API server could not be followed, by what was watched.", "watch"
        )
        self.limits = self._gauge("limits", "Limits that are known.")
        self.limits_absent = self._gauge("limits_absent", "1 while the cluster does not have GpuLimits.")
        self.limits_held = self._gauge(
            "limits_held",
            "Limits that hold though they were deleted, as their CustomResourceDefinition was: install it again.",
        )

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, about, labels, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(_PREFIX + name, about, labels, buckets=buckets, registry=self.registry)

    def follow_limits(self, count: Callable[[], int], watch: LimitWatch) -> None:
        """Report the limits as they are when the metrics are read."""
        self.limits.set_function(count)
        self.limits_absent.set_function(lambda: int(watch.absent))
        self.limits_held.set_function(lambda: watch.held)

    def follow_notebooks(self, figures: Callable[[], RemoteFigures]) -> None:
        """Report GPUs of other nodes as they are when the metrics are read."""
        self.remote_parts.set_function(lambda: figures().parts)
        self.remote_gpus.labels("allocated").set_function(lambda: figures().allocated / MILLI_PER_GPU)
        self.remote_gpus.labels("owed").set_function(lambda: figures().owed / MILLI_PER_GPU)
        self.waiting_notebooks.set_function(lambda: figures().waiting)

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
