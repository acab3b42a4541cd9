"""The nodes that can take a new pod now, and in plain words why the others can't.

A pod gets all the GPUs of its wish when it starts, or it does not start. Pods before it in a node's line are served
first: the same order as among resizes, so no pod overtakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts

from .fit_cache import fits_on, wanted


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The nodes that can take a pod, in the order asked. Reasons name no node, so that equal ones can be counted."""

    fitting: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Reason why not now, by node; it may come free."""
    never: Mapping[str, str] = field(default_factory=dict)
    """Reason why never, by node, whatever comes free."""
    as_guest: bool = False
    """Whether it starts on the fitting ones as a guest, on GPUs of others, as none has room for it."""


def filter_nodes(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str]) -> FilterResult:
    """Sort the nodes ``names`` into those that can take ``pod`` now, those that may later, and those that never can.

    ``pod`` need not be in the snapshot; if it is, ``pod`` is what counts. Repeated wishes cost little.
    """
    error = unacceptable(pod)
    if error is not None:
        return FilterResult((), never=dict.fromkeys(names, error.message))
    fitting: list[str] = []
    failed: dict[str, str] = {}
    never: dict[str, str] = {}
    for name, found, _ in fits_on(snapshot, pod, names):
        if found.fits:
            fitting.append(name)
        elif found.never:
            never[name] = found.why
        else:
            failed[name] = found.why
    return FilterResult(tuple(fitting), failed, never)


def unacceptable(pod: PodState) -> GpuError | None:
    """Return why no node at all may take ``pod``: its wish can't be read, or is beyond its user's limit; else None."""
    if pod.fault:
        return Infeasible(pod.fault, have=0)
    wish = wanted(pod)
    if wish and pod.limit is not None and wish.milli > pod.limit:
        return LimitExceeded(limit=pod.limit)
    return None


def acceptable(pod: PodState, facts: NodeFacts) -> bool:
    """Tell whether ``pod`` may go to a node with these facts, as far as is known here."""
    return facts.schedulable and selected(pod, facts)


def selected(pod: PodState, facts: NodeFacts) -> bool:
    """Tell whether a node has the labels that ``pod`` asks for."""
    return all(facts.labels.get(key) == value for key, value in pod.selector.items())


def has_resources(pod: PodState, facts: NodeFacts) -> bool:
    """Tell whether the CPU, memory and disk that ``pod`` asks for are left; an unknown resource counts as available."""
    left = facts.allocatable
    return all(asked <= left[name] - facts.used.get(name, 0) for name, asked in pod.asks.items() if name in left)
