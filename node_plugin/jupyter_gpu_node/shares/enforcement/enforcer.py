"""Carries out the orders of `violations`: stops and continues processes, and has shares taken away.

The server reports shares that do not give a GPU back (`Enforcer.late`); regular scans find processes that use a GPU in
turns of other shares. Events are handled one at a time: decided, saved to the file, then carried out. Blocking work
runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.shares.rules.violations import events, violation_records, violations
from jupyter_gpu_node.shares.rules.violations.events import Event
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.scans.memory_comparison import MemoryComparison
from jupyter_gpu_node.shares.scans.node_processes import NodeProcesses
from jupyter_gpu_node.shares.scans.share_processes import connected_for, give_back
from jupyter_gpu_node.shares.scans.usage_by_process import UsageReader
from jupyter_gpu_node.shares.scans.use_scans import UseScanner
from jupyter_gpu_node.shares.scans.watched import WatchedGpu, WatchedNode
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer
from jupyter_gpu_node.shares.server.clocks import microseconds
from jupyter_gpu_node.shares.server.gpu_server import ShareOverdue
from jupyter_gpu_node.shares.server.worker_thread import WorkerThread

from . import stopped_processes
from .process_inspector import ProcessInspector
from .process_stopper import ProcessStopper
from .resume_guard import ResumeGuard

POLL = 0.01
"""Seconds between two checks whether a late share has given the GPU back."""
BETWEEN = 0.25
"""Seconds for which processes restricted to their turns pause after each: their queued work runs on in other turns."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PenaltyCallbacks:
    """Functions to call with GPU, pod and reason when a share is penalized."""

    taken: Callable[[str, str, str], None]
    """Its share is taken away."""
    stopped: Callable[[str, str, str], None] = lambda *_: None
    """Its programs are stopped until its next turn."""


class Enforcer:
    """Enforces the turns on one node.

    ``path``: its file. Without ``reader``, processes that avoid the gate go unnoticed. ``pause``: seconds between two
    scans.
    """

    def __init__(
        self,
        server: ArbiterServer,
        path: Path,
        processes: NodeProcesses,
        callbacks: PenaltyCallbacks,
        *,
        penalties: Callable[[str], Penalties] = lambda _: Penalties(),
        reader: UsageReader | None = None,
        pause: float = 1.0,
    ) -> None:
        self._server = server
        self._path = path
        self._callbacks = callbacks
        self._penalties = penalties
        self._reader = reader
        self._gpus: dict[str, WatchedGpu] = {}
        self._events: asyncio.Queue[tuple[str, Event]] = asyncio.Queue()
        self._worker = WorkerThread("enforcer")
        node = WatchedNode(server, self._gpus, processes, self._worker, self._put)
        self._scanner = UseScanner(node, reader)
        self._inspector = ProcessInspector(node, self._scanner)
        self._stopper = ProcessStopper(node)
        self._comparison = MemoryComparison(node, reader) if reader else None
        self._pause = pause
        self._tasks: list[asyncio.Task[None]] = []
        self._told = False
        """Whether the set of shares is known."""

    @property
    def resume_guard(self) -> ResumeGuard:
        """The guard of the processes that are stopped."""
        return self._stopper.resume_guard

    async def start(self) -> None:
        """Continue the processes that an earlier enforcer stopped, and begin. The server already reports to `late`."""
        for gpu, state in (await self._worker.run(stopped_processes.load, self._path)).items():
            self.watched(gpu).state = state
            await self._handle(gpu, events.EnforcerStarted())
        loops = [self._work(), self._scanner.run(self._pause)]
        if self._comparison:
            loops.append(self._comparison.run(self._pause))
        self._tasks = [asyncio.create_task(one) for one in loops]

    async def set(self, shares: Mapping[str, Collection[str]]) -> None:
        """Set the pods with shares, by GPU, after the server's. On return, processes of removed shares run again."""
        self._told = True
        for gpu in {*self._gpus, *shares}:
            watched = self.watched(gpu)
            watched.pods = frozenset(shares.get(gpu, ()))
            for pod in watched.state.keys() - watched.pods:
                self._put(gpu, events.Removed(pod))
        self._stopper.dismiss_removed()
        if any(not task.done() for task in self._tasks):
            await self._events.join()

    def late(self, overdue: ShareOverdue) -> None:
        """Record that a share keeps the GPU, as `ArbiterServer` reports it."""
        self._put(overdue.gpu, events.Late(overdue.pod, overdue.since))

    async def compare_memory(self, gpu: str) -> None:
        """Charge the shares of that GPU for what the driver says now, where it says it."""
        if self._comparison:
            await self._comparison.compare(gpu, self.watched(gpu))

    def watched(self, gpu: str) -> WatchedGpu:
        """Return the state of that GPU."""
        if gpu not in self._gpus:
            self._gpus[gpu] = WatchedGpu(self._penalties(gpu))
        return self._gpus[gpu]

    async def close(self) -> None:
        """Let all processes run again, and end. Their violations are saved, and count for the next enforcer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watched in self._gpus.values():
            if watched.timer:
                watched.timer.cancel()
        await self._stopper.resume_all()
        for watched in self._gpus.values():
            watched.state = {share: replace(one, stopped=frozenset()) for share, one in watched.state.items()}
        await self._save()
        await self._stopper.close()
        if self._reader:
            await self._reader.close()
        self._worker.close()

    # --- events -------------------------------------------------------------------------------------------------------

    def _put(self, gpu: str, event: Event) -> None:
        self._events.put_nowait((gpu, event))

    async def _work(self) -> None:
        while True:
            gpu, event = await self._events.get()
            try:
                await self._handle(gpu, event)
            except Exception:  # one event must not cost all the others
                _log.exception("What became of %s on %s could not be decided or done", event, gpu)
            finally:
                self._events.task_done()

    async def _handle(self, gpu: str, event: Event) -> None:
        """Carry out what follows from an event: resume before saving and stop after it, so that none is forgotten."""
        watched = self.watched(gpu)
        if isinstance(event, events.TurnEnded) and (one := watched.state.get(event.share)):
            event = replace(event, there=await self._worker.run(signals.still_there, one.avoiders))
        before = violation_records.to_plain(watched.state)
        late = {share for share, one in watched.state.items() if one.late is not None}
        present = await self._inspector.present(gpu, event)
        outcome = violations.decide(watched.state, event, microseconds(), present, watched.penalties)
        watched.state = outcome.state
        for order in outcome.orders:
            if isinstance(order, events.Continue):
                await self._stopper.resume(gpu, order.share, order.processes)
        saved = violation_records.to_plain(watched.state) == before or await self._save()
        for order in outcome.orders:
            if isinstance(order, events.Stop):
                await self._stop(gpu, order, saved=saved)
            elif isinstance(order, events.TakeAway):
                _log.warning("Share of pod %s on %s: %s", order.share, gpu, order.reason)
                self._give_back(gpu, order.share)
                self._callbacks.taken(gpu, order.share, order.reason)
        if isinstance(event, events.Late | events.Tick | events.UseScanned):
            self._insist(gpu, late | ({event.share} if isinstance(event, events.Late) else set()))
        self._forget(gpu)
        self._arm(gpu)

    async def _stop(self, gpu: str, order: events.Stop, *, saved: bool) -> None:
        watched = self._gpus[gpu]
        record = watched.state[order.share]
        if not saved:  # nothing would let them run again if this process ended
            runs_on = replace(record, stopped=record.stopped - order.processes, restricted_until=0)
            watched.state = {**watched.state, order.share: runs_on}
            return
        await self._stopper.stop(gpu, order.share, order.processes, 0 if order.reason else BETWEEN)
        if order.reason:  # else it is one of many stops between two turns
            _log.warning("Share of pod %s on %s: %s", order.share, gpu, order.reason)
            self._callbacks.stopped(gpu, order.share, order.reason)
            self._scanner.restart(gpu, watched)

    def _forget(self, gpu: str) -> None:
        """Forget removed shares. One that still has the GPU, and may be late, is forgotten after it gives it back."""
        watched, holder = self._gpus[gpu], self._server.holder(gpu)
        for share in watched.state.keys() - watched.pods - {holder} if self._told else ():
            if watched.state[share].late is None and not watched.state[share].stopped:
                self._put(gpu, events.Removed(share))

    def _insist(self, gpu: str, late: Collection[str]) -> None:
        """Insist on the GPU: the server reports a share that keeps it only once, and others must not wait for ever."""
        holder = self._server.holder(gpu)
        one = self._gpus[gpu].state.get(holder) if holder is not None and holder in late else None
        if one is None or holder is None:
            return
        if one.taken:
            self._give_back(gpu, holder)
        elif one.late is None and (not one.stopped or one.between):  # it could not be stopped
            self._put(gpu, events.Late(holder, microseconds(), again=True))

    def _give_back(self, gpu: str, share: str) -> None:
        """Give the GPU back for a share that refuses to."""
        give_back(self._server, gpu, share, connected_for(self._server, gpu, share))

    async def _save(self) -> bool:
        try:
            await self._worker.run(
                stopped_processes.save, self._path, {gpu: one.state for gpu, one in self._gpus.items()}
            )
        except OSError as error:
            _log.warning("The violations cannot be saved, so no process is stopped: %s", error)
            return False
        return True

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, gpu: str) -> None:
        """Set the timer to the next moment at which something is to be decided for that GPU."""
        watched = self._gpus[gpu]
        if watched.timer:
            watched.timer.cancel()
        watched.timer = None
        wake = violations.wake(watched.state, watched.penalties)
        if wake is not None:
            delay = max(0, wake - microseconds()) / 1e6
            if any(one.late is not None for one in watched.state.values()):
                delay = min(delay, POLL)
            watched.timer = asyncio.get_running_loop().call_later(delay, self._ring, gpu)

    def _ring(self, gpu: str) -> None:
        """Check whether a late share has given the GPU back, and whether a decision is due."""
        watched = self._gpus[gpu]
        holder = self._server.holder(gpu)
        for share, one in watched.state.items():
            if one.late is not None and share != holder:
                self._put(gpu, events.GaveBack(share))
        wake = violations.wake(watched.state, watched.penalties)
        if wake is not None and wake <= microseconds():
            self._put(gpu, events.Tick())
        else:
            self._arm(gpu)
