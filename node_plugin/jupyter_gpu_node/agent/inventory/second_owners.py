"""Detects a GPU of ours that another plugin gives away: then no pod gets it here, and that is reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jupyter_gpu_node.agent.metrics import Metrics
from jupyter_gpu_node.agent.publisher import ONE_OWNER, TWO_OWNERS, Publisher
from jupyter_gpu_node.gpus.rules.managed import Given, SecondOwner, second_owners, unknown_instances
from jupyter_gpu_node.kubelet.pod_resources import PodResourcesError

from .inventory import Inventory

OWNED = "It was given to pod {pod} as {source}, by something other than jupyter-gpu. One of the two must not have it."
OWNED_INSTANCE = (
    "Its instance {device} was given to pod {pod} as {source}, by something other than jupyter-gpu. "
    "Leave the GPU out of node.managed, or keep its instances from being given away."
)
MAYBE_OWNED = (
    "An instance of it may have been given to pod {pod} as {source}, by something other than jupyter-gpu: "
    "the driver does not say which GPU {device} belongs to. Leave GPUs in MIG mode out of node.managed."
)
MAYBE_OWNED_GPU = (
    "It may have been given to pod {pod} as {source}, by something other than jupyter-gpu: which GPU {device} is, is "
    "not known here. One of the two must leave all of AMD's GPUs of this node alone."
)
_log = logging.getLogger(__name__)


class SecondOwners:
    """The check for second owners. ``given`` asks the kubelet what it has given for other resources than ours."""

    def __init__(
        self,
        inventory: Inventory,
        given: Callable[[], Awaitable[tuple[Given, ...]]],
        publisher: Publisher,
        metrics: Metrics,
        seconds: float,
    ) -> None:
        self._inventory = inventory
        self.given = given
        """Function that asks the kubelet."""
        self._publisher = publisher
        self._metrics = metrics
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._reported: dict[str, str] = {}
        """Text last published to the cluster, by uuid."""

    async def run(self) -> None:
        """Check repeatedly until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._seconds)

    async def once(self) -> None:
        """Ask once. Where the kubelet does not answer all stays as it is."""
        async with self._asking:  # an older answer must not come last
            await self._once()

    async def _once(self) -> None:
        try:
            given = await self.given()
        except PodResourcesError as error:
            _log.warning("Whether other plugins give away GPUs of this node is not known: %s", error)
            return
        if unknown_instances(given, self._inventory.instances):
            await self._inventory.refresh()  # only an inventory that begins now can exclude a GPU newer than the last
        own = self._inventory
        found = second_owners(own.seen.values(), given, own.instances, own.buses)
        owned = {uuid: _words(one) for uuid, one in found.items()}
        self._inventory.owned_by_others(owned)
        self._metrics.two_owners.set(len(owned))
        for uuid in self._reported.keys() | owned.keys():
            if self._reported.get(uuid, "") != owned.get(uuid, "") and self._tell(uuid, owned.get(uuid, "")):
                self._reported[uuid] = owned.get(uuid, "")
        self._reported = {uuid: text for uuid, text in self._reported.items() if text}

    def _tell(self, uuid: str, text: str) -> bool:
        """Publish an Event of the node, and tell whether it could be written."""
        if text:
            _log.error("GPU %s: %s", uuid, text)
            return self._publisher.about_node(TWO_OWNERS, f"GPU {uuid}: {text}")
        return self._publisher.about_node(ONE_OWNER, f"GPU {uuid} is given away by jupyter-gpu alone again.", "Normal")


def _words(one: SecondOwner) -> str:
    known, maybe = (OWNED_INSTANCE, MAYBE_OWNED) if one.instance else (OWNED, MAYBE_OWNED_GPU)
    words = known if one.certain else maybe
    return words.format(pod=one.given.pod, source=one.given.source, device=one.device[:96])
