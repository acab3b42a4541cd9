"""Origin of a process, read from ``/proc``: the first one of its container, or another. It blocks: for a thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.rules import pod_cgroup
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules import jupyter_server
from jupyter_gpu_node.shares.rules.jupyter_server import Ancestor

MOST_PARENTS = 64
MOST_PROCESSES = 512
"""Limit for a container without a pid namespace of its own: finding the first of more would take too long."""


def of_first(process: ProcessId, uid: str, group: Path | None) -> bool:
    """Tell whether it is the first process of a container of that pod, or a descendant of it; ``group``: the pod's."""
    try:
        own = _group(process.pid)
        if pod_cgroup.uid_of(own) != uid:
            return False
        ancestry = proc.ancestry(process.pid, process.start, MOST_PARENTS)
        top = jupyter_server.top([_ancestor(pid, start, own) for pid, start in ancestry], MOST_PARENTS)
        if top is None or not proc.alive(process.pid, process.start):
            return False
        return jupyter_server.is_first(top, None if top.first or group is None else _starts(group, process.pid))
    except (OSError, ValueError):  # it has ended
        return False


def _group(pid: int) -> str:
    return cgroup.membership(pid).get("", "")


def _ancestor(pid: int, start: int, own: str) -> Ancestor:
    try:
        return Ancestor(start, _group(pid) == own, _numbers(pid)[1:][-1:] == [1])
    except PermissionError:  # a process of the machine
        return Ancestor(start, inside=False, first=False)


def _numbers(pid: int) -> list[int]:
    """Return the pids of the process in every pid namespace that it is in, from ours on."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []


def _starts(group: Path, pid: int) -> list[int] | None:
    """Return the start times of its control group's processes; None if it is not found there, or there are too many."""
    for pids in _groups(group):
        if pid in pids:
            if len(pids) > MOST_PROCESSES:
                return None
            return [start for one in pids if (start := proc.process_start_time(one)) is not None]
    return None


def _groups(group: Path) -> Iterator[frozenset[int]]:
    """Yield the processes of the pod's group and of each group below it."""
    for path in (group, *sorted(group.rglob("*/"))):
        yield frozenset(int(line) for line in (path / "cgroup.procs").read_text().split())
