"""Load of simulated GPUs in a cluster: without hardware to read, it is derived from their users' processes.

A simulated GPU computes on the processors of its machine. Its utilisation is the processor time of the pod's processes
that have it open, 100 % being one processor, and its memory is what they have in memory; of a process that has several
GPUs open, each gets an equal part.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu.common.rules import proc_stat
from jupyter_gpu.model import details as model
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules import simulated_sensors
from jupyter_gpu_node.processes.proc import ProcessInfo

from .simulated import MEMORY

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """The resource use of one process."""

    seconds: float
    """Processor time since it began."""
    memory: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class LoadReading:
    """The use of all processes that have a GPU open, at one time."""

    time: float
    uses: Mapping[ProcessInfo, ProcessCost]


def use_of(stat: str) -> ProcessCost | None:
    """Parse ``/proc/<pid>/stat`` (proc_pid_stat(5)); None for what is no such text."""
    fields = proc_stat.parse(stat.encode()).fields
    if len(fields) < 22 or not all(field.isdigit() for field in (fields[11], fields[12], fields[21])):
        return None
    return ProcessCost((int(fields[11]) + int(fields[12])) / _TICK, int(fields[21]) * os.sysconf("SC_PAGESIZE"))


def read(processes: Iterable[ProcessInfo]) -> LoadReading:
    """Read the use of those that live."""
    uses = {}
    for process in processes:
        try:
            found = use_of(Path(f"/proc/{process.pid}/stat").read_text(errors="replace"))
        except OSError:
            continue
        if found:
            uses[process] = found
    return LoadReading(time.monotonic(), uses)


def busy(before: LoadReading | None, now: LoadReading, part: float) -> frozenset[ProcessInfo]:
    """Return the processes that computed for at least this ``part`` (0–1) of the time between two readings."""
    if before is None or now.time <= before.time:
        return frozenset()
    least = part * (now.time - before.time)
    return frozenset(
        process
        for process, use in now.uses.items()
        if process in before.uses and use.seconds - before.uses[process].seconds >= least
    )


def loads(
    holders: Mapping[str, Iterable[ProcessInfo]], before: LoadReading | None, now: LoadReading
) -> dict[str, GpuLoad]:
    """Return the load of each GPU of ``holders``. A process that was not there before has no measurable load yet."""
    passed = now.time - before.time if before else 0.0
    users = {uuid: tuple(process for process in some if process in now.uses) for uuid, some in holders.items()}
    opened = {process: sum(process in some for some in users.values()) for process in now.uses}
    found = {}
    for uuid, some in users.items():
        busy = memory = 0.0
        for process in some:
            memory += now.uses[process].memory / opened[process]
            if before and passed > 0 and process in before.uses:
                busy += (now.uses[process].seconds - before.uses[process].seconds) / passed / opened[process]
        found[uuid] = simulated_sensors.load(max(0.0, min(1.0, busy)), min(MEMORY, int(memory)))
    return found


def details(
    holders: Mapping[str, Iterable[ProcessInfo]], found: Mapping[str, GpuLoad], now: LoadReading
) -> dict[str, model.Reading]:
    """Return the details of each GPU of ``holders`` whose load was ``found``."""
    opened = {process: sum(process in some for some in holders.values()) for process in now.uses}
    uses = {
        uuid: [
            model.ProcessUse(one.pid, min(MEMORY, now.uses[one].memory // opened[one]))
            for one in some
            if one in now.uses
        ]
        for uuid, some in holders.items()
    }
    return {
        uuid: simulated_sensors.reading((load.utilisation or 0) / 100, uses.get(uuid, ()), linked=False)
        for uuid, load in found.items()
    }
