"""Inspects a GPU's processes before `violations` decides: to which shares they belong, and which of them rest."""

from __future__ import annotations

import os
from dataclasses import replace

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.violations import events, throttling
from jupyter_gpu_node.shares.rules.violations.events import Event
from jupyter_gpu_node.shares.rules.violations.violations import Present
from jupyter_gpu_node.shares.scans.share_processes import connected_for, connected_processes, holders
from jupyter_gpu_node.shares.scans.use_scans import UseScanner
from jupyter_gpu_node.shares.scans.watched import WatchedNode
from jupyter_gpu_node.shares.server.clocks import microseconds

from . import cpu_limits


class ProcessInspector:
    """Inspects the processes on the GPUs of one node."""

    def __init__(self, node: WatchedNode, scanner: UseScanner) -> None:
        self._node = node
        self._scanner = scanner

    async def present(self, gpu: str, event: Event) -> Present:
        """Return what is present on that GPU when ``event`` is decided about."""
        watched = self._node.gpus[gpu]
        found: dict[str, set[ProcessId]] = {pod: set(users) for pod, users in watched.users.items()}
        for pod, memory_holders in watched.memory_holders.items():
            found.setdefault(pod, set()).update(memory_holders)
        for pod, process in connected_processes(self._node.server, gpu):
            found.setdefault(pod, set()).add(process)
        records = watched.state.values()
        meant = frozenset[ProcessId]().union(*found.values(), *(one.stopped | one.avoiders for one in records))
        if spared := meant & frozenset(self._node.processes.servers()):
            spared = await self._node.worker.run(self._without_gpus, spared)
        ours = frozenset({signals.identify(os.getpid())} - {None})
        never = frozenset(one for one in (*spared, *ours) if one is not None)
        users = {pod: frozenset(processes) for pod, processes in found.items()}
        present = await self._with_resting(gpu, event, Present(users, never))
        return replace(present, throttled=await self._throttled(gpu, event))

    def _without_gpus(self, processes: ProcessIds) -> ProcessIds:
        """Return the processes that have no GPU open. One that cannot be inspected counts as having one open."""

        def opens(one: ProcessId) -> bool:
            try:
                return self._node.processes.opens(one.pid)
            except OSError:
                return True

        return frozenset(one for one in processes if not opens(one))

    async def _with_resting(self, gpu: str, event: Event, present: Present) -> Present:
        """Add the resting processes of the shares that are decided about now, without those that we stopped."""
        watched = self._node.gpus[gpu]
        concerned = {*watched.state, *({event.share} if isinstance(event, events.Late) else ())}
        if isinstance(event, events.UseScanned):
            concerned |= {*event.foreign, *event.beyond}
        meant = frozenset[ProcessId]().union(*(present.processes.get(share, frozenset()) for share in concerned))
        meant |= frozenset[ProcessId]().union(*(one.avoiders for one in watched.state.values()))
        by_us = frozenset[ProcessId]().union(
            *(each for one in self._node.gpus.values() for each in one.stopped.values())
        )
        resting = (
            await self._node.worker.run(signals.stopped, meant - by_us) if meant - by_us else frozenset[ProcessId]()
        )
        holder = self._node.server.holder(gpu)
        having = holders(self._node.server, gpu, holder) if holder is not None and holder in concerned else ProcessIds()
        dormant = {holder: having} if holder is not None and having and having <= resting else {}
        before, watched.resting = watched.resting, {}
        for share, processes in dormant.items():
            known = before.get(share)
            if known is None or known[0] != processes:
                known = processes, self._scanner.restart(gpu, watched)
            watched.resting[share] = known
        return replace(present, resting=resting, dormant=frozenset(dormant))

    async def _throttled(self, gpu: str, event: Event) -> dict[str, int]:
        """Return for how long CPU limits stopped the programs of shares that would count as late now."""
        watched, now, found = self._node.gpus[gpu], microseconds(), dict[str, int]()
        late = {share: one.late for share, one in watched.state.items() if one.late is not None}
        if isinstance(event, events.Late):
            late[event.share] = event.since
            watched.limits[event.share] = now, await self._limits(gpu, event.share)
        watched.limits = {share: known for share, known in watched.limits.items() if share in late}
        for share, (heard, before) in watched.limits.items():
            if now >= late[share] + watched.penalties.grace:
                found[share] = throttling.allowance(before, await self._limits(gpu, share), max(0, heard - late[share]))
        return found

    async def _limits(self, gpu: str, share: str) -> throttling.Groups:
        pids = [process.pid for process in connected_for(self._node.server, gpu, share)]
        return await self._node.worker.run(cpu_limits.read, pids)
