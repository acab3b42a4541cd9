"""The parts of the node plugin that its agent and its audit use, grouped by what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.sharing.sharing import Sharing
from jupyter_gpu_node.devices.hierarchy_check import HierarchyCheck
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.holders.scanner import HolderScanner
from jupyter_gpu_node.holders.searches import Searches

from .metrics import Metrics
from .pod_events import PodEvents
from .publisher import Publisher
from .self_test import SelfTest


@dataclass(frozen=True, slots=True)
class Guarding:
    """The parts that put device rules in force."""

    pins: Pins
    cgroups: PodCgroups
    hierarchy: HierarchyCheck
    self_test: SelfTest


@dataclass(frozen=True, slots=True)
class Scans:
    """The parts that find the processes that have GPUs open."""

    scanner: HolderScanner
    searches: Searches


@dataclass(frozen=True, slots=True)
class Reports:
    """The parts that report what was done."""

    publisher: Publisher
    metrics: Metrics
    pod_events: PodEvents


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of the agent."""

    inventory: Inventory
    guarding: Guarding
    scans: Scans
    reports: Reports
    sharing: Sharing
    created_with: Callable[[str], frozenset[str] | None]
    """Returns the paths of GPUs with which the containers of that pod (uid) were created; None: not known."""
