"""Bundles: processes and GPUs that can be parked only together. Pure.

A process is parked with all its GPUs, and a GPU is given away only if no process has it open. So all are in one bundle
that are joined by "this process has this GPU open".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jupyter_gpu_node.processes.rules.process_id import ProcessId


class Bundle(NamedTuple):
    """Processes of one pod and GPUs that belong together."""

    processes: tuple[ProcessId, ...]
    """The one that started first is the first."""
    gpus: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name, which stays while its first process lives."""
        return f"{self.processes[0].pid}-{self.processes[0].start}"


def bundles(opened: Iterable[tuple[ProcessId, str]]) -> list[Bundle]:
    """Divide one pod's processes and the GPUs that they have open into bundles, by their first process."""
    found: list[tuple[set[ProcessId], set[str]]] = []
    for process, gpu in opened:
        processes, gpus = {process}, {gpu}
        apart = []
        for bundle in found:
            if process in bundle[0] or gpu in bundle[1]:
                processes |= bundle[0]
                gpus |= bundle[1]
            else:
                apart.append(bundle)
        found = [*apart, (processes, gpus)]
    made = [Bundle(tuple(sorted(processes, key=_age)), tuple(sorted(gpus))) for processes, gpus in found]
    return sorted(made, key=lambda bundle: _age(bundle.processes[0]))


def _age(process: ProcessId) -> tuple[int, int]:
    return process.start, process.pid
