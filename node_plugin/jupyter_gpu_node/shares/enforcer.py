"""Carries out the orders of `violations`: stops and continues processes, and has shares taken away.

The server reports shares that do not give a GPU back (`Enforcer.late`); regular scans find processes that use a GPU in
turns of other shares. Events are handled one at a time: decided, saved to the file, then carried out. Blocking work
runs in a thread. While processes of a share are stopped, a `Proxy` asks for its next turn, and reports its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from jupyter_gpu_node.gpus.registry import NVIDIA
from jupyter_gpu_node.processes import device_scan, signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.share_file import ShareKey
from jupyter_gpu_node.shares.rules.violations import events, throttling, violation_records, violations
from jupyter_gpu_node.shares.rules.violations.events import Event
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.rules.violations.violations import Present

from . import cpu_limits, stopped_processes
from .gpu_server import ShareOverdue
from .memory_comparison import MemoryComparison
from .proxy import Proxy, give_back, holders
from .resume_guard import ResumeGuard
from .server import ArbiterServer, microseconds
from .usage_by_process import UsageReader
from .use_scans import UseScanner, connected_processes
from .watched import WatchedGpu

POLL = 0.01
"""Seconds between two checks whether a late share has given the GPU back."""
BETWEEN = 0.25
"""Seconds for which processes kept to their turns pause after each turn: their queued work runs on in other turns."""

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Enforcer:
    """Enforces the turns on one node.

    ``path``: its file. ``take_away`` is called with GPU, pod and reason when a share is taken away; ``tell`` with the
    same when a share is stopped. ``pod_of`` (called in a thread) returns the pod of a pid. ``spare`` returns processes
    that are not stopped, such as the Jupyter server, unless ``opens`` (called in a thread) finds that they have a GPU
    open. Without ``reader``, processes that avoid the gate go unnoticed. ``pause``: seconds between two scans.
    """

    def __init__(
        self,
        path: Path,
        take_away: Callable[[str, str, str], None],
        *,
        pod_of: Callable[[int], str | None] = lambda _: None,
        spare: Callable[[], Iterable[ProcessId]] = lambda: (),
        opens: Callable[[int], bool] = lambda pid: device_scan.has_open(pid, NVIDIA),
        reader: UsageReader | None = None,
        tell: Callable[[str, str, str], None] = lambda *_: None,
        penalties: Callable[[str], Penalties] = lambda _: Penalties(),
        pause: float = 1.0,
        clock: Callable[[], int] = microseconds,
    ) -> None:
        self._path = path
        self._take_away = take_away
        self._pod_of = pod_of
        self._spare = spare
        self._opens = opens
        self._reader = reader
        self._tell = tell
        self._penalties = penalties
        self._pause = pause
        self._clock = clock
        self._gpus: dict[str, WatchedGpu] = {}
        self._proxies: dict[ShareKey, Proxy] = {}
        self._events: asyncio.Queue[tuple[str, Event]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="enforcer")
        self._resume_guard = ResumeGuard()
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry = asyncio.Event()
        self._server: ArbiterServer | None = None
        self._scanner = self._new_scanner()
        self._told = False
        """Whether the set of shares is known."""

    async def start(self, server: ArbiterServer) -> None:
        """Continue the processes that an earlier enforcer stopped, and begin. ``server`` already reports to `late`."""
        self._server = server
        self._scanner = self._new_scanner()
        for gpu, state in (await self._in_thread(stopped_processes.load, self._path)).items():
            self._watched(gpu).state = state
            await self._handle(gpu, events.EnforcerStarted())
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._scan_for_ever())]
        if self._reader:
            comparison = MemoryComparison(server, self._reader, self._thread, self._pod_of)
            self._tasks.append(asyncio.create_task(self._scan_memory_for_ever(comparison)))

    async def set(self, shares: Mapping[str, Collection[str]]) -> None:
        """Set the pods with shares, by GPU, after the server's. On return, processes of removed shares run again."""
        self._told = True
        for gpu in {*self._gpus, *shares}:
            watched = self._watched(gpu)
            watched.pods = frozenset(shares.get(gpu, ()))
            for pod in watched.state.keys() - watched.pods:
                self._events.put_nowait((gpu, events.Removed(pod)))
        for gpu, pod in [(gpu, pod) for gpu, pod in self._proxies if pod not in self._gpus[gpu].pods]:
            self._dismiss(gpu, pod)
        if any(not task.done() for task in self._tasks):
            await self._events.join()

    def late(self, overdue: ShareOverdue) -> None:
        """Record that a share keeps the GPU, as `ArbiterServer` reports it."""
        self._events.put_nowait((overdue.gpu, events.Late(overdue.pod, overdue.since)))

    async def close(self) -> None:
        """Let all processes run again, and end. Their violations are saved, and count for the next enforcer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watched in self._gpus.values():
            if watched.timer:
                watched.timer.cancel()
            for share, processes in watched.stopped.items():
                await self._in_thread(self._resume_guard.resume, processes)
                watched.state = {**watched.state, share: replace(watched.state[share], stopped=frozenset())}
        await self._save()
        await self._in_thread(self._resume_guard.close)
        for proxy in self._proxies.values():
            proxy.close()
        if self._reader:
            await self._reader.close()
        self._thread.shutdown(wait=False)

    # --- events -------------------------------------------------------------------------------------------------------

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
        watched = self._watched(gpu)
        if isinstance(event, events.TurnEnded) and (one := watched.state.get(event.share)):
            event = replace(event, there=await self._in_thread(signals.still_there, one.avoiders))
        before = violation_records.to_plain(watched.state)
        late = {share for share, one in watched.state.items() if one.late is not None}
        present = replace(await self._present(gpu, event), throttled=await self._throttled(gpu, event))
        outcome = violations.decide(watched.state, event, self._clock(), present, watched.penalties)
        watched.state = outcome.state
        for order in outcome.orders:
            if isinstance(order, events.Continue):
                await self._continue(gpu, order)
        kept = violation_records.to_plain(watched.state) == before or await self._save()
        for order in outcome.orders:
            if isinstance(order, events.Stop):
                await self._stop(gpu, order, kept=kept)
            elif isinstance(order, events.TakeAway):
                _log.warning("Share of pod %s on %s: %s", order.share, gpu, order.reason)
                self._give_back(gpu, order.share)
                self._take_away(gpu, order.share, order.reason)
        if isinstance(event, events.Late | events.Tick | events.UseScanned):
            self._insist(gpu, late | ({event.share} if isinstance(event, events.Late) else set()))
        self._forget(gpu)
        self._arm(gpu)

    def _forget(self, gpu: str) -> None:
        """Forget removed shares. One that still has the GPU, and may be late, is forgotten after it gives it back."""
        watched, holder = self._gpus[gpu], self._server.holder(gpu) if self._server else None
        for share in watched.state.keys() - watched.pods - {holder} if self._told else ():
            if watched.state[share].late is None and not watched.state[share].stopped:
                self._events.put_nowait((gpu, events.Removed(share)))

    def _insist(self, gpu: str, late: Collection[str]) -> None:
        """Insist on the GPU: the server reports a share that keeps it only once, and others must not wait for ever."""
        watched = self._gpus[gpu]
        holder = self._server.holder(gpu) if self._server else None
        one = watched.state.get(holder) if holder is not None and holder in late else None
        if one is None or holder is None:
            return
        if one.taken:
            self._give_back(gpu, holder)
        elif one.late is None and (not one.stopped or one.between):  # it could not be stopped
            self._events.put_nowait((gpu, events.Late(holder, self._clock(), again=True)))

    async def _stop(self, gpu: str, order: events.Stop, *, kept: bool) -> None:
        watched = self._gpus[gpu]
        record = watched.state[order.share]
        if not kept:  # nothing would let them run again if this process ended
            runs_on = replace(record, stopped=record.stopped - order.processes, kept=0)
            watched.state = {**watched.state, order.share: runs_on}
            return
        # a second SIGSTOP would count as its user's
        await self._in_thread(self._resume_guard.stop, order.processes - self._held(gpu))
        self._speak_for(gpu, order.share, 0 if order.reason else BETWEEN)
        if order.reason:  # else it is one of many stops between two turns
            _log.warning("Share of pod %s on %s: %s", order.share, gpu, order.reason)
            self._tell(gpu, order.share, order.reason)
            # the next scan covers only what it does from now on
            watched.scanned_at, watched.turns = self._clock(), self._scanner.turns(gpu, watched.pods)
            self._hurry.set()

    def _speak_for(self, gpu: str, share: str, after: float) -> None:
        """Ask for the GPU and give it back on behalf of the share for as long as its processes are stopped."""
        if self._server is None:
            return
        self._dismiss(gpu, share)
        turn = functools.partial(self._events.put_nowait, (gpu, events.TurnBegan(share)))
        over = functools.partial(self._events.put_nowait, (gpu, events.TurnEnded(share, frozenset())))
        try:
            self._proxies[gpu, share] = Proxy(self._server, gpu, share, turn, over, after)
        except (LookupError, OSError) as error:  # its stop ends by itself
            _log.warning("The share of pod %s on %s cannot be asked for: %s", share, gpu, error)

    async def _continue(self, gpu: str, order: events.Continue) -> None:
        """Continue the processes, unless they are stopped for another GPU as well."""
        await self._in_thread(self._resume_guard.resume, order.processes - self._held(gpu))
        proxy = self._proxies.get((gpu, order.share))
        if proxy and not self._gpus[gpu].stopped.get(order.share):
            proxy.release()

    def _held(self, gpu: str) -> ProcessIds:
        """Return the processes that are stopped for other GPUs."""
        others = (one.stopped for other, one in self._gpus.items() if other != gpu)
        return frozenset[ProcessId]().union(*(processes for by_share in others for processes in by_share.values()))

    def _dismiss(self, gpu: str, share: str) -> None:
        proxy = self._proxies.pop((gpu, share), None)
        if proxy:
            proxy.close()

    async def _present(self, gpu: str, event: Event) -> Present:
        found: dict[str, set[ProcessId]] = {pod: set(users) for pod, users in self._gpus[gpu].users.items()}
        for pod, keepers in self._gpus[gpu].keepers.items():
            found.setdefault(pod, set()).update(keepers)
        for pod, process in connected_processes(self._server, gpu):
            found.setdefault(pod, set()).add(process)
        records = self._gpus[gpu].state.values()
        meant = frozenset[ProcessId]().union(*found.values(), *(one.stopped | one.avoiders for one in records))
        if spared := meant & frozenset(self._spare()):
            spared = await self._in_thread(self._without_gpus, spared)
        ours = frozenset({signals.identify(os.getpid())} - {None})
        never = frozenset(one for one in (*spared, *ours) if one is not None)
        users = {pod: frozenset(processes) for pod, processes in found.items()}
        return await self._with_resting(gpu, event, Present(users, never))

    async def _throttled(self, gpu: str, event: Event) -> dict[str, int]:
        """Return for how long CPU limits stopped the programs of shares that would count as late now."""
        watched, now, found = self._gpus[gpu], self._clock(), dict[str, int]()
        late = {share: one.late for share, one in watched.state.items() if one.late is not None}
        if isinstance(event, events.Late):
            late[event.share] = event.since
            watched.limits[event.share] = now, await self._limits(gpu, event.share)
        watched.limits = {share: known for share, known in watched.limits.items() if share in late}
        for share, (heard, before) in watched.limits.items():
            if now >= late[share] + watched.penalties.grace:
                found[share] = throttling.excused(before, await self._limits(gpu, share), max(0, heard - late[share]))
        return found

    async def _limits(self, gpu: str, share: str) -> throttling.Groups:
        pids = [process.pid for pod, process in connected_processes(self._server, gpu) if pod == share]
        return await self._in_thread(cpu_limits.read, pids)

    async def _with_resting(self, gpu: str, event: Event, present: Present) -> Present:
        """Add the resting processes of the shares that may be judged now, without those that we stopped."""
        watched, server = self._gpus[gpu], self._server
        judged = {*watched.state, *({event.share} if isinstance(event, events.Late) else ())}
        if isinstance(event, events.UseScanned):
            judged |= {*event.foreign, *event.beyond}
        meant = frozenset[ProcessId]().union(*(present.processes.get(share, frozenset()) for share in judged))
        meant |= frozenset[ProcessId]().union(*(one.avoiders for one in watched.state.values()))
        by_us = frozenset[ProcessId]().union(*(each for one in self._gpus.values() for each in one.stopped.values()))
        resting = await self._in_thread(signals.stopped, meant - by_us) if meant - by_us else frozenset[ProcessId]()
        holder = server.holder(gpu) if server else None
        having = holders(server, gpu, holder) if server and holder in judged and holder is not None else ProcessIds()
        excused = {holder: having} if holder is not None and having and having <= resting else {}
        before, watched.resting = watched.resting, {}
        for share, processes in excused.items():
            known = before.get(share)
            if known is None or known[0] != processes:  # the next scan covers only what it does from now on
                known = processes, self._clock()
                watched.scanned_at, watched.turns = known[1], self._scanner.turns(gpu, watched.pods)
                self._hurry.set()
            watched.resting[share] = known
        return replace(present, resting=resting, excused=frozenset(excused))

    def _without_gpus(self, processes: ProcessIds) -> ProcessIds:
        """Return the processes that have no GPU open. One that cannot be inspected counts as having one open."""

        def opens(one: ProcessId) -> bool:
            try:
                return self._opens(one.pid)
            except OSError:
                return True

        return frozenset(one for one in processes if not opens(one))

    def _arm(self, gpu: str) -> None:
        """Set the timer to the next moment at which something is to be decided for that GPU."""
        watched = self._gpus[gpu]
        if watched.timer:
            watched.timer.cancel()
        watched.timer = None
        wake = violations.wake(watched.state, watched.penalties)
        if wake is not None:
            delay = max(0, wake - self._clock()) / 1e6
            if any(one.late is not None for one in watched.state.values()):
                delay = min(delay, POLL)
            watched.timer = asyncio.get_running_loop().call_later(delay, self._ring, gpu)

    def _ring(self, gpu: str) -> None:
        """Check whether a late share has given the GPU back, and whether a decision is due."""
        watched = self._gpus[gpu]
        holder = self._server.holder(gpu) if self._server else None
        for share, one in watched.state.items():
            if one.late is not None and share != holder:
                self._events.put_nowait((gpu, events.GaveBack(share)))
        wake = violations.wake(watched.state, watched.penalties)
        if wake is not None and wake <= self._clock():
            self._events.put_nowait((gpu, events.Tick()))
        else:
            self._arm(gpu)

    # --- scans --------------------------------------------------------------------------------------------------------

    async def _scan_for_ever(self) -> None:
        """Scan for ever, more often while processes are stopped: others wait for the end of their work."""
        while True:
            stopped = any(watched.stopped or watched.resting for watched in self._gpus.values())
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause / 2 if stopped else self._pause):
                    await self._hurry.wait()
                continue
            for gpu in [gpu for gpu, watched in self._gpus.items() if len(watched.pods) > 1 or watched.state]:
                try:
                    await self._scanner.scan(gpu, self._watched(gpu))
                except Exception:  # such as a reader that fails: the next scan may succeed
                    _log.exception("The use of %s could not be scanned", gpu)

    def _give_back(self, gpu: str, share: str, processes: ProcessIds | None = None) -> None:
        """Give the GPU back for stopped ``processes``; without ``processes``, for all of a share that refuses to."""
        if self._server:
            every = frozenset(process for pod, process in connected_processes(self._server, gpu) if pod == share)
            give_back(self._server, gpu, share, every if processes is None else processes)

    async def _scan_memory_for_ever(self, comparison: MemoryComparison) -> None:
        """Compare the memory of the GPUs, one after the other, at most once in each pause."""
        while True:
            await asyncio.sleep(self._pause)
            for gpu, watched in list(self._gpus.items()):
                try:
                    untold = await comparison.compare(gpu, watched)
                except Exception:  # as above
                    _log.exception("The memory of programs on %s could not be compared", gpu)
                    continue
                if untold is not None and (any(untold.values()) or any(one.hoards for one in watched.state.values())):
                    self._see(gpu, events.MemoryScanned(untold))

    def _see(self, gpu: str, event: Event) -> None:
        self._events.put_nowait((gpu, event))

    def _new_scanner(self) -> UseScanner:
        return UseScanner(self._server, self._reader, self._thread, self._pod_of, self._see, self._clock)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _watched(self, gpu: str) -> WatchedGpu:
        if gpu not in self._gpus:
            self._gpus[gpu] = WatchedGpu(self._penalties(gpu))
        return self._gpus[gpu]

    async def _save(self) -> bool:
        try:
            await self._in_thread(
                stopped_processes.save, self._path, {gpu: one.state for gpu, one in self._gpus.items()}
            )
        except OSError as error:
            _log.warning("What became of offences cannot be kept, so no process is stopped: %s", error)
            return False
        return True

    def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run work in the thread, in the order of the calls."""
        return asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args, **kwargs))
