"""What is known of nodes and pods, kept incrementally: a change costs what changed, however large the cluster is.

Milli held on a GPU by a pod = max(allocated, attached, draining) there: a share is taken from the moment it is
decided until its device is proven closed. What is free is the rest of 1000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jupyter_gpu.model.annotations import Allocated, Attached, Requested
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU

_NOBODY: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod: what it wants, what was decided for it, what it really has."""

    uid: str
    node: str
    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None
    limit: int | None = None
    """Milli that its user may have; ``None``: no limit."""
    busy: frozenset[str] = frozenset()
    """uuids that some process has open now; for the order of shrinking and for what may move."""
    gone: bool = False
    """Its server ended: it wants nothing and gets nothing, but may still hold something."""

    @property
    def priority(self) -> int:
        """0–9, higher is served first; 0 where the wish does not say."""
        return (self.requested.wish.priority if self.requested else None) or 0

    @property
    def ticket(self) -> int | None:
        """Its place in line; ``None`` where it is not in line."""
        return self.allocated.ticket if self.allocated else None

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Sorts pods into the order in which they are served: priority, then ticket; who has none comes last."""
        return (-self.priority, self.ticket is None, self.ticket or 0, self.uid)

    @property
    def held(self) -> dict[str, int]:
        """Milli held by uuid: the most of allocated, attached and draining."""
        held: dict[str, int] = {}
        for share in self.allocated.shares if self.allocated else ():
            held[share.uuid] = share.milli
        if self.attached:
            leaving = (item.share for item in self.attached.draining)
            for share in (*self.attached.shares, *leaving):
                held[share.uuid] = max(held.get(share.uuid, 0), share.milli)
        return held


class ClusterSnapshot:
    """Nodes with their GPUs, pods with their shares, and who holds what. No I/O; not thread-safe.

    Nodes and pods may come in any order: a pod may be known before its node is.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Gpu]] = {}
        self._pods: dict[str, PodState] = {}
        self._by_node: dict[str, dict[str, PodState]] = {}
        self._holders: dict[str, dict[str, int]] = {}  # uuid → uid → milli

    def put_node(self, name: str, gpus: tuple[Gpu, ...]) -> None:
        """Add or replace a node's inventory."""
        self._nodes[name] = {gpu.uuid: gpu for gpu in gpus}

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods stay known until they are removed, and nothing is decided for them."""
        self._nodes.pop(name, None)

    def put_pod(self, pod: PodState) -> None:
        """Add or replace a pod."""
        self.remove_pod(pod.uid)
        self._pods[pod.uid] = pod
        self._by_node.setdefault(pod.node, {})[pod.uid] = pod
        for uuid, milli in pod.held.items():
            self._holders.setdefault(uuid, {})[pod.uid] = milli

    def remove_pod(self, uid: str) -> None:
        """Forget a pod and free all it held; a pod that is not known is no error."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        for uuid in pod.held:
            _discard(self._holders, uuid, uid)
        _discard(self._by_node, pod.node, uid)

    def pod(self, uid: str) -> PodState | None:
        """One pod."""
        return self._pods.get(uid)

    def pods(self, node: str) -> tuple[PodState, ...]:
        """The pods of a node, by uid."""
        found = self._by_node.get(node, {})
        return tuple(found[uid] for uid in sorted(found))

    def nodes(self) -> Iterator[str]:
        """Names of the nodes whose inventory is known."""
        return iter(self._nodes)

    def gpus(self, node: str) -> tuple[Gpu, ...] | None:
        """A node's inventory, by index; ``None`` where nothing is known of it, which is not the same as no GPU."""
        found = self._nodes.get(node)
        return None if found is None else tuple(sorted(found.values(), key=lambda gpu: (gpu.index, gpu.uuid)))

    def holders(self, uuid: str) -> Mapping[str, int]:
        """Milli of a GPU held by each pod, by uid."""
        return self._holders.get(uuid, _NOBODY)

    def free(self, uuid: str) -> int:
        """Milli of a GPU that nobody holds; 0 where records contradict each other and more than all is held."""
        return max(0, MILLI_PER_GPU - sum(self.holders(uuid).values()))

    def line(self, node: str) -> tuple[PodState, ...]:
        """Who is owed something, next first: priority, then ticket."""
        waiting = (pod for pod in self.pods(node) if pod.ticket is not None and not pod.gone)
        return tuple(sorted(waiting, key=lambda pod: pod.rank))


def _discard(index: dict[str, dict[str, PodState]] | dict[str, dict[str, int]], key: str, uid: str) -> None:
    index[key].pop(uid)
    if not index[key]:
        del index[key]
