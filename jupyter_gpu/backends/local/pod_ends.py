"""The ends of processes of this machine's pods."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpu_node.processes.process_ends import ProcessEnds

from .process_id import Process, alive


class Watch(ProcessEnds[Process]):
    """A watch that calls back on the event loop when one of the watched processes ends."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__(ended, alive)
