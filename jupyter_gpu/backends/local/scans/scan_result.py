"""The result of a scan for processes that have GPUs open. A server needs `holder_scan` itself only later."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId


class ScanResult(NamedTuple):
    """The result of a scan."""

    holders: Mapping[str, tuple[Holder, ...]] = MappingProxyType({})
    """By uuid."""
    processes: frozenset[ProcessId] = frozenset()
    """The same, so that their end can be watched."""
    scanned: frozenset[str] = frozenset()
    """The uuids that were scanned for: of any other nothing is proven."""
    strangers: Mapping[str, tuple[proc.ProcessInfo, ...]] = MappingProxyType({})
    """By uuid, processes that use it without having been given it."""
    podless: Mapping[str, tuple[proc.ProcessInfo, ...]] = MappingProxyType({})
    """By uuid, processes of no pod that have it open, listed or not."""

    @property
    def busy(self) -> frozenset[str]:
        """The uuids that a program of the pod has open."""
        return frozenset(uuid for uuid, holders in self.holders.items() if not all(one.foreign for one in holders))
