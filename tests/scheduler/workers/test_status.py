"""The `worker-status` of pods, in Kubernetes' words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.service import WorkerState, WorkerStatus
from jupyter_gpu_scheduler.workers.rules.status import (
    FIRST_WAIT,
    LONGEST_WAIT,
    PodCondition,
    condition_of,
    failed,
    retry_at,
    told,
)
from tests.scheduler.workers.pods import EVICTED, RUNNING, waiting

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["phase", "conditions", "containerStatuses", "state", "waiting", "reason"]), inner
        )
    ),
    max_leaves=12,
)
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit."}
SANDBOX = {"type": "PodReadyToStartContainers", "status": "True"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, PodCondition(WorkerState.CREATING)),
        (
            {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
            PodCondition(WorkerState.CREATING, "Unschedulable: 0/3 nodes fit.", unplaced=True),
        ),
        (waiting("ContainerCreating"), PodCondition(WorkerState.CREATING)),
        ({**waiting("ContainerCreating"), "conditions": [SANDBOX]}, PodCondition(WorkerState.PULLING)),
        (RUNNING, PodCondition(WorkerState.RUNNING)),
        (waiting("ErrImagePull", "no such tag"), PodCondition(WorkerState.REFUSED, "ErrImagePull: no such tag")),
        (waiting("ImagePullBackOff"), PodCondition(WorkerState.REFUSED, "ImagePullBackOff")),
        (
            waiting("CreateContainerConfigError", "image will run as root"),
            PodCondition(WorkerState.FAILED, "CreateContainerConfigError: image will run as root"),
        ),
        (
            waiting("CrashLoopBackOff", "back-off", lastState={"terminated": {"exitCode": 1, "message": "No gate.\n"}}),
            PodCondition(WorkerState.FAILED, "The worker's process ended with code 1. Last: No gate."),
        ),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            PodCondition(WorkerState.FAILED, "The worker's process ended with code 137 (OOMKilled)."),
        ),
        (EVICTED, PodCondition(WorkerState.FAILED, "Evicted: The node was low on memory.", ended=True)),
        ({"phase": "Succeeded"}, PodCondition(WorkerState.FAILED, "The pod ended.", ended=True)),
    ],
)
def test_condition_has_kubernetes_words(status: dict[str, Any], expected: PodCondition) -> None:
    """Each way in which a pod is not there yet has a state, with the reason where there is one."""
    assert condition_of({"status": status}) == expected


@given(JSON, JSON)
def test_odd_status_is_no_error(status: Any, inner: Any) -> None:
    """Whatever the status is, there is a state."""
    assert condition_of({"status": status}).state in WorkerState
    waits = {"state": {"waiting": {"reason": inner}}, "lastState": {"terminated": {"reason": inner, "message": inner}}}
    odd = {"containerStatuses": [status, waits], "conditions": [status, {"type": inner, "status": inner}]}
    assert condition_of({"status": odd}).state in WorkerState
    assert condition_of({"status": {**odd, "containerStatuses": [waits]}}).state in WorkerState


def test_state_keeps_its_time_and_failures_are_forgotten_once_it_runs() -> None:
    """The time is that of the state's beginning; tries count until the worker runs."""
    first = told(None, WorkerState.CREATING, "", 10.7)
    assert first == WorkerStatus(WorkerState.CREATING, "", 0, 10)
    assert told(first, WorkerState.CREATING, "waits\x00", 20) == WorkerStatus(WorkerState.CREATING, "waits�", 0, 10)
    lost = failed(first, WorkerState.REFUSED, "quota", 30)
    assert lost == WorkerStatus(WorkerState.REFUSED, "quota", 1, 30)
    assert told(lost, WorkerState.PULLING, "", 41) == WorkerStatus(WorkerState.PULLING, "", 1, 41)
    assert told(lost, WorkerState.RUNNING, "", 42) == WorkerStatus(WorkerState.RUNNING, "", 0, 42)
    assert told(WorkerStatus(WorkerState.RUNNING), WorkerState.RUNNING, "", 50).since == 50


@given(st.integers(0, 10**6), st.sampled_from(WorkerState), st.none() | st.integers(0, 10**9))
def test_failed_workers_are_tried_later_and_later(tries: int, state: WorkerState, since: int | None) -> None:
    """From 10 s, doubling, to 5 minutes; what did not fail may be created at once."""
    status = WorkerStatus(state, "", tries, since)
    if not tries or state not in (WorkerState.REFUSED, WorkerState.FAILED):
        assert retry_at(status) == 0
        return
    wait = retry_at(status) - (since or 0)
    assert FIRST_WAIT <= wait <= LONGEST_WAIT
    later = failed(status, state, "again", since or 0)
    assert later.tries == min(tries + 1, 10**6)
    assert retry_at(later) - (since or 0) == min(2 * wait, LONGEST_WAIT)


def test_nothing_told_may_be_created_at_once() -> None:
    """A worker that nothing is known about does not wait."""
    assert retry_at(None) == 0
