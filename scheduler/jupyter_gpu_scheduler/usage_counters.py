"""The counters of users for Prometheus: what each held, waited for and left idle while this process led.

They are brought up to date with each change of a pod, so a scrape costs what the number of series costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from jupyter_gpu_scheduler.rules.accounts.counters import Counted, Counters, Names, Series, rates
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

_METRICS: Final[dict[Counted, tuple[str, str]]] = {
    "held": ("jupyter_gpu_user_gpu_seconds", "GPU time that pods of a user held: allocated, attached or draining."),
    "waiting": ("jupyter_gpu_user_waiting_seconds", "Time that pods of a user stood in line for GPUs."),
    "idle": (
        "jupyter_gpu_user_idle_gpu_seconds",
        "GPU time of a user's GPUs that did nothing: no process had them open, or they rested.",
    ),
}
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class UsageCounters:
    """The counters of one process; they exist while it leads, so those of several replicas can be added up."""

    def __init__(
        self, snapshot: ClusterSnapshot, names: Names = "names", *, elapsed: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._snapshot = snapshot
        self._names = names
        self._elapsed = elapsed
        self._counters: Counters | None = None
        self._lines: dict[Series, str] = {}

    def begin(self) -> None:
        """Begin to count, all pods as they are now."""
        self._counters = Counters()
        for owner in self._snapshot.owners():
            for pod in self._snapshot.owned(owner):
                self.pod_changed(pod.uid)

    async def keep(self) -> None:
        """Count until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            self._counters = None
            self._lines.clear()

    def pod_changed(self, uid: str) -> None:
        """Count a pod as it is now in the snapshot, or no more where it is gone."""
        if self._counters is None:
            return
        pod = self._snapshot.pod(uid)
        if pod is None:
            self._counters.put(uid, {}, self._elapsed())
            return
        models = {gpu.uuid: gpu.model for gpu in self._snapshot.gpus(pod.node) or ()}
        wishes = pod.requested is not None and bool(pod.requested.wish.model)
        known = {kind.model for kind in self._snapshot.gpu_kinds("")} if wishes else ()
        self._counters.put(uid, rates(pod, models, known, self._names), self._elapsed())

    def node_changed(self, name: str) -> None:
        """Count the pods of a node anew: its GPUs may be of another model than was known."""
        if self._counters is not None:
            for pod in self._snapshot.pods(name):
                self.pod_changed(pod.uid)

    def text(self) -> str:
        """Return the counters in Prometheus' text format."""
        values = list(self._counters.values(self._elapsed())) if self._counters else []
        found: dict[Counted, list[str]] = {counted: [] for counted in _METRICS}
        for series, seconds in values:
            found[series.counted].append(f"{self._line(series)} {seconds:.6f}\n")
        self._lines = {series: self._lines[series] for series, _ in values}
        return "".join(
            f"# HELP {name}_total {about}\n# TYPE {name}_total counter\n{''.join(sorted(found[counted]))}"
            for counted, (name, about) in _METRICS.items()
        )

    def _line(self, series: Series) -> str:
        known = self._lines.get(series)
        if known is None:
            labels = {key: value for key, value in series._asdict().items() if key != "counted"}
            text = ",".join(f'{key}="{value.translate(_ESCAPED)}"' for key, value in labels.items())
            known = self._lines[series] = f"{_METRICS[series.counted][0]}_total{{{text}}}"
        return known
