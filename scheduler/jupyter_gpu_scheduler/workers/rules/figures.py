"""Figures about workers: how many are in which state, and for which reasons some are refused. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from jupyter_gpu.model.service import WorkerState, WorkerStatus

from .records import Notebook

OTHER = "other"
_REASONS = (
    ("limit", ("workers, and it has", "workers together, and have")),
    ("quota", ("exceeded quota", "failed quota")),
    ("security", ("PodSecurity",)),
    ("image", ("ErrImage", "ImagePull", "InvalidImageName", "RegistryUnavailable")),
)
"""Reasons, with the words of ours or of Kubernetes by which each is known."""
REASONS = (*(reason for reason, _ in _REASONS), OTHER)


def by_state(notebooks: Iterable[Notebook]) -> Counter[WorkerState]:
    """Count the workers by the state that is told of each."""
    return Counter(status.state for notebook in notebooks for status in notebook.statuses.values())


def refusals(before: Mapping[str, WorkerStatus], after: Mapping[str, WorkerStatus]) -> list[str]:
    """Return the reason of each worker that is refused, or refused once more, since ``before``."""
    return [_reason(now.message) for name, now in after.items() if _is_refused(before.get(name), now)]


def _is_refused(before: WorkerStatus | None, now: WorkerStatus) -> bool:
    if now.state is not WorkerState.REFUSED:
        return False
    return before is None or before.state is not WorkerState.REFUSED or now.tries > before.tries


def _reason(message: str) -> str:
    return next((reason for reason, words in _REASONS if any(word in message for word in words)), OTHER)
