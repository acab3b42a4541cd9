"""Metrics of the node plugin for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import Gpu, total
from jupyter_gpu_node.agent.sharing.share_metrics import ShareMetrics
from jupyter_gpu_node.kubelet.rules.slots import PodRef

APPLY_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


@dataclass(slots=True)
class _Account:
    """GPU time of one pod."""

    pod: PodRef
    attached: Attached
    since: float
    milli_seconds: float = 0

    def add_time(self, now: float) -> None:
        self.milli_seconds += total(self.attached.shares) * (now - self.since)
        self.since = now


class Metrics(Collector):
    """The metrics of the node plugin. Figures of a pod vanish with it."""

    def __init__(self, gpus: Callable[[], tuple[Gpu, ...]] = lambda: ()) -> None:
        self.registry = CollectorRegistry()
        self.gpus = gpus
        self.shares = ShareMetrics()
        self._accounts: dict[str, _Account] = {}
        self.apply = Histogram(
            "jupyter_gpu_apply_seconds",
            "Time to have changed device rules in force",
            buckets=APPLY_BUCKETS,
            registry=self.registry,
        )
        self.writes = self._counter("jupyter_gpu_writes", "Writes of the attached annotation")
        self.failures = self._counter("jupyter_gpu_failures", "Steps of a pod that failed and are tried again")
        self.unguarded = self._counter("jupyter_gpu_unguarded", "Containers started without the node plugin")
        self.audits = self._counter("jupyter_gpu_audits", "Scans for the processes that have GPUs open")
        self.intruders = self._counter("jupyter_gpu_intruders", "Processes ended because of a GPU not given to them")
        self.moving = self._counter(
            "jupyter_gpu_moving", "Releases believed after scans of a pod that could never be frozen for them"
        )
        self.strangers = self._counter("jupyter_gpu_strangers", "Programs of the machine found to have a GPU open")
        self.share_stops = self._counter(
            "jupyter_gpu_share_stops", "Programs stopped until the next turn of their share"
        )
        self.shares_taken = self._counter("jupyter_gpu_shares_taken", "Shares taken away from their pods")
        self.orphans = Counter(
            "jupyter_gpu_orphans",
            "Leftovers of pods that ended while no plugin ran, found and removed",
            ["kind"],
            registry=self.registry,
        )
        self.stuck = Gauge(
            "jupyter_gpu_stuck_slots",
            "Slots of pods that are gone, which only the kubelet can free",
            registry=self.registry,
        )
        self.two_owners = Gauge(
            "jupyter_gpu_two_owners",
            "Managed GPUs that another plugin has given to a pod, too, or may have",
            registry=self.registry,
        )
        self.can_guard = Gauge(
            "jupyter_gpu_can_guard", "Whether device rules can be put in force on this node", registry=self.registry
        )
        self.slots_offered = Gauge(
            "jupyter_gpu_slots_offered", "Whether the kubelet is offered slots of this node", registry=self.registry
        )
        self.registry.register(self)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def attached(self, pod: PodRef, attached: Attached) -> None:
        """Record what a pod has from now on."""
        now = time.monotonic()
        account = self._accounts.setdefault(pod.uid, _Account(pod, attached, now))
        account.add_time(now)
        account.attached = attached

    def forget(self, uid: str) -> None:
        """Remove the figures of a pod that is gone."""
        self._accounts.pop(uid, None)

    def collect(self) -> Iterator[Metric]:
        """Return the figures of pods and GPUs as they are now."""
        now = time.monotonic()
        labels = ("namespace", "pod", "gpu")
        attached = GaugeMetricFamily("jupyter_gpu_attached_milli", "Thousandths of a GPU that a pod has", labels=labels)
        draining = GaugeMetricFamily(
            "jupyter_gpu_draining_milli", "Taken away, but still open somewhere", labels=labels
        )
        seconds = CounterMetricFamily(
            "jupyter_gpu_gpu_seconds",
            "GPU time that a pod has had, a whole GPU for a second being 1",
            labels=labels[:2],
        )
        for account in self._accounts.values():
            account.add_time(now)
            names = (account.pod.namespace, account.pod.name)
            seconds.add_metric(names, account.milli_seconds / 1000)
            for share in account.attached.shares:
                attached.add_metric((*names, share.uuid), share.milli)
            for item in account.attached.draining:
                draining.add_metric((*names, item.uuid), item.milli)
        healthy = GaugeMetricFamily("jupyter_gpu_healthy", "Whether a GPU can be given away", labels=("gpu", "model"))
        for gpu in self.gpus():
            healthy.add_metric((gpu.uuid, gpu.model), float(gpu.healthy))
        compute = GaugeMetricFamily(
            "jupyter_gpu_compute_flops",
            "Operations a second with numbers of 32 bits that a GPU can do at most",
            labels=("gpu", "model"),
        )
        for gpu in self.gpus():
            if gpu.compute:
                compute.add_metric((gpu.uuid, gpu.model), gpu.compute * 1e9)
        yield from (attached, draining, seconds, healthy, compute)
        yield from self.shares.collect()
