"""Clusters with switches and zones, for tests of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.pairs.relation import SWITCH_KEYS, ZONE
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts
from tests.builders import GIB, cluster

LEAF = SWITCH_KEYS[1]

SOURCE: Mapping[str, float] = {
    "relation": 5, "preference": 1.5, "switch_speed": 1, "switch_free": 1, "gpu_memory_free": 1, "gpu_compute_free": 1,
    "cpu_free": 1, "disk_free": 0.5,
}  # fmt: skip
"""Weights of the attributes that the source of the design names: 140 points beside the relation."""


def node(
    switch: str = "", *, zone: str = "", key: str = LEAF, cpu: int = 64, used: int = 0, slots: int = 100, **fields: Any
) -> NodeFacts:
    """Return the facts of a node on a switch; ``cpu`` and ``used`` in cores."""
    labels = {**({key: switch} if switch else {}), **({ZONE: zone} if zone else {})}
    allocatable = {"cpu": cpu * 1000, "memory": 256 * GIB, "ephemeral-storage": 100 * GIB, "jupyter-gpu.io/slot": slots}
    return NodeFacts(labels=labels, allocatable=allocatable, used={"cpu": used * 1000}, **fields)


def rules(weights: Mapping[str, float], **fields: Any) -> PairPolicy:
    """Return settings with these weights alone."""
    return PairPolicy(Policy(weights=weights), **fields)


def racks(
    switches: Sequence[Sequence[str]], gpus: Mapping[str, int | Sequence[Gpu]], pods: Sequence[PodState] = ()
) -> ClusterSnapshot:
    """Return nodes on switches; those not named in ``gpus`` have none."""
    about = {name: node(f"switch-{number}") for number, names in enumerate(switches) for name in names}
    return cluster({name: gpus.get(name, 0) for name in sorted(about)}, pods, about)
