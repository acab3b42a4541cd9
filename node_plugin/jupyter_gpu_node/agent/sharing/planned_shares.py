"""The shares that this node has to serve now: from its pods' holdings, or those that an earlier process served.

If the API server takes long to report this node's pods, the shares that an earlier process served are served again;
until then programs wait, and nothing that an earlier process saved is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.sharing.rules import served as served_rules
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.settings import Settings
from jupyter_gpu_node.shares.rules.apportionment import memory_limit
from jupyter_gpu_node.shares.rules.share_file import ShareKey
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.server.arbiter_server import PlacedShare
from jupyter_gpu_node.shares.server.worker_thread import WorkerThread

from . import served_shares
from .pod_slots import PodSlots

Shares = Mapping[str, Mapping[str, PlacedShare]]
"""Shares by GPU and pod."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods of this node, as far as the agent knows them."""

    managed: Callable[[], Mapping[str, ManagedPod]]
    """Returns the pods by uid."""
    complete: Callable[[], bool]
    """Tells whether the API server has reported all of them."""
    servers: Callable[[], Collection[ProcessId]]
    """Returns their Jupyter servers."""


class PlannedShares:
    """The shares that one node is to serve, and the record of them for the next process."""

    def __init__(self, settings: Settings, pods: NodePods, slots: PodSlots, inventory: Inventory) -> None:
        self._settings = settings
        self._pods = pods
        self._slots = slots
        self._inventory = inventory
        self._boot = proc.boot_id()
        self._recorded = served_shares.load(settings.served, self._boot)

    @property
    def remembered(self) -> bool:
        """Whether there is a record of what an earlier process served."""
        return bool(self._recorded)

    def now(self, taken: Collection[ShareKey]) -> Shares:
        """Return the shares to serve now. ``taken``: shares that were taken away."""
        if not self._pods.complete():
            return self._as_before(taken)
        pods = self._pods.managed()
        holdings = {uid: pod.holding for uid, pod in pods.items() if self._slots.slots(uid)}
        return {
            gpu: {uid: self._placed(pods[uid], gpu, milli) for uid, milli in parts.items()}
            for gpu, parts in served_rules.served(holdings, taken).items()
        }

    async def record(self, shares: Shares, worker: WorkerThread) -> None:
        """Write what is served now for the next process, unless this one does not know all of it yet."""
        served = {gpu: {uid: one.terms for uid, one in parts.items()} for gpu, parts in shares.items() if parts}
        if served != self._recorded and self._pods.complete():
            try:
                await worker.run(served_shares.save, self._settings.served, served, self._boot)
                self._recorded = served
            except OSError as error:
                _log.warning("Which shares are served cannot be kept for the next start: %s", error)

    def _as_before(self, taken: Collection[ShareKey]) -> Shares:
        return {
            gpu: {
                uid: PlacedShare(terms, self._slots.first(uid))
                for uid, terms in parts.items()
                if self._slots.slots(uid) and (gpu, uid) not in taken
            }
            for gpu, parts in self._recorded.items()
        }

    def _placed(self, pod: ManagedPod, gpu: str, milli: int) -> PlacedShare:
        known = self._inventory.seen.get(gpu)
        asked = pod.view.memory if pod.view else None
        parted = self._settings.shares.part_memory
        limit = memory_limit(milli, asked, known.memory if known else None, parted=parted)
        return PlacedShare(Terms(milli, limit), self._slots.first(pod.uid))
