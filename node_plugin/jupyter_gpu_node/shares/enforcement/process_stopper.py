"""Stops and continues the processes of shares. While those of a share are stopped, a `Proxy` asks for its next turn."""

from __future__ import annotations

import functools
import logging

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.share_file import ShareKey
from jupyter_gpu_node.shares.rules.violations import events
from jupyter_gpu_node.shares.scans.watched import WatchedNode

from .proxy import Proxy
from .resume_guard import ResumeGuard

_log = logging.getLogger(__name__)


class ProcessStopper:
    """The stopped processes of one node."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._proxies: dict[ShareKey, Proxy] = {}
        self.resume_guard = ResumeGuard()

    async def stop(self, gpu: str, share: str, processes: ProcessIds, after: float) -> None:
        """Stop the processes, and ask for the share's next turn on their behalf after so many seconds."""
        # a second SIGSTOP would count as its user's
        await self._node.worker.run(self.resume_guard.stop, processes - self._stopped_elsewhere(gpu))
        self._ask_for(gpu, share, after)

    async def resume(self, gpu: str, share: str, processes: ProcessIds) -> None:
        """Continue the processes, unless they are stopped for another GPU as well."""
        await self._node.worker.run(self.resume_guard.resume, processes - self._stopped_elsewhere(gpu))
        proxy = self._proxies.get((gpu, share))
        if proxy and not self._node.gpus[gpu].stopped.get(share):
            proxy.release()

    def dismiss_removed(self) -> None:
        """Ask for no share that is gone."""
        for gpu, pod in [(gpu, pod) for gpu, pod in self._proxies if pod not in self._node.gpus[gpu].pods]:
            self._dismiss(gpu, pod)

    async def resume_all(self) -> None:
        """Continue every process."""
        for watched in self._node.gpus.values():
            for processes in watched.stopped.values():
                await self._node.worker.run(self.resume_guard.resume, processes)

    async def close(self) -> None:
        """End the cleanup process, and ask for nothing more."""
        await self._node.worker.run(self.resume_guard.close)
        for proxy in self._proxies.values():
            proxy.close()

    def _ask_for(self, gpu: str, share: str, after: float) -> None:
        """Ask for the GPU and give it back on behalf of the share for as long as its processes are stopped."""
        self._dismiss(gpu, share)
        turn = functools.partial(self._node.on_event, gpu, events.TurnBegan(share))
        over = functools.partial(self._node.on_event, gpu, events.TurnEnded(share, frozenset()))
        try:
            self._proxies[gpu, share] = Proxy(self._node.server, gpu, share, turn, over, after)
        except (LookupError, OSError) as error:  # its stop ends by itself
            _log.warning("The share of pod %s on %s cannot be asked for: %s", share, gpu, error)

    def _dismiss(self, gpu: str, share: str) -> None:
        proxy = self._proxies.pop((gpu, share), None)
        if proxy:
            proxy.close()

    def _stopped_elsewhere(self, gpu: str) -> ProcessIds:
        """Return the processes that are stopped for other GPUs."""
        others = (one.stopped for other, one in self._node.gpus.items() if other != gpu)
        return frozenset[ProcessId]().union(*(processes for by_share in others for processes in by_share.values()))
