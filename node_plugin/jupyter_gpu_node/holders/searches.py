"""Searches of pods that have too many files open for a scan: each by itself, beside the scans, with pauses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.processes.rules.scan_budget import LEAST_REST, Search

from .scanner import HolderScan, HolderScanner

KEPT = 600.0
"""Seconds for which what a search found is kept."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pod:
    """The search of one pod, frozen for it or not."""

    search: Search | None = None
    scan: HolderScan = field(default_factory=HolderScan)
    task: asyncio.Task[None] | None = None
    wake: set[Callable[[], None]] = field(default_factory=set)
    """Callbacks that wait for the next search."""


class Searches:
    """The searches of one node. No call waits: a callback says when there is an answer, and the caller asks again."""

    def __init__(self, scanner: HolderScanner, clock: Callable[[], float] = time.monotonic) -> None:
        self._scanner = scanner
        self._clock = clock
        self._pods: dict[tuple[str, bool], _Pod] = {}

    def ask(
        self,
        uid: str,
        gpus: Mapping[str, Gpu],
        uuids: frozenset[str],
        since: float,
        wake: Callable[[], None],
        group: Path | None = None,
    ) -> HolderScan | None:
        """Return the result of a search for ``uuids`` begun at ``since`` or later; None: ``wake`` will be called.

        The next one is for all ``gpus``, so that it is an answer for others as well. ``group``: that of the pod, if it
        is to be frozen; then it is searched for hidden descriptors, too.
        """
        self._tidy()
        pod = self._pods.setdefault((uid, group is not None), _Pod())
        if pod.search and pod.search.proves(uuids, since):
            return pod.scan
        pod.wake.add(wake)
        if pod.task is None:
            pod.task = asyncio.create_task(self._search(uid, dict(gpus), group), name=f"search of pod {uid}")
        return None

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        for key in [key for key in self._pods if key[0] == uid]:
            if task := self._pods.pop(key).task:
                task.cancel()

    def _tidy(self) -> None:
        """Forget old searches: the end of a pod without a slot is not reported."""
        now = self._clock()
        for key, pod in list(self._pods.items()):
            if pod.task is None and pod.search and now - pod.search.ended > KEPT:
                del self._pods[key]

    async def _search(self, uid: str, gpus: Mapping[str, Gpu], group: Path | None) -> None:
        pod = self._pods[uid, group is not None]
        try:
            if pod.search:
                await asyncio.sleep(max(0.0, pod.search.next - self._clock()))
            began = self._clock()
            pod.scan = await self._scanner.search(uid, gpus, group)
            pod.search = Search(began, self._clock(), pod.scan.scanned)
            _log.info("Pod %s has very many files open: to search it took %.1f s.", uid, self._clock() - began)
        except OSError as error:  # the waiting callers ask again
            _log.warning("Pod %s cannot be searched: %s", uid, error)
            await asyncio.sleep(LEAST_REST)
        finally:
            pod.task = None
            waiting, pod.wake = pod.wake, set()
            for wake in waiting:
                wake()
