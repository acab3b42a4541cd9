"""The shares that the arbiter of this node serves, from the pods' holdings. Pure.

A pod that may have a GPU open has a share of it, whole GPUs included, as a gate without a server waits. A GPU that
drains counts until it is proven closed, and its programs keep their turns until then, so that they can end in order.
Only a share that was taken away is not served any more, wherever its processes are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.shares.rules.apportionment import RankedClaim, apportion
from jupyter_gpu_node.shares.rules.share_file import ShareKey


@dataclass(frozen=True, slots=True)
class TakenShare:
    """A share that was taken away from its pod, until its user asks again."""

    reason: str
    generation: int | None = None
    """Generation of the decision that gave it; None: the one recorded last."""
    milli: int | None = None
    """Milli that it had; None: not known."""

    def is_in_force(self, uuid: str, allocated: Allocated | None) -> bool:
        """Tell whether ``allocated`` still is the decision that it was taken from."""
        given = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
        if allocated is None or uuid not in given:
            return False
        return self.generation in (None, allocated.observed_generation) and self.milli in (None, given[uuid])


def served(holdings: Mapping[str, Holding], taken: Collection[ShareKey] = ()) -> Mapping[str, Mapping[str, int]]:
    """Return, by GPU and pod, the milli that its programs run on; of one GPU never more than there is.

    ``taken``: GPU and pod of shares that were taken away. If more is claimed than there is (only records can do that,
    never rules), what rules allow comes first, then what is recorded, then what drains; the rest waits.
    """
    return apportion(
        _claim(uuid, pod, holding)
        for pod, holding in holdings.items()
        for uuid in holding.has.keys() | holding.drains.keys()
        if (uuid, pod) not in taken
    )


def _claim(uuid: str, pod: str, holding: Holding) -> RankedClaim:
    drains = uuid not in holding.has
    return RankedClaim(
        uuid,
        pod,
        holding.drains[uuid] if drains else holding.has[uuid],
        rank=2 if drains else 0 if uuid in holding.open else 1,
        order=holding.order,
        guest=not (holding.drains if drains else holding.has)[uuid],
        lendable=holding.served(uuid).lendable,
        divisible=drains,  # how much of what drains was meant is not always known
    )
