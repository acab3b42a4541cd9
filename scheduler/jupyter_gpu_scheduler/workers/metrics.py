"""Metrics of the worker controller for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jupyter_gpu.model.service import WorkerState, WorkerStatus

from .rules.figures import REASONS, by_state, refusals
from .rules.records import Notebook, WorkerPod

_PREFIX: Final = "jupyter_gpu_workers_"
_SECONDS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0)


class WorkerMetrics:
    """The metrics of one process; with a registry of its own, so that several can live in one test."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._created: dict[tuple[str, str], tuple[float, set[WorkerState]]] = {}
        """Worker pods that this process created and that do not run yet: when, and the states that each reached."""
        self.registry = CollectorRegistry()
        self.leading = Gauge(_PREFIX + "leading", "1 while this replica leads.", registry=self.registry)
        self._states = Gauge(
            _PREFIX + "told", "Workers of notebooks, by the state told.", ("state",), registry=self.registry
        )
        self._seconds = Histogram(
            _PREFIX + "seconds",
            "From the creation of a worker's pod to each state that it reaches, until it runs.",
            ("state",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._refusals = Counter(
            _PREFIX + "refusals", "Workers that were refused, by reason.", ("reason",), registry=self.registry
        )
        for reason in REASONS:
            self._refusals.labels(reason)

    def follow(self, notebooks: Callable[[], Iterable[Notebook]]) -> None:
        """Report the workers of notebooks as they are when the metrics are read."""

        def count(state: WorkerState) -> Callable[[], float]:
            return lambda: by_state(notebooks())[state]

        for state in WorkerState:
            self._states.labels(_word(state)).set_function(count(state))

    def created(self, namespace: str, name: str) -> None:
        """Note that a worker's pod is being created."""
        self._created[namespace, name] = self._clock(), set()

    def seen(self, worker: WorkerPod) -> None:
        """Note the state of a worker's pod."""
        at, reached = self._created.get((worker.namespace, worker.name), (0.0, None))
        state = worker.condition.state
        if reached is None or state is WorkerState.CREATING or state in reached:
            return
        reached.add(state)
        self._seconds.labels(_word(state)).observe(self._clock() - at)
        if state is WorkerState.RUNNING:
            self.gone(worker.namespace, worker.name)

    def gone(self, namespace: str, name: str) -> None:
        """Forget a worker's pod."""
        self._created.pop((namespace, name), None)

    def told(self, before: Mapping[str, WorkerStatus], after: Mapping[str, WorkerStatus]) -> None:
        """Count the workers that are newly refused."""
        for reason in refusals(before, after):
            self._refusals.labels(reason).inc()

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _word(state: WorkerState) -> str:
    return state.value.lower()
