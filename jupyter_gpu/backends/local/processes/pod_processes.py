"""The processes of a pod, and the pod that a process belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.processes import proc


class PodProcesses(NamedTuple):
    """The processes of a pod: those of its control group, or those with its mark."""

    uid: str
    group: Path | None = None
    """Its control group; then the mark does not count: any program can set a variable, none can leave a group at
    will."""
    server: int | None = None
    """Without a group: the process that stands for the pod; all others have its mark in their environment."""

    @classmethod
    def at(cls, uid: str, place: str) -> PodProcesses:
        """Read an enforcement's ``place``, which may come from a record: only a group of that very pod is taken."""
        group = Path(place.partition(":")[2])
        believable = group.is_absolute() and ".." not in group.parts and group.name == cgroup.group_name(uid)
        return cls(uid, group if believable else None)

    def pids(self) -> frozenset[int]:
        """Return the pids of the pod's processes, as far as they can be found."""
        if self.group is not None:
            return frozenset(cgroup.processes(self.group))
        return self._marked(proc.with_environment(MARK, self.uid))

    def among(self, pids: Iterable[int]) -> frozenset[int]:
        """Return those of ``pids`` that belong to the pod: cheaper than to find all."""
        asked = frozenset(pids)
        if self.group is not None:
            return asked & frozenset(cgroup.processes(self.group))
        return asked & self._marked(proc.with_environment(MARK, self.uid, asked))

    def _marked(self, found: Iterable[proc.ProcessInfo]) -> frozenset[int]:
        return frozenset(process.pid for process in found) | ({self.server} if self.server else frozenset())


def by_pod(places: Iterable[PodProcesses], pids: Iterable[int]) -> Mapping[str, frozenset[int]]:
    """Return by uid those of ``pids`` that belong to each pod."""
    asked = frozenset(pids)
    return {place.uid: place.among(asked) if asked else frozenset() for place in places}


def take_back(environment: Mapping[str, str]) -> None:
    """Remove these variables from this process's environment, but for those that have another value by now."""
    for name, value in environment.items():
        if os.environ.get(name) == value:
            del os.environ[name]
