"""Words of terminals for a pod's workers on other nodes; the panel has the same ones (`words/remote.ts`). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .pod_worker import PodWorker, Stage
from .quantity import count_gpus, format_bytes
from .service import Relation

_DISTANCES: Mapping[Relation, str] = {
    Relation.NODE: "This node",
    Relation.SWITCH: "Other node, same switch",
    Relation.OTHER: "Other node, other switch",
    Relation.UNKNOWN: "Other node",
}
_STATES: Mapping[Stage, str] = {
    Stage.CREATING: "Starting",
    Stage.PULLING: "Pulling the image",
    Stage.CONNECTING: "Connecting",
    Stage.REFUSED: "Refused",
    Stage.FAILED: "Failed",
}


def distance(worker: PodWorker) -> str:
    """Say where its node stands: ``Other node, same switch``."""
    return _DISTANCES[worker.relation]


def state(worker: PodWorker) -> str:
    """Say in a few words what it does now."""
    if worker.stage in _STATES:
        return _STATES[worker.stage]
    if worker.unhealthy:
        return "Not working"
    if worker.leaving:
        return "Giving back"
    if worker.missing:
        return "Attaching"
    return "Attached" if worker.held else "Kept for a while"


def amount(worker: PodWorker) -> str:
    """Say how much of its part it holds: ``1 GPU``, ``1 GPU, 1 GPU to come``."""
    to_come = max(0, worker.milli - worker.held)
    parts = [count_gpus(worker.held)] if worker.held or not to_come else []
    return ", ".join([*parts, *([f"{count_gpus(to_come)} to come"] if to_come else [])])


def kinds(worker: PodWorker) -> str:
    """Say of which kinds its GPUs are: ``2 × NVIDIA H100, 80 GiB``; empty: not known."""
    counts = Counter(worker.kinds)
    words = []
    for kind, count in counts.items():
        times = f"{count} × " if len(worker.kinds) > 1 else ""
        words.append(f"{times}{kind.model}, {format_bytes(kind.memory)}")
    return "; ".join(words)


def traffic(worker: PodWorker) -> str:
    """Say what went over the network, and how soon it answers: ``3 MiB sent there and back, answers in 0.2 ms``."""
    parts = [] if worker.shipped is None else [f"{format_bytes(worker.shipped)} sent there and back"]
    if worker.round_trip is not None:
        parts.append(f"answers in {worker.round_trip / 1000:.1f} ms")
    return ", ".join(parts)
