"""Figures of time shares for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.kubelet.rules.slots import PodRef

LABELS = ("namespace", "pod", "gpu")
_SECOND = 1_000_000
_USED = ("guaranteed", "borrowed", "idle", "overrun")
_WAITED = {
    "waited": ("jupyter_gpu_share_waited_seconds", "Time with work and without the GPU"),
    "throttled": ("jupyter_gpu_share_throttled_seconds", "Of it, the time in which all that was earned was used up"),
    "lost": ("jupyter_gpu_share_lost_seconds", "GPU time that was saved and not used in time"),
}


@dataclass(frozen=True, slots=True)
class ShareSample:
    """The figures of one share."""

    pod: PodRef
    share: ShareUse
    clients: int


class ShareMetrics:
    """The metrics of shares. Totals never fall: what an account gives back is not counted twice."""

    def __init__(self) -> None:
        self.source: Callable[[], Iterable[ShareSample]] = tuple
        """Function that returns the figures of the shares that are served now."""
        self._most: dict[tuple[str, str, str], int] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        found = tuple(self.source())
        known = {(one.pod.uid, one.share.uuid) for one in found}
        self._most = {key: value for key, value in self._most.items() if key[:2] in known}
        yield from self._gauges(found)
        used = CounterMetricFamily(
            "jupyter_gpu_share_used_seconds",
            "Time with the GPU: of what was earned, from the bank, while nobody claimed it, beyond the claim",
            labels=(*LABELS, "kind"),
        )
        for one in found:
            for kind in _USED:
                used.add_metric((*_names(one), kind), self._total(one, kind))
        yield used
        for name, (title, text) in _WAITED.items():
            counter = CounterMetricFamily(title, text, labels=LABELS)
            for one in found:
                counter.add_metric(_names(one), self._total(one, name))
            yield counter

    def _gauges(self, found: Iterable[ShareSample]) -> Iterator[Metric]:
        gauges: tuple[tuple[str, str, Callable[[ShareSample], float | None]], ...] = (
            ("milli", "Thousandths of a GPU that a share was given", lambda one: one.share.allocated),
            ("effective_milli", "Thousandths that it earns now", lambda one: one.share.effective),
            ("bank_seconds", "GPU time that it has saved", lambda one: one.share.balance / _SECOND),
            ("bank_most_seconds", "The most that it can save", lambda one: one.share.cap / _SECOND),
            ("memory_bytes", "GPU memory in use by its programs", lambda one: one.share.memory_used),
            ("memory_limit_bytes", "The most that they may use", lambda one: one.share.memory_limit),
            ("programs", "Programs that use it", lambda one: one.clients),
        )
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"jupyter_gpu_share_{name}", text, labels=LABELS)
            for one in found:
                if (number := value(one)) is not None:
                    gauge.add_metric(_names(one), number)
            yield gauge

    def _total(self, one: ShareSample, name: str) -> float:
        key = (one.pod.uid, one.share.uuid, name)
        self._most[key] = max(self._most.get(key, 0), int(getattr(one.share, name)))
        return self._most[key] / _SECOND


def _names(one: ShareSample) -> tuple[str, str, str]:
    return one.pod.namespace, one.pod.name, one.share.uuid
