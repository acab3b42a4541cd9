"""Scans of the use of one GPU: which processes used it in which turns, and which of its holders rest or wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.foreign_use import beyond, foreign
from jupyter_gpu_node.shares.rules.violations.events import Event, UseScanned

from .other_apis import apis_of
from .proxy import give_back
from .server import ArbiterServer
from .usage_by_process import UsageReader
from .watched import WatchedGpu

IDLE_LOOKS = 2
"""Scans that must see nothing run on a GPU that a share says it still needs."""

P = ParamSpec("P")
T = TypeVar("T")


def connected_processes(server: ArbiterServer | None, gpu: str) -> list[tuple[str, ProcessId]]:
    """Return the processes that are connected for that GPU, with their pods."""
    found = server.connected() if server else ()
    return [(one.pod, ProcessId(one.process.pid, one.process.start)) for one in found if one.gpu == gpu]


def attributed(
    pods: Collection[str],
    by_pid: Mapping[int, T],
    known: Mapping[ProcessId, str],
    pod_of: Callable[[int], str | None],
) -> dict[str, dict[ProcessId, T]]:
    """Return the driver's figures by share and process, without processes outside these shares.

    It reads ``/proc``: for a thread.
    """
    found: dict[str, dict[ProcessId, T]] = {}
    for pid, value in by_pid.items():
        process = signals.identify(pid)
        pod = (known.get(process) or pod_of(pid)) if process and pid != os.getpid() else None
        if process and pod is not None and pod in pods:
            found.setdefault(pod, {})[process] = value
    return found


class UseScanner:
    """Scans the GPUs of one node. ``see`` is called with what was seen, ``thread`` runs what blocks."""

    def __init__(
        self,
        server: ArbiterServer | None,
        reader: UsageReader | None,
        thread: ThreadPoolExecutor,
        pod_of: Callable[[int], str | None],
        see: Callable[[str, Event], None],
        clock: Callable[[], int],
    ) -> None:
        self._server = server
        self._reader = reader
        self._thread = thread
        self._pod_of = pod_of
        self._see = see
        self._clock = clock

    async def scan(self, gpu: str, watched: WatchedGpu) -> None:
        """Find the processes that used it since the last scan, and in which turns. An idle GPU is not scanned."""
        now = self._clock()
        begin, watched.scanned_at = watched.scanned_at, now
        turns = self.turns(gpu, watched.pods)
        since = {pod: max(0, had - watched.turns.get(pod, had)) for pod, had in turns.items()}
        watched.turns = turns
        stopped, resting = watched.stopped, dict(watched.resting)
        if not begin or now <= begin or not (any(since.values()) or stopped or resting):
            return
        uses = await self._reader.read(gpu, begin, now) if self._reader else None
        known = connected_processes(self._server, gpu)
        by_share = await self._in_thread(self._attributed, watched.pods, uses, known) if uses else {}
        watched.users = {pod: frozenset(found) for pod, found in by_share.items()}
        if uses is not None:
            asking = {process for _, process in connected_processes(self._server, gpu)}
            judged = (by_share, since, asking)
            outside, over = foreign(*judged), beyond(*judged)
            seen = {
                pod: {*outside.get(pod, ()), *(asking & by_share[pod].keys() if over.get(pod, 0) > 0 else ())}
                for pod in by_share
            }
            apis = await self._in_thread(apis_of, seen, asking)
            self._see(gpu, UseScanned(outside, now - begin, over, apis))
        if uses is None:  # without a reading, their work may not have ended
            return
        self._check_idle(gpu, watched, begin, now, sum(uses.values()))

        def quiet(share: str, processes: ProcessIds) -> bool:
            used = sum(by_share.get(share, {}).get(one, 0) for one in processes)
            return used * 1000 <= watched.penalties.tolerance * (now - begin)

        for share, processes in stopped.items():
            at = watched.state[share].since if share in watched.state else now
            if self._server and begin >= at and quiet(share, processes):
                give_back(self._server, gpu, share, processes)
        for share, (processes, at) in resting.items():
            ready = self._server and begin >= at and quiet(share, processes)
            if self._server and ready and processes == await self._in_thread(signals.stopped, processes):
                give_back(self._server, gpu, share, processes, shut=True)

    def _check_idle(self, gpu: str, watched: WatchedGpu, begin: int, now: int, used: int) -> None:
        """Take the GPU back from a share that says that its work takes longer while nothing runs at all.

        It is no violation: a stream can wait for the program itself.
        """
        holder = self._server.patient(gpu) if self._server else None
        if holder is None or begin < holder[1] or used * 1000 > watched.penalties.tolerance * (now - begin):
            watched.idle = ("", 0, 0)
            return
        looks = watched.idle[2] + 1 if watched.idle[:2] == holder else 1
        watched.idle = (*holder, looks)
        if self._server and looks >= IDLE_LOOKS and holder[0] not in watched.stopped:
            having = {process for pod, process in connected_processes(self._server, gpu) if pod == holder[0]}
            give_back(self._server, gpu, holder[0], having, shut=True)  # not in the time of one launch more

    def turns(self, gpu: str, pods: Collection[str]) -> dict[str, int]:
        """Return the microseconds of turns so far, by share.

        Work that programs say they did without a turn is left out: a program around its gate would say so.
        """
        found = {}
        server = self._server
        if server is None:
            return {}
        for pod in pods:
            with contextlib.suppress(KeyError):  # it has just gone
                account = server.usage(gpu, pod).account
                found[pod] = account.guaranteed + account.borrowed + account.idle + account.overrun - account.beside
        return found

    def _attributed(
        self, pods: Collection[str], uses: Mapping[int, int], known: list[tuple[str, ProcessId]]
    ) -> dict[str, dict[ProcessId, int]]:
        return attributed(pods, uses, {process: pod for pod, process in known}, self._pod_of)

    def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args, **kwargs))
