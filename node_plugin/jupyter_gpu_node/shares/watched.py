"""The state of one GPU whose turns are enforced."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from jupyter_gpu_node.processes.rules.process_id import ProcessIds
from jupyter_gpu_node.shares.rules.violations import throttling
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.rules.violations.violation_records import State


@dataclass(slots=True)
class Watched:
    """The state of one GPU."""

    penalties: Penalties
    pods: frozenset[str] = frozenset()
    state: State = field(default_factory=dict)
    users: dict[str, ProcessIds] = field(default_factory=dict)
    """Processes that used it at the last look, by share."""
    keepers: dict[str, ProcessIds] = field(default_factory=dict)
    """Processes that had memory on it at the last look at that, by share."""
    turns: dict[str, int] = field(default_factory=dict)
    """GPU time until the last look, by share."""
    limits: dict[str, tuple[int, throttling.Groups]] = field(default_factory=dict)
    """The counts of CPU limits of the processes of a share when it was heard to be late, and when that was."""
    resting: dict[str, tuple[ProcessIds, int]] = field(default_factory=dict)
    """Processes that have the GPU in a share of which nothing runs, and since when that is known."""
    looked: int = 0
    idle: tuple[str, int, int] = ("", 0, 0)
    """A share that has said that its work takes longer, since when, and the looks that saw nothing run."""
    timer: asyncio.TimerHandle | None = None

    @property
    def stopped(self) -> dict[str, ProcessIds]:
        """The stopped processes by share."""
        return {share: one.stopped for share, one in self.state.items() if one.stopped}
