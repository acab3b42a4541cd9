"""Pure: how near two nodes are, by their labels.

Kubernetes has no label for the switch of a node, but those who know the network write one. The first of the known keys
that a node has names its switch; two nodes are compared by key and value. A missing label means *unknown*, which is not
"another switch".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyter_gpu.model.network import MAX_SPEED
from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

MOST_POINTS = 100
"""The points of a relation."""
MOST_KEYS = 32
"""Labels that may name a switch."""
_LABEL = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
ZONE = "topology.kubernetes.io/zone"
SWITCH_KEYS = (
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-4",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-block",
    "ib.coreweave.cloud/leafgroup",
    "oci.oraclecloud.com/host.rack_id",
)
"""Labels that name the switch of a node, the nearest switch first."""


class Location(NamedTuple):
    """The place of a node in the network; empty: not known."""

    zone: str = ""
    key: str = ""
    """The label that names its switch."""
    switch: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """Settings of the network: which labels, which speeds, and points for each relation."""

    node: float = 100.0
    """Points if the GPUs are on the pod's own node; 0 to 100, as all points."""
    switch: float = 30.0
    """Points if both nodes are on one switch."""
    other: float = 10.0
    """Points if they are on different switches."""
    unknown: float = 30.0
    """Points if that is not known. A small cluster without labels usually has one switch; with several, 10 is right."""
    switch_keys: tuple[str, ...] = SWITCH_KEYS
    """Labels that name the switch of a node, the nearest switch first."""
    full_speed: int = 100_000
    """Speed of an uplink in Mbit/s that is rated 1."""
    speeds: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Speed of the uplinks of a switch in Mbit/s, by the switch's name: it replaces what the nodes report."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if it makes no sense."""
        for name in ("node", "switch", "other", "unknown"):
            if not 0 <= getattr(self, name) <= MOST_POINTS:
                raise ValueError(f"'relation.{name}' must be a number from 0 to {MOST_POINTS}.")
        if len(self.switch_keys) > MOST_KEYS or not all(map(_LABEL.fullmatch, self.switch_keys)):
            raise ValueError(f"'relation.switchKeys' must be names of labels, at most {MOST_KEYS}.")
        if not all(0 < speed <= MAX_SPEED for speed in (self.full_speed, *self.speeds.values())):
            raise ValueError(f"Speeds in 'relation' must be 1 to {MAX_SPEED} Mbit/s.")

    def points(self, relation: Relation) -> float:
        """Return the points of a relation."""
        return {
            Relation.NODE: self.node,
            Relation.SWITCH: self.switch,
            Relation.OTHER: self.other,
            Relation.UNKNOWN: self.unknown,
        }[relation]


def locate(labels: Mapping[str, str], keys: tuple[str, ...] = SWITCH_KEYS) -> Location:
    """Return the location of a node with these labels; an empty label counts as none."""
    key = next((key for key in keys if labels.get(key)), "")
    return Location(labels.get(ZONE, ""), key, labels[key] if key else "")


def location_of(snapshot: ClusterSnapshot, node: str, network: Network) -> Location:
    """Return the location of a node of the snapshot."""
    answers: dict[str, Location] = snapshot.memo(("location", network.switch_keys))
    if node not in answers:
        answers[node] = locate(snapshot.facts(node).labels, network.switch_keys)
    return answers[node]


def relate(one: Location, other: Location) -> Relation:
    """Return how near two different nodes are."""
    if one.key and one.key == other.key:
        return Relation.SWITCH if one.switch == other.switch else Relation.OTHER
    if one.zone and other.zone and one.zone != other.zone:
        return Relation.OTHER
    return Relation.UNKNOWN
