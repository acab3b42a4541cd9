"""The known nodes and pods, and which part of each GPU is free: a change costs the same in a cluster of any size.

The free part of a GPU is what no pod holds of it, see `pod_state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jupyter_gpu.model.annotations import PREFIX
from jupyter_gpu.model.demand import HeldMemory
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.gpu_kind import GpuKind, gpu_kind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .books import free_memory
from .changes import Changes
from .fastest import Fastest
from .line import Line
from .memos import Memos
from .pod_state import PodKind, PodState
from .taints import Taint
from .tickets import Tickets

CPU = "cpu"
"""Name of a resource in `NodeFacts` and `PodState.asks`, as in Kubernetes; in thousandths of a core."""
MEMORY = "memory"
"""The same for memory, in bytes."""
DISK = "ephemeral-storage"
"""The same for ephemeral storage, in bytes."""
SLOT = PREFIX + "slot"
"""The same for slots; a pod needs one so that its GPUs can be changed."""

_NO_HOLDERS: Mapping[str, int] = MappingProxyType({})
_NO_MEMORY: Mapping[str, HeldMemory] = MappingProxyType({})
_NO_LINES: Mapping[PodKind, Line] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a node, beside its GPUs, that placement may use; all from the API."""

    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Amounts by resource: ``cpu`` in milli, ``memory`` and ``ephemeral-storage`` in bytes, ``jupyter-gpu.io/slot``."""
    used: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Requests of the pods on it, by the same names; slots of pods in the snapshot are counted there anyway."""
    schedulable: bool = True
    """Whether it takes new pods; False: cordoned, and the pods it has go on."""
    network: float | None = None
    """Share of its network that is in use, 0 to 1; ``None``: not known."""
    ready: bool = True
    """Whether its kubelet reports that it is ready; also where nothing is reported."""
    speed: int | None = None
    """Speed of its uplink in Mbit/s; ``None``: not known."""
    busy: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Parts of ``cpu``, ``memory`` and ``ephemeral-storage`` that are really in use, 0 to 1; not in it: not known."""
    taints: frozenset[Taint] = frozenset()
    """Taints that keep out pods which do not tolerate them."""
    outside: frozenset[str] = frozenset()
    """UUIDs of its GPUs that outside processes use, which were not granted them: they are given last."""


@dataclass(slots=True)
class _Node:
    gpus: tuple[Gpu, ...]
    facts: NodeFacts


class ClusterSnapshot:
    """The nodes with their GPUs, the pods with their shares, and the holders of each GPU. No I/O; not thread-safe.

    Nodes and pods may come in any order: a pod may be known before its node is. ``priorities``: of single GPUs by
    uuid, 0 to 9, from the settings; ``lends``: whether GPUs that rest may have guests; ``parks``: whether what rests is
    parked for pods that wait.
    """

    def __init__(
        self, priorities: Mapping[str, int] = _NO_HOLDERS, *, lends: bool = False, parks: bool = False
    ) -> None:
        self._priorities = priorities
        self.lends = lends
        self.parks = parks
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, PodState] = {}
        self._by_node: dict[str, dict[str, PodState]] = {}  # "" holds the pending ones
        self._pending = Line()
        self._nominated: dict[str, Line] = {}
        self._kinds: dict[PodKind, Line] = {}  # of those in line
        self._kinds_at: dict[str, dict[PodKind, Line]] = {}  # the same by the node that they are nominated to
        self._holders: dict[str, dict[str, int]] = {}  # uuid → uid → milli
        self._memory: dict[str, dict[str, HeldMemory]] = {}  # the same of memory, only where a share records it
        self._owned: dict[Owner, dict[str, PodState]] = {}
        self._owner_holds: dict[Owner, int] = {}
        self._owner_claims: dict[Owner, int] = {}
        self._workers_hold: dict[str, int] = {}  # uid of a notebook → milli
        self._unserved: dict[Owner, dict[str, PodState]] = {}  # pods that wish more than they have
        self._homes: dict[str, set[str]] = {}  # uuid → nodes
        self._gpu_kinds: Counter[GpuKind] = Counter()
        self._fastest = Fastest()
        self._claimed_twice: set[str] = set()
        self._tickets = Tickets()
        self.changes = Changes()
        """Changes of nodes, for indexes to read; "" stands for pods in no line."""
        self._memos = Memos()
        self._gpu_memos = Memos()

    # --- changes --------------------------------------------------------------------------------------------------

    def put_node(self, name: str, gpus: tuple[Gpu, ...], facts: NodeFacts | None = None) -> None:
        """Add or replace a node's inventory and what else is known of it."""
        node = _Node(tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))), facts or NodeFacts())
        before = self._nodes.get(name)
        if before == node:
            return
        self._leave_homes(name, before)
        if before is None or before.gpus != node.gpus:
            self._gpu_memos.drop(name)
        self._nodes[name] = node
        if self._fastest.put(name, gpus):
            self._forget_answers()
        for gpu in gpus:
            self._gpu_kinds[gpu_kind(gpu)] += 1
            self._homes.setdefault(gpu.uuid, set()).add(name)
            if len(self._homes[gpu.uuid]) > 1:
                self._claimed_twice.add(gpu.uuid)
        self._changed(name)

    def _leave_homes(self, name: str, node: _Node | None) -> None:
        for gpu in node.gpus if node else ():
            kind = gpu_kind(gpu)
            self._gpu_kinds[kind] -= 1
            if not self._gpu_kinds[kind]:
                del self._gpu_kinds[kind]
            self._homes[gpu.uuid].discard(name)
            if len(self._homes[gpu.uuid]) < 2:
                self._claimed_twice.discard(gpu.uuid)
            if not self._homes[gpu.uuid]:
                del self._homes[gpu.uuid]

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods stay known until they are removed, and nothing is decided for them."""
        self._leave_homes(name, self._nodes.pop(name, None))
        if self._fastest.put(name, ()):
            self._forget_answers()
        self._gpu_memos.drop(name)
        self._memos.drop(name)
        self.changes.remove(name)

    def put_pod(self, pod: PodState) -> None:
        """Add or replace a pod."""
        if self._pods.get(pod.uid) == pod:
            return
        self.remove_pod(pod.uid)
        self._pods[pod.uid] = pod
        self._by_node.setdefault(pod.node, {})[pod.uid] = pod
        if pod.pending:
            for index, key in self._lines(pod):
                index.setdefault(key, Line()).add(pod.rank)
            self._pending.add(pod.rank)
        if pod.ticket is not None:
            self._tickets.take(pod.ticket)
        held = pod.held
        for uuid, milli in held.items():
            self._holders.setdefault(uuid, {})[pod.uid] = milli
        for uuid, memory in pod.held_memory.items():
            self._memory.setdefault(uuid, {})[pod.uid] = memory
        self._owned.setdefault(pod.owner, {})[pod.uid] = pod
        self._owner_holds[pod.owner] = self._owner_holds.get(pod.owner, 0) + pod.holds
        self._owner_claims[pod.owner] = self._owner_claims.get(pod.owner, 0) + pod.claimed
        if pod.notebook and pod.holds:
            self._workers_hold[pod.notebook] = self._workers_hold.get(pod.notebook, 0) + pod.holds
        if pod.lacks_gpus:
            self._unserved.setdefault(pod.owner, {})[pod.uid] = pod
        self._touched(pod)

    def show(self, pod: PodState) -> None:
        """Replace a pod where only what it shows its user is new: no decision but its own record follows from that."""
        self._pods[pod.uid] = self._by_node[pod.node][pod.uid] = self._owned[pod.owner][pod.uid] = pod
        if pod.lacks_gpus:
            self._unserved[pod.owner][pod.uid] = pod

    def remove_pod(self, uid: str) -> None:
        """Forget a pod and free all that it held; an unknown pod is no error."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        held = pod.held
        for uuid in held:
            _discard(self._holders, uuid, uid)
        for uuid in pod.held_memory:
            _discard(self._memory, uuid, uid)
        _discard(self._by_node, pod.node, uid)
        self._leave_owner(pod)
        if pod.pending:
            self._pending.remove(pod.rank)
            for index, key in self._lines(pod):
                index[key].remove(pod.rank)
                if not index[key]:
                    del index[key]
            if not self._kinds_at.get(pod.nominated, True):
                del self._kinds_at[pod.nominated]
        if pod.ticket is not None:
            self._tickets.give_back(pod.ticket)
        self._touched(pod)

    def _leave_owner(self, pod: PodState) -> None:
        _discard(self._owned, pod.owner, pod.uid)
        if pod.lacks_gpus:
            _discard(self._unserved, pod.owner, pod.uid)
        self._owner_holds[pod.owner] -= pod.holds
        self._owner_claims[pod.owner] -= pod.claimed
        if pod.owner not in self._owned:
            del self._owner_holds[pod.owner], self._owner_claims[pod.owner]
        if pod.notebook and pod.holds:
            self._workers_hold[pod.notebook] -= pod.holds
            if not self._workers_hold[pod.notebook]:
                del self._workers_hold[pod.notebook]

    def _lines(self, pod: PodState) -> Iterator[tuple[dict[Any, Line], PodKind]]:
        """Yield the lines that a pending pod stands in: by which index and key."""
        if pod.nominated:
            yield self._nominated, pod.nominated
        if pod.ticket is not None and not pod.gone:
            kind = pod.kind
            yield self._kinds, kind
            yield self._kinds_at.setdefault(pod.nominated, {}), kind

    def _touched(self, pod: PodState) -> None:
        for name in {pod.node, pod.nominated}:
            self._changed(name)

    def _forget_answers(self) -> None:
        """Forget what was computed for all nodes: they are rated against a GPU that came or went."""
        for name in self._nodes:
            self._gpu_memos.drop(name)
            self._changed(name)

    def _changed(self, node: str) -> None:
        self.changes.put(node)
        self._memos.drop(node)

    # --- pods -----------------------------------------------------------------------------------------------------

    def pod(self, uid: str) -> PodState | None:
        """Return one pod; ``None`` if it is not known."""
        return self._pods.get(uid)

    def pods(self, node: str) -> tuple[PodState, ...]:
        """Return the pods of a node, by uid; without those that are only nominated to it."""
        found = self._by_node.get(node, {})
        return tuple(found[uid] for uid in sorted(found))

    def pending(self) -> tuple[PodState, ...]:
        """Return the pods that have no node yet, next first: in line or not."""
        return tuple(map(self._pods.__getitem__, self._pending))

    def nominated(self, node: str) -> tuple[PodState, ...]:
        """Return the pending pods that stand in the line of a node, next first."""
        return tuple(map(self._pods.__getitem__, self._nominated.get(node, ())))

    def kinds(self, node: str | None = None) -> Mapping[PodKind, Line]:
        """Return pending pods with a ticket, by kind; with ``node`` those nominated there, with "" those nowhere."""
        return self._kinds if node is None else self._kinds_at.get(node, _NO_LINES)

    def line(self, node: str) -> tuple[PodState, ...]:
        """Return the pods that are owed something, next first: priority, then ticket; nominated pending pods too."""
        pods = (*self._by_node.get(node, {}).values(), *self.nominated(node))
        waiting = (pod for pod in pods if pod.ticket is not None and not pod.gone)
        return tuple(sorted(waiting, key=lambda pod: pod.rank))

    @property
    def last_ticket(self) -> int:
        """The highest ticket of any pod in the cluster, 0 where there is none."""
        return self._tickets.last

    # --- owners ---------------------------------------------------------------------------------------------------

    def owners(self) -> Iterator[Owner]:
        """Yield the owners of the known pods."""
        return iter(self._owned)

    def owned(self, owner: Owner) -> tuple[PodState, ...]:
        """Return the pods of an owner on all nodes and on none, by uid."""
        found = self._owned.get(owner, {})
        return tuple(found[uid] for uid in sorted(found))

    def holds(self, owner: Owner) -> int:
        """Return the milli that all pods of an owner hold: allocated, attached or draining."""
        return self._owner_holds.get(owner, 0)

    def claims(self, owner: Owner) -> int:
        """Return the milli that all pods of an owner hold or wish, each whichever is more."""
        return self._owner_claims.get(owner, 0)

    @property
    def workers_hold(self) -> Mapping[str, int]:
        """The milli that the workers of each notebook hold, by its uid; only where they hold some."""
        return self._workers_hold

    def unserved(self, owner: Owner) -> tuple[PodState, ...]:
        """Return the pods of an owner that wish more than they have, by uid."""
        found = self._unserved.get(owner)
        return tuple(found[uid] for uid in sorted(found)) if found else ()

    # --- nodes ----------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[str]:
        """Return the names of the nodes whose inventory is known."""
        return iter(self._nodes)

    def gpus(self, node: str) -> tuple[Gpu, ...] | None:
        """Return a node's inventory, by index; ``None`` where it is not known, which is not the same as no GPU."""
        found = self._nodes.get(node)
        return None if found is None else found.gpus

    def gpu_kinds(self, node: str = "") -> Collection[GpuKind]:
        """Return the kinds of GPUs of a node; without ``node`` those of all nodes."""
        if not node:
            return self._gpu_kinds.keys()
        return {gpu_kind(gpu) for gpu in self.gpus(node) or ()}

    def priority(self, uuid: str) -> int | None:
        """Return the priority of a GPU, 0 to 9; ``None``: the settings do not name it."""
        return self._priorities.get(uuid)

    def pace(self, gpu: Gpu) -> int:
        """Return the compute of a GPU in thousandths of that of the cluster's fastest one; 1000 if it is not known."""
        return self._fastest.pace(gpu)

    def facts(self, node: str) -> NodeFacts:
        """Return the other facts known of a node."""
        found = self._nodes.get(node)
        return found.facts if found else NodeFacts()

    def slots_taken(self, node: str) -> int:
        """Return the number of a node's taken slots: by the pods known here or by its facts, whichever is more."""
        known = sum(pod.slots for pod in self._by_node.get(node, {}).values() if not pod.gone)
        return max(known, self.facts(node).used.get(SLOT, 0))

    def homes(self, uuid: str) -> tuple[str, ...]:
        """Return the nodes that report a GPU; more than one is an error."""
        return tuple(sorted(self._homes.get(uuid, ())))

    def claimed_twice(self) -> tuple[str, ...]:
        """Return the GPUs that several nodes report."""
        return tuple(sorted(self._claimed_twice))

    # --- shares ---------------------------------------------------------------------------------------------------

    def holders(self, uuid: str, node: str | None = None) -> Mapping[str, int]:
        """Return the milli of a GPU held by each pod, by uid; with ``node`` of that node's GPU, by its own pods.

        A GPU belongs to its node: a record of a pod on another node means another GPU, or is wrong.
        """
        found = self._holders.get(uuid, _NO_HOLDERS)
        if node is None or all(self._pods[uid].node == node for uid in found):
            return found
        return {uid: milli for uid, milli in found.items() if self._pods[uid].node == node}

    def free(self, uuid: str, node: str | None = None) -> int:
        """Return the free milli of a GPU; 0 where records contradict each other and more than all is held."""
        left = MILLI_PER_GPU
        for uid, milli in self._holders.get(uuid, _NO_HOLDERS).items():  # as `holders`, with nothing made: asked often
            if node is None or self._pods[uid].node == node:
                left -= milli
        return max(0, left)

    @property
    def recorded_memory(self) -> Set[str]:
        """The uuids of the GPUs of which any share records its memory."""
        return self._memory.keys()

    def memory_held(self, uuid: str, node: str | None = None) -> Mapping[str, HeldMemory]:
        """Return the memory of a GPU that pods hold, as `holders` does for milli; only where a share records it."""
        found = self._memory.get(uuid, _NO_MEMORY)
        if node is None or not found:
            return found
        return {uid: memory for uid, memory in found.items() if self._pods[uid].node == node}

    def free_memory(self, gpu: Gpu, node: str | None = None) -> int | None:
        """Return the free bytes of a GPU, below 0 where more than all is held; ``None``: no share records its memory.

        Then the free bytes are those that go with the free milli.
        """
        recorded = self.memory_held(gpu.uuid, node)
        return free_memory(gpu.memory, self.holders(gpu.uuid, node), recorded) if recorded else None

    def contested(self, node: str) -> tuple[str, ...]:
        """Return the GPUs of a node of which more than all is held: records that contradict each other."""
        return tuple(gpu.uuid for gpu in self.gpus(node) or () if self._is_contested(gpu, node))

    def _is_contested(self, gpu: Gpu, node: str) -> bool:
        if sum(self.holders(gpu.uuid, node).values()) > MILLI_PER_GPU:
            return True
        return gpu.uuid in self._memory and (self.free_memory(gpu, node) or 0) < 0

    def version(self, node: str) -> int:
        """Return a number that changes whenever anything changed on a node or in its line."""
        return self.changes.version(node)

    # --- cached answers -------------------------------------------------------------------------------------------

    def memo(self, question: Hashable) -> dict[str, Any]:
        """Return the cached answers to one question, by node. The caller adds them; a node's change drops its answer.

        An answer may depend on nothing but the question and that node.
        """
        return self._memos.of(question)

    def gpu_memo(self, question: Hashable) -> dict[str, Any]:
        """Return the cached answers to one question that follow from inventories alone: no pod drops them.

        Such an answer may depend on the cluster's fastest GPU, too.
        """
        return self._gpu_memos.of(question)


def _discard(index: dict[Any, dict[str, Any]], key: Any, uid: str) -> None:
    index[key].pop(uid)
    if not index[key]:
        del index[key]
