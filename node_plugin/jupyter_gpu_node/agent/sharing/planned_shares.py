"""The shares that this node has to serve now: from its pods' holdings, or those that an earlier process served.

If the API server takes long to report this node's pods, the shares that an earlier process served are served again;
until then programs wait, and nothing that an earlier process saved is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.next_state import wanted
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.agent.sharing.rules import served as served_rules
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.settings import Settings
from jupyter_gpu_node.shares.rules import divided_memory
from jupyter_gpu_node.shares.rules.apportionment import memory_limit
from jupyter_gpu_node.shares.rules.divided_memory import is_divided
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
            gpu: self._placed(gpu, parts, pods, holdings) for gpu, parts in served_rules.served(holdings, taken).items()
        }

    def divided(self, uuids: Collection[str]) -> dict[str, int]:
        """Return those of ``uuids`` on which a share has more memory than its part, and the memory of each."""
        pods = self._pods.managed().values() if uuids else ()
        shares = [share for pod in pods for share in _shares(pod)]
        memory = {uuid: self._memory(uuid) for uuid in uuids}
        return {
            uuid: total
            for uuid, total in memory.items()
            if is_divided(total, (share for share in shares if share.uuid == uuid))
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

    def _placed(
        self, gpu: str, parts: Mapping[str, int], pods: Mapping[str, ManagedPod], holdings: Mapping[str, Holding]
    ) -> Mapping[str, PlacedShare]:
        """Return the shares of one GPU with their limits of memory."""
        shares = {uid: holdings[uid].served(gpu)._replace(milli=milli) for uid, milli in parts.items()}
        limits = {uid: self._limit(pods[uid], share) for uid, share in shares.items()}
        if total := self.divided((gpu,)).get(gpu):
            decided = {uid: share for uid in shares for share in _decided(pods[uid]) if share.uuid == gpu}
            booked = divided_memory.limits(total, shares, decided)
            limits = {uid: _lower(limit, booked[uid], shares[uid]) for uid, limit in limits.items()}
        return {uid: PlacedShare(Terms(parts[uid], limits[uid]), self._slots.first(uid)) for uid in parts}

    def _limit(self, pod: ManagedPod, share: GpuShare) -> int | None:
        """Return the bytes that a share may have as far as other shares do not matter."""
        asked = pod.view.memory if pod.view else None
        parted, memory = self._settings.shares.part_memory, self._memory(share.uuid) or None
        return memory_limit(share.milli, asked, memory, parted=parted, recorded=share.memory)

    def _memory(self, uuid: str) -> int:
        known = self._inventory.seen.get(uuid)
        return known.memory if known else 0


def _decided(pod: ManagedPod) -> Iterable[GpuShare]:
    allocated = wanted(pod)
    return allocated.shares if allocated else ()


def _shares(pod: ManagedPod) -> Iterator[GpuShare]:
    """Yield all shares that count for whether the memory of a GPU is divided."""
    holding = pod.holding
    yield from _decided(pod)
    for uuid in (*holding.has, *holding.drains):
        yield from holding.shares(uuid)


def _lower(limit: int | None, booked: int, share: GpuShare) -> int | None:
    if share.exclusive:
        return None
    return booked if limit is None else min(limit, booked)
