"""The GPUs whose turns are enforced, and the parts of a node that the enforcement works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jupyter_gpu_node.processes.rules.process_id import ProcessIds
from jupyter_gpu_node.shares.rules.violations import throttling
from jupyter_gpu_node.shares.rules.violations.events import Event
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.rules.violations.violation_records import State
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer
from jupyter_gpu_node.shares.server.worker_thread import WorkerThread

from .node_processes import NodeProcesses


@dataclass(slots=True)
class WatchedGpu:
    """The state of one GPU."""

    penalties: Penalties
    pods: frozenset[str] = frozenset()
    state: State = field(default_factory=dict)
    users: dict[str, ProcessIds] = field(default_factory=dict)
    """Processes that used it at the last scan, by share."""
    memory_holders: dict[str, ProcessIds] = field(default_factory=dict)
    """Processes that had memory on it at the last comparison, by share."""
    turns: dict[str, int] = field(default_factory=dict)
    """GPU time until the last scan, by share."""
    limits: dict[str, tuple[int, throttling.Groups]] = field(default_factory=dict)
    """The CPU limit counters of a share's processes when it was reported late, and the time of that."""
    resting: dict[str, tuple[ProcessIds, int]] = field(default_factory=dict)
    """Processes that have the GPU in a share of which nothing runs, and since when that is known."""
    scanned_at: int = 0
    idle: tuple[str, int, int] = ("", 0, 0)
    """A share that has said that its work takes longer, since when, and the scans that saw nothing run."""
    timer: asyncio.TimerHandle | None = None

    @property
    def stopped(self) -> dict[str, ProcessIds]:
        """The stopped processes by share."""
        return {share: one.stopped for share, one in self.state.items() if one.stopped}


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """The watched GPUs of one node, and what every part of the enforcer uses."""

    server: ArbiterServer
    gpus: Mapping[str, WatchedGpu]
    processes: NodeProcesses
    worker: WorkerThread
    """The thread for what blocks."""
    on_event: Callable[[str, Event], None]
    """Called with each event on a GPU."""
