"""Figures of time shares."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.agent.sharing.share_metrics import ShareMetrics, ShareSample
from jupyter_gpu_node.kubelet.rules.slots import PodRef

SHARE = ShareUse(
    uuid="GPU-1", allocated=250, effective=400, guaranteed=9_000_000, borrowed=800_000, idle=70_000, overrun=600,
    switching=5_000, waited=400_000, throttled=30_000, lost=2_000, balance=1_200_000, cap=2_000_000,
    expires=17_000_000, sharing=2, period=100_000, memory_used=2**30, memory_limit=None,
)  # fmt: skip
POD = PodRef("u", "alice", "notebook")
LABELS = 'gpu="GPU-1",namespace="alice",pod="notebook"'


class Shown(ShareMetrics, Collector):
    """As Prometheus gets them."""

    def value(self, name: str, labels: str = LABELS) -> float | None:
        """None where it is not told."""
        registry = CollectorRegistry()
        registry.register(self)
        lines = dict(line.rsplit(" ", 1) for line in generate_latest(registry).decode().splitlines())
        found = lines.get(f"jupyter_gpu_share_{name}{{{labels}}}")
        return None if found is None else float(found)


def test_every_share_has_its_figures() -> None:
    """In seconds and bytes; a limit that does not exist is left out."""
    shown = Shown()
    shown.source = lambda: [ShareSample(POD, SHARE, 3)]
    assert [shown.value(name) for name in ("milli", "effective_milli", "programs")] == [250, 400, 3]
    assert [shown.value(name) for name in ("bank_seconds", "bank_most_seconds")] == [1.2, 2]
    assert [shown.value(name) for name in ("memory_bytes", "memory_limit_bytes")] == [2**30, None]
    kinds = ("guaranteed", "borrowed", "idle", "overrun")
    labels = [LABELS.replace("namespace", f'kind="{kind}",namespace') for kind in kinds]
    assert [shown.value("used_seconds_total", each) for each in labels] == [9, 0.8, 0.07, 0.0006]
    names = ("waited_seconds_total", "throttled_seconds_total", "lost_seconds_total")
    assert [shown.value(name) for name in names] == [0.4, 0.03, 0.002]
    shown.source = tuple
    assert shown.value("milli") is None


def test_totals_never_fall() -> None:
    """A refund to an account does not restart the totals; a share that comes again does."""
    shown = Shown()
    labels = LABELS.replace("namespace", 'kind="guaranteed",namespace')
    for guaranteed, seconds in ((9_000_000, 9), (8_900_000, 9), (9_500_000, 9.5)):
        shown.source = lambda guaranteed=guaranteed: [ShareSample(POD, replace(SHARE, guaranteed=guaranteed), 1)]  # type: ignore[misc]
        assert shown.value("used_seconds_total", labels) == seconds
    shown.source = tuple
    assert shown.value("used_seconds_total", labels) is None
    shown.source = lambda: [ShareSample(POD, replace(SHARE, guaranteed=100_000), 1)]
    assert shown.value("used_seconds_total", labels) == 0.1
