"""Our part of the Jupyter server's own ``/metrics``; pure.

Names follow Prometheus: base units, counters with ``_total``. GPUs are labelled by their index, as a machine has few of
them, and not by uuid, as a server in use for months sees many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuLoad, Sample, View

PREFIX = "jupyter_gpu_server_"
_SECOND = 1_000_000
_USED = ("guaranteed", "borrowed", "idle", "overrun")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures known at one moment."""

    view: View
    sample: Sample | None = None
    """The last sample, unless it is too old."""
    waiting: float = 0.0
    """Seconds of the current wait."""
    waited: float = 0.0
    """Seconds of all waits."""
    resizes: Mapping[str, int] = field(default_factory=dict)
    """Number of resizes that ended, by outcome."""


def families(told: Figures) -> Iterator[Metric]:
    """Yield all figures; unknown ones are left out, never 0."""
    yield from _amounts(told.view)
    yield _gauge("waiting_seconds", "How long this server waits for free GPUs by now", told.waiting)
    waited = CounterMetricFamily(f"{PREFIX}waited_seconds", "Time in which it waited for free GPUs")
    waited.add_metric((), told.waited)
    yield waited
    resizes = CounterMetricFamily(f"{PREFIX}resizes", "Resizes that ended, by how", labels=("outcome",))
    for outcome, number in sorted(told.resizes.items()):
        resizes.add_metric((outcome,), number)
    yield resizes
    if told.sample:
        yield _gauge("sample_timestamp_seconds", "When what follows was measured", told.sample.time)
        indexes = {card.gpu.uuid: str(card.gpu.index) for card in told.view.gpus}
        memory = {card.gpu.uuid: card.gpu.memory for card in told.view.gpus}
        yield from _loads({indexes[uuid]: load for uuid, load in told.sample.loads.items() if uuid in indexes})
        yield _by_gpu("gpu_memory_bytes", "Memory of a GPU", {indexes[uuid]: memory[uuid] for uuid in indexes})
        yield from _shares({indexes[uuid]: use for uuid, use in told.sample.shares.items() if uuid in indexes})


def _amounts(view: View) -> Iterator[Metric]:
    now = view.status
    gauges = (
        ("requested_gpus", "GPUs that were asked for; a share of one is less than 1", now.requested),
        ("allocated_gpus", "GPUs that were decided to be this server's", now.allocated),
        ("attached_gpus", "GPUs that its notebooks can open", now.attached),
        ("draining_gpus", "GPUs that it gave back and that are still open somewhere", now.draining),
        ("limit_gpus", "The most GPUs that it may have", view.limit),
    )
    for name, text, milli in gauges:
        yield _gauge(name, text, milli / MILLI_PER_GPU)
    phase = GaugeMetricFamily(f"{PREFIX}phase", "1 for the phase that its GPUs are in", labels=("phase",))
    for one in Phase:
        phase.add_metric((one.value,), float(one is now.phase))
    yield phase


def _loads(loads: Mapping[str, GpuLoad]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[GpuLoad], float | None]], ...] = (
        ("gpu_utilisation_ratio", "How busy a GPU is, by all who use it", _utilisation),
        ("gpu_memory_used_bytes", "Memory of a GPU in use, by all who use it", lambda load: load.memory),
        ("gpu_temperature_celsius", "Temperature of a GPU", lambda load: load.temperature),
        ("gpu_power_watts", "Power that a GPU draws", lambda load: load.power),
    )
    for name, text, value in gauges:
        yield _by_gpu(name, text, {index: value(load) for index, load in loads.items()})


def _utilisation(load: GpuLoad) -> float | None:
    return None if load.utilisation is None else load.utilisation / 100


def _shares(uses: Mapping[str, ShareUse]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[ShareUse], float | None]], ...] = (
        ("share_ratio", "Part of a GPU that was given", lambda use: use.allocated / MILLI_PER_GPU),
        ("share_effective_ratio", "Part that it earns now", lambda use: use.effective / MILLI_PER_GPU),
        ("share_bank_seconds", "GPU time that it has saved", lambda use: use.balance / _SECOND),
        ("share_bank_limit_seconds", "The most that it can save", lambda use: use.cap / _SECOND),
    )
    for name, text, value in gauges:
        yield _by_gpu(name, text, {index: value(use) for index, use in uses.items()})
    used = CounterMetricFamily(
        f"{PREFIX}share_used_seconds",
        "Time with the GPU: of what was earned, from the bank, while nobody claimed it, beyond the claim",
        labels=("gpu", "kind"),
    )
    for index, use in sorted(uses.items()):
        for kind in _USED:
            used.add_metric((index, kind), getattr(use, kind) / _SECOND)
    yield used
    counters: tuple[tuple[str, str, Callable[[ShareUse], int]], ...] = (
        ("share_waited_seconds", "Time with work and without the GPU", lambda use: use.waited),
        (
            "share_throttled_seconds",
            "Of it, the time in which all that was earned was used up",
            lambda use: use.throttled,
        ),
        ("share_lost_seconds", "GPU time that was saved and not used in time", lambda use: use.lost),
    )
    for name, text, total in counters:
        counter = CounterMetricFamily(f"{PREFIX}{name}", text, labels=("gpu",))
        for index, use in sorted(uses.items()):
            counter.add_metric((index,), total(use) / _SECOND)
        yield counter


def _gauge(name: str, text: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(f"{PREFIX}{name}", text)
    gauge.add_metric((), value)
    return gauge


def _by_gpu(name: str, text: str, values: Mapping[str, float | None]) -> Metric:
    gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=("gpu",))
    for index, value in sorted(values.items()):
        if value is not None:
            gauge.add_metric((index,), value)
    return gauge
