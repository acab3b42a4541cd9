"""The ends of processes of this machine's pods."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpu_node.processes.process_ends import ProcessEnds
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .identity import alive


class PodEnds(ProcessEnds[ProcessId]):
    """A watch that calls back on the event loop when one of the watched processes ends."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__(ended, alive)
