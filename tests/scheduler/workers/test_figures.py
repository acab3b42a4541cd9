"""Figures about workers: states, reasons of refusals, and the time until a worker runs."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model.service import WorkerState, WorkerStatus
from jupyter_gpu_scheduler.workers.metrics import WorkerMetrics
from jupyter_gpu_scheduler.workers.rules.figures import REASONS, by_state, refusals
from jupyter_gpu_scheduler.workers.rules.plan import plan
from jupyter_gpu_scheduler.workers.rules.records import WorkerPod
from tests.scheduler.workers.pods import RUNNING, notebook, part, waiting, worker

REFUSED = WorkerStatus(WorkerState.REFUSED, "x", 1, 5)


def test_workers_are_counted_by_state() -> None:
    """Those of all notebooks, also without a pod."""
    told = {"w1": REFUSED, "w2": WorkerStatus(WorkerState.RUNNING)}
    assert by_state([notebook(statuses=told), notebook(), notebook(statuses={"w1": REFUSED})]) == {
        WorkerState.REFUSED: 2,
        WorkerState.RUNNING: 1,
    }


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "x" is forbidden: exceeded quota: gpus, requested: pods=1', "quota"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "security"),
        ("ErrImagePull: not found", "image"),
        ("ImagePullBackOff: Back-off", "image"),
        ("The notebooks of one user may have 8 workers together, and have 8.", "limit"),
        ("denied by a ValidatingAdmissionPolicy", "other"),
    ],
)
def test_reason_of_a_refusal_is_known_by_its_words(message: str, reason: str) -> None:
    """Ours, or those of Kubernetes."""
    assert refusals({}, {"w1": REFUSED._replace(message=message)}) == [reason]
    assert reason in REASONS


def test_each_try_is_one_refusal() -> None:
    """States that were told before, and other ones, are none."""
    again = REFUSED._replace(tries=2)
    assert refusals({"w1": REFUSED}, {"w1": REFUSED, "w2": WorkerStatus(WorkerState.FAILED, "x", 1)}) == []
    assert refusals({"w1": REFUSED}, {"w1": again}) == ["other"]
    assert refusals({"w1": WorkerStatus(WorkerState.PULLING, "", 1)}, {"w1": REFUSED}) == ["other"]
    bound = plan(notebook(part(1)), (), now=1, most=0).statuses
    assert bound is not None
    assert refusals({}, bound) == ["limit"]


def _in(status: dict[str, Any]) -> WorkerPod:
    return worker(part(1), status)


def test_time_to_each_state_is_counted_once() -> None:
    """From the creation, until the pod runs; another process' pods are not counted."""
    clock = iter((10.0, 12.0, 13.5))
    metrics = WorkerMetrics(lambda: next(clock))
    pod = _in(waiting("ErrImagePull"))
    metrics.seen(pod)
    metrics.created(pod.namespace, pod.name)
    for status in ({"phase": "Pending"}, waiting("ErrImagePull"), waiting("ImagePullBackOff"), RUNNING, waiting("x")):
        metrics.seen(_in(status))

    def told(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"jupyter_gpu_workers_{name}", labels)

    assert (told("seconds_count", state="refused"), told("seconds_sum", state="refused")) == (1, 2)
    assert (told("seconds_count", state="running"), told("seconds_sum", state="running")) == (1, 3.5)
    assert told("seconds_count", state="pulling") is None


def test_figures_are_those_of_the_moment_of_reading() -> None:
    """All states and reasons are there from the beginning, so that their changes are seen."""
    metrics, known = WorkerMetrics(), [notebook(statuses={"w1": REFUSED})]
    metrics.follow(lambda: known)
    metrics.told({}, {"w1": REFUSED})
    known.append(notebook(statuses={"w1": REFUSED}))
    lines = metrics.text().decode().splitlines()
    assert 'jupyter_gpu_workers_told{state="refused"} 2.0' in lines
    assert 'jupyter_gpu_workers_told{state="running"} 0.0' in lines
    assert 'jupyter_gpu_workers_refusals_total{reason="other"} 1.0' in lines
    assert 'jupyter_gpu_workers_refusals_total{reason="quota"} 0.0' in lines
