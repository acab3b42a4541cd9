"""Scans of the use of one GPU: which processes used it in which turns, and which of its holders rest or wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.foreign_use import beyond, foreign
from jupyter_gpu_node.shares.rules.violations.events import UseScanned
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer
from jupyter_gpu_node.shares.server.clocks import microseconds

from .other_apis import apis_of
from .share_processes import attributed, connected_for, connected_processes, give_back
from .usage_by_process import UsageReader
from .watched import WatchedGpu, WatchedNode

IDLE_SCANS = 2
"""Scans that must see nothing run on a GPU that a share says it still needs."""

_log = logging.getLogger(__name__)


def turns_so_far(server: ArbiterServer, gpu: str, pods: Collection[str]) -> dict[str, int]:
    """Return the microseconds of turns so far, by share.

    Work that programs say they did without a turn is left out: a program around its gate would say so.
    """
    found = {}
    for pod in pods:
        with contextlib.suppress(KeyError):  # it has just gone
            account = server.usage(gpu, pod).account
            found[pod] = account.guaranteed + account.borrowed + account.idle + account.overrun - account.beside
    return found


@dataclass(frozen=True, slots=True)
class _UseScan:
    """The use of one GPU between two moments of the monotonic clock, in microseconds."""

    begin: int
    end: int
    by_share: Mapping[str, Mapping[ProcessId, int]]
    tolerance: int
    """Thousandths of that time that may be a measurement error."""

    def is_error(self, used: int) -> bool:
        """Tell whether so much use may be a measurement error."""
        return used * 1000 <= self.tolerance * (self.end - self.begin)

    def is_quiet(self, share: str, processes: ProcessIds) -> bool:
        """Tell whether these processes of the share used nothing."""
        return self.is_error(sum(self.by_share.get(share, {}).get(one, 0) for one in processes))


class UseScanner:
    """Scans the use of the GPUs of one node."""

    def __init__(self, node: WatchedNode, reader: UsageReader | None) -> None:
        self._node = node
        self._reader = reader
        self._restarted = asyncio.Event()

    async def run(self, pause: float) -> None:
        """Scan for ever, more often while processes are stopped: others wait for the end of their work."""
        while True:
            stopped = any(watched.stopped or watched.resting for watched in self._node.gpus.values())
            self._restarted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause / 2 if stopped else pause):
                    await self._restarted.wait()
                continue
            for gpu in [gpu for gpu, watched in self._node.gpus.items() if len(watched.pods) > 1 or watched.state]:
                try:
                    await self.scan(gpu, self._node.gpus[gpu])
                except Exception:  # such as a reader that fails: the next scan may succeed
                    _log.exception("The use of %s could not be scanned", gpu)

    def restart(self, gpu: str, watched: WatchedGpu) -> int:
        """Have the next scan cover only what happens from now on; return the present time."""
        watched.scanned_at, watched.turns = microseconds(), turns_so_far(self._node.server, gpu, watched.pods)
        self._restarted.set()
        return watched.scanned_at

    async def scan(self, gpu: str, watched: WatchedGpu) -> None:
        """Find the processes that used it since the last scan, and in which turns. An idle GPU is not scanned."""
        now = microseconds()
        begin, watched.scanned_at = watched.scanned_at, now
        turns = turns_so_far(self._node.server, gpu, watched.pods)
        since = {pod: max(0, had - watched.turns.get(pod, had)) for pod, had in turns.items()}
        watched.turns = turns
        stopped, resting = watched.stopped, dict(watched.resting)
        if not begin or now <= begin or not (any(since.values()) or stopped or resting):
            return
        uses = await self._reader.read(gpu, begin, now) if self._reader else None
        by_share = await self._by_share(gpu, watched, uses) if uses else {}
        watched.users = {pod: frozenset(found) for pod, found in by_share.items()}
        if uses is None:  # without a reading, their work may not have ended
            return
        seen = _UseScan(begin, now, by_share, watched.penalties.tolerance)
        await self._report_use(gpu, seen, since)
        self._check_idle(gpu, watched, seen, sum(uses.values()))
        await self._give_back_unused(gpu, watched, seen, stopped, resting)

    async def _by_share(
        self, gpu: str, watched: WatchedGpu, uses: Mapping[int, int]
    ) -> dict[str, dict[ProcessId, int]]:
        known = {process: pod for pod, process in connected_processes(self._node.server, gpu)}
        return await self._node.worker.run(attributed, watched.pods, uses, known, self._node.processes.pod_of)

    async def _report_use(self, gpu: str, seen: _UseScan, turns: Mapping[str, int]) -> None:
        """Report the use in turns of others; ``turns``: what each share had in the same time."""
        asking = {process for _, process in connected_processes(self._node.server, gpu)}
        outside, over = foreign(seen.by_share, turns, asking), beyond(seen.by_share, turns, asking)
        suspected = {
            pod: {*outside.get(pod, ()), *(asking & used.keys() if over.get(pod, 0) > 0 else ())}
            for pod, used in seen.by_share.items()
        }
        apis = await self._node.worker.run(apis_of, suspected, asking)
        self._node.on_event(gpu, UseScanned(outside, seen.end - seen.begin, over, apis))

    async def _give_back_unused(
        self,
        gpu: str,
        watched: WatchedGpu,
        seen: _UseScan,
        stopped: Mapping[str, ProcessIds],
        resting: Mapping[str, tuple[ProcessIds, int]],
    ) -> None:
        """Give the GPU back for stopped and resting processes whose queued work has ended."""
        for share, processes in stopped.items():
            at = watched.state[share].since if share in watched.state else seen.end
            if seen.begin >= at and seen.is_quiet(share, processes):
                give_back(self._node.server, gpu, share, processes)
        for share, (processes, at) in resting.items():
            ready = seen.begin >= at and seen.is_quiet(share, processes)
            if ready and processes == await self._node.worker.run(signals.stopped, processes):
                give_back(self._node.server, gpu, share, processes, shut=True)

    def _check_idle(self, gpu: str, watched: WatchedGpu, seen: _UseScan, used: int) -> None:
        """Take the GPU back from a share that says that its work takes longer while nothing runs at all.

        It is no violation: a stream can wait for the program itself.
        """
        holder = self._node.server.patient(gpu)
        if holder is None or seen.begin < holder[1] or not seen.is_error(used):
            watched.idle = ("", 0, 0)
            return
        scans = watched.idle[2] + 1 if watched.idle[:2] == holder else 1
        watched.idle = (*holder, scans)
        if scans >= IDLE_SCANS and holder[0] not in watched.stopped:
            having = connected_for(self._node.server, gpu, holder[0])
            give_back(self._node.server, gpu, holder[0], having, shut=True)  # not in the time of one launch more
