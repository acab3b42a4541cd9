"""Events of Kubernetes about the pod, in plain words, with the original text after them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import Condition

MAX_EVENTS = 4
"""The most events shown at a time, the latest first."""
MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class _Meaning:
    words: str
    phases: frozenset[Phase] | None = None
    """Phases in which it matters; ``None``: for as long as the cluster remembers it, which is an hour."""


_WAITING = frozenset({Phase.WAITING})

_MEANINGS: Mapping[str, _Meaning] = {
    "GpusPartial": _Meaning("Only a part of the GPUs is free; the rest follows by itself.", _WAITING),
    "GpusDeferred": _Meaning("No GPU is free for you now; they follow by themselves.", _WAITING),
    "GpusRefused": _Meaning("The cluster refused the request.", frozenset({Phase.REFUSED})),
    "GpusUnhealthy": _Meaning("A GPU of this pod stopped working.", frozenset({Phase.DEGRADED})),
    "GpusInvalidRequest": _Meaning("The request that is recorded in this pod can't be understood."),
    "GpusNotGuarded": _Meaning(
        "This pod was started in a way that its GPUs can't be changed. Delete the pod and create it again."
    ),
    "GpuIntruder": _Meaning("A program had a GPU open that was not given to this pod, and was ended."),
    "Evicted": _Meaning("Kubernetes is removing this pod: its node is short of something. Save your work now."),
    "TaintManagerEviction": _Meaning("Kubernetes is removing this pod: its node is being emptied. Save your work now."),
    "Preempted": _Meaning("Kubernetes is removing this pod: a more important one needs its place. Save your work now."),
    "Preempting": _Meaning(
        "Kubernetes is removing this pod: a more important one needs its place. Save your work now."
    ),
    "NodeNotReady": _Meaning("The node of this pod has trouble. What you see may be old."),
    "Killing": _Meaning("Kubernetes is ending a container of this pod. Save your work now."),
    "Unhealthy": _Meaning("Kubernetes doubts that a container of this pod works; it may restart it."),
    "BackOff": _Meaning("A container of this pod fails again and again; Kubernetes waits before it starts it anew."),
    "UnexpectedAdmissionError": _Meaning("The node could not give this pod what it needs. Create the pod again."),
}


def conditions(events: Iterable[Mapping[str, Any]], phase: Phase) -> tuple[Condition, ...]:
    """Select the events about this pod that matter now, the latest of each kind, the latest first."""
    latest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=_when):
        latest[str(event.get("reason") or "")] = event
    found = [_condition(reason, event) for reason, event in latest.items() if _matters(reason, phase)]
    return tuple(condition for _, condition in sorted(found, key=lambda item: item[0], reverse=True)[:MAX_EVENTS])


def _matters(reason: str, phase: Phase) -> bool:
    meaning = _MEANINGS.get(reason)
    if meaning is None:
        return reason.startswith("Gpu")  # of a newer version of ours
    return meaning.phases is None or phase in meaning.phases


def _condition(reason: str, event: Mapping[str, Any]) -> tuple[str, Condition]:
    meaning = _MEANINGS.get(reason)
    original = str(event.get("message") or "").strip()
    said = f"Kubernetes says: {original}" if original else ""
    message = strict.printable(" ".join(filter(None, (meaning.words if meaning else "", said))) or reason, MAX_MESSAGE)
    return _when(event), Condition(strict.printable(reason, 64), message)


def _when(event: Mapping[str, Any]) -> str:
    """Return the time of an event. Times of the API sort as text once a fraction of a second is cut off."""
    series = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, Mapping) else None
    found = event.get("lastTimestamp") or last or event.get("eventTime") or event.get("firstTimestamp")
    return str(found or "")[:19]
