"""The ``worker-status`` of a pod: its state and Kubernetes' reason, and when a failed one is tried again. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.service import WorkerState, WorkerStatus

FIRST_WAIT, LONGEST_WAIT = 10, 300
"""Seconds until a worker that failed is tried again, at first and at most: doubling."""
UNPLACED_SECONDS = 60
"""Seconds for which kube-scheduler may leave a worker without a node; after these its part should go to another."""
_MOST_TRIES = 10**6
_MOST_TEXT = 1024

_REFUSED = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
"""Reasons for which the kubelet does not take an image; it tries again by itself."""
_BROKEN = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"})
"""Reasons for which a container does not run; the kubelet tries again by itself."""


class PodCondition(NamedTuple):
    """The condition of a worker pod."""

    state: WorkerState
    message: str = ""
    ended: bool = False
    """Whether no container of it will run again, so that another pod is needed."""
    unplaced: bool = False
    """Whether kube-scheduler looked at it and left it without a node."""


def condition_of(pod: Mapping[str, Any]) -> PodCondition:
    """Return the state of a pod, with the words of Kubernetes where it can't run."""
    status = _object(pod, "status")
    if objects.finished(pod):
        return PodCondition(WorkerState.FAILED, _words(status) or "The pod ended.", ended=True)
    container = next(_objects(status, "containerStatuses"), {})
    state = _object(container, "state")
    if "running" in state:
        return PodCondition(WorkerState.RUNNING)
    if "terminated" in state:
        return PodCondition(WorkerState.FAILED, _exit(_object(state, "terminated")))
    waiting = _object(state, "waiting")
    reason = str(waiting.get("reason"))
    if reason in _REFUSED:
        return PodCondition(WorkerState.REFUSED, _words(waiting))
    if reason in _BROKEN:
        ended = _object(_object(container, "lastState"), "terminated")
        return PodCondition(WorkerState.FAILED, _exit(ended) if ended else _words(waiting))
    conditions = {str(item.get("type")): item for item in _objects(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return PodCondition(WorkerState.CREATING, _words(scheduled), unplaced=True)
    # The pod's sandbox is there and its container is not: of the two steps that are left, the image is the long one.
    if conditions.get("PodReadyToStartContainers", {}).get("status") == "True":
        return PodCondition(WorkerState.PULLING)
    return PodCondition(WorkerState.CREATING)


def told(before: WorkerStatus | None, state: WorkerState, message: str, now: float) -> WorkerStatus:
    """Return what is told about a worker in this state. Failures are forgotten once it runs."""
    tries = before.tries if before and state is not WorkerState.RUNNING else 0
    same = before is not None and before.state is state
    since = before.since if before and same and before.since is not None else int(now)
    return WorkerStatus(state, strict.printable(message, _MOST_TEXT) if message else "", tries, since)


def unplaced(before: WorkerStatus | None, node: str, words: str, now: float) -> WorkerStatus:
    """Return what is told about a worker that kube-scheduler leaves without a node: after a while, that it failed.

    It is not counted as a try: its pod stays, and is placed once that is possible.
    """
    if before is not None and (before.state is WorkerState.FAILED or placed_until(before) <= now):
        message = f"Kubernetes has not placed the worker on {node} within {UNPLACED_SECONDS} seconds: {words}"
        return told(before, WorkerState.FAILED, message, now)
    return told(before, WorkerState.CREATING, words, now)


def placed_until(status: WorkerStatus) -> float:
    """Return the time by which a worker that is being created should have a node; without end for others."""
    if status.state is not WorkerState.CREATING or status.since is None:
        return math.inf
    return float(status.since + UNPLACED_SECONDS)


def failed(before: WorkerStatus | None, state: WorkerState, message: str, now: float) -> WorkerStatus:
    """Return what is told about a worker that was tried in vain just now."""
    tries = min((before.tries if before else 0) + 1, _MOST_TRIES)
    return WorkerStatus(state, strict.printable(message, _MOST_TEXT), tries, int(now))


def retry_at(status: WorkerStatus | None) -> float:
    """Return the time from which a worker may be created; 0: at once."""
    if status is None or not status.tries or status.state not in (WorkerState.REFUSED, WorkerState.FAILED):
        return 0.0
    wait = min(FIRST_WAIT * 2 ** min(status.tries - 1, 16), LONGEST_WAIT)
    return float((status.since or 0) + wait)


def _exit(terminated: Mapping[str, Any]) -> str:
    """Say how a container ended, with the last lines that it wrote."""
    code, reason = terminated.get("exitCode"), terminated.get("reason")
    shown = f" ({reason})" if isinstance(reason, str) and reason not in ("", "Error") else ""
    words = terminated.get("message")
    last = f" Last: {words.strip()[-600:]}" if isinstance(words, str) and words.strip() else ""
    return f"The worker's process ended with code {code}{shown}.{last}"


def _words(item: Mapping[str, Any]) -> str:
    """Return reason and message of a part of a pod's status, in one line."""
    words = [text for key in ("reason", "message") if isinstance(text := item.get(key), str) and text]
    return ": ".join(words)


def _object(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    return value if isinstance(value, Mapping) else {}


def _objects(item: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    value = item.get(key)
    yield from (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()
