"""The known nodes and pods, and which part of each GPU is free: a change costs the same in a cluster of any size.

Milli held on a GPU by a pod = max(allocated, attached, draining) there: a share is taken from the moment it is
decided until its device is proven closed. What is free is the rest of 1000.

A pod without a node is *pending*: it holds nothing. If it waits for GPUs it is *nominated* to one node and stands in
that node's line; ticket and nomination are in its own ``allocated``, so they outlive this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jupyter_gpu.model.annotations import PREFIX, Allocated, Attached, Reason, Requested, Wish, held
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .changes import Changes
from .gpu_kinds import GpuKind, gpu_kind
from .line import Line, Rank
from .memos import Memos
from .offers import OfferedNodes
from .permitted import permitted
from .slots_copied import copier
from .standing import OwnerStanding, next_amount
from .tickets import Tickets

if TYPE_CHECKING:
    from jupyter_gpu.model.limits.pod_limit import PodLimit

CPU = "cpu"
"""Name of a resource in `NodeFacts` and `PodState.asks`, as in Kubernetes; in thousandths of a core."""
MEMORY = "memory"
"""The same for memory, in bytes."""
DISK = "ephemeral-storage"
"""The same for ephemeral storage, in bytes."""
SLOT = PREFIX + "slot"
"""The same for slots; a pod needs one so that its GPUs can be changed."""
NOMINATED = "nominated"
"""Key in a pending pod's ``allocated``: the node in whose line it stands."""

PREEMPTIBLE = "preemptible"
"""Key in ``requested``: true for a wish for GPUs that others do not use."""

HIGHEST = 9
"""The highest priority."""

NO_OWNER = Owner("Namespace", "")
"""The owner of a `PodState` that names none."""

PodKind = Hashable
"""A key that is equal for pending pods that differ only in their positions in line; see `PodState.kind`."""

_OVERDUE = (-3, 0, 0)  # in a fair line, pods that have waited too long come before all others, by ticket
_NO_HOLDERS: Mapping[str, int] = MappingProxyType({})
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
    speed: int | None = None
    """Speed of its uplink in Mbit/s; ``None``: not known."""
    outside: frozenset[str] = frozenset()
    """UUIDs of its GPUs that outside processes use, which were not granted them: they are given last."""


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of one pod: its wish, what was decided for it, and what it really has."""

    uid: str
    node: str = ""
    """Empty while it is pending: kube-scheduler has not bound it yet."""
    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None
    limit: int | None = None
    """Milli that its user may have; ``None``: no limit."""
    busy: frozenset[str] = frozenset()
    """UUIDs of GPUs that some process has open now: such shares are given back last, and do not move."""
    resting: frozenset[str] = frozenset()
    """UUIDs of those in ``busy`` that do nothing: such shares are given back before those that work."""
    lacks: frozenset[str] = frozenset()
    """UUIDs of GPUs of its node that it can never use: they came after its containers were created."""
    gone: bool = False
    """Whether it is being deleted or finished: it wants and gets nothing, but holds what it has. While it is being
    deleted its programs run, and what was allocated to it may be opened any moment."""
    finished: bool = False
    """Whether no program of it will ever run again: its ``allocated`` is void, and it holds what its ``attached`` still
    names. A finished pod is ``gone`` too."""
    namespace: str = ""
    name: str = ""
    created: float = 0.0
    """Seconds since the epoch; a pod without a ticket is served by age."""
    slots: int = 1
    """Number of ``jupyter-gpu.io/slot`` its containers ask for."""
    asks: Mapping[str, int] = field(default_factory=dict, hash=False)
    """CPU, memory and disk it asks for, named as in `NodeFacts`: for the score; whether they fit is
    kube-scheduler's job."""
    selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Labels that its node must have: it is nominated to no other."""
    blocked: bool = False
    """Whether it waits for something other than GPUs: then it keeps its ticket, and keeps nothing back."""
    offered: OfferedNodes | None = field(default=None, hash=False)
    """The nodes that kube-scheduler would have taken when it asked last: it is nominated to no other. ``None``: not
    known, as it was not asked for since this process began; then it stays where it is."""
    overdue: bool = False
    """Whether it has waited longer than the patience: then it counts as highest priority, see `aging`."""
    cap: int = HIGHEST
    """The highest priority that its namespace may use."""
    fault: str = ""
    """A sentence on why its wish can't be read. Such a pod gets no node; a running one keeps what it has, as far as its
    allowance permits."""
    owner: Owner = NO_OWNER
    """The user or namespace whose pods a limit counts together."""
    allowance: int | None = None
    """Milli that it may be allocated now, its part of the owner's maximum (`limits.allowances`); ``None``: no limit."""
    model_allowances: tuple[tuple[str, int], ...] = ()
    """The same for GPUs of some models, by words of their names, where its node or the cluster has others, too."""
    pod_limit: PodLimit | None = None
    """The limit in force, which its panel shows: each decision writes it; ``None``: limits are not in use."""
    standing: OwnerStanding | None = None
    """The standing of its owner, while it waits in a fair line; ``None``: tickets alone decide."""
    rank: Rank = field(init=False, repr=False, compare=False)
    """Sorts pods into the order in which they are served: priority, then ticket, then age; in a fair line see
    `standing`."""

    # Computed once, as all pods of an owner are asked at each change of one of them.
    _has: int | None = field(init=False, default=None, repr=False, compare=False)
    _holds: int | None = field(init=False, default=None, repr=False, compare=False)
    _claimed: int | None = field(init=False, default=None, repr=False, compare=False)
    _held: Mapping[str, int] | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the rank once: a pod is compared with many others."""
        object.__setattr__(self, "rank", self.ranked(self.standing, self.has if self.standing else 0))

    def ranked(self, standing: OwnerStanding | None, has: int) -> Rank:
        """Return the rank that the pod would have with this standing of its owner, and with ``has`` milli."""
        ticket, wish = self.ticket, self.wish if standing else None
        order = (0, -self.priority, 0)
        if self.overdue and standing:
            order = _OVERDUE
        elif standing and wish:
            step = max(0, next_amount(wish, has, whole=self.pending) - has)
            order = standing.order(self.priority, step, last=self.preemptible)
        return (*order, ticket is None, ticket or 0, self.created, self.uid)

    @property
    def pending(self) -> bool:
        """Whether it has no node yet."""
        return not self.node

    @property
    def nominated(self) -> str:
        """The node in whose line it stands while it is pending, else empty."""
        if self.node or self.allocated is None or self.allocated.ticket is None:
            return ""
        name = self.allocated.extra.get(NOMINATED)
        return name if isinstance(name, str) else ""

    @property
    def priority(self) -> int:
        """The priority that counts, 0–9: higher is served first."""
        return HIGHEST if self.overdue else min(self.wished_priority, self.cap)

    @property
    def wished_priority(self) -> int:
        """The priority that the pod's user wrote; 0 if none."""
        return (self.requested.wish.priority if self.requested else None) or 0

    @property
    def ticket(self) -> int | None:
        """Its ticket: the number that orders the line; ``None`` where it is not in line."""
        return self.allocated.ticket if self.allocated else None

    @property
    def wish(self) -> Wish | None:
        """The wish that is served: the user's, as far as the allowance permits; ``None`` where there is none."""
        if self.requested is None or self.allowance is None:
            return self.requested.wish if self.requested else None
        return permitted(self.requested.wish, self.allowance)

    @property
    def preemptible(self) -> bool:
        """Whether it runs on GPUs that others do not use, and gives them back when another pod waits."""
        return self.requested is not None and self.requested.extra.get(PREEMPTIBLE) is True

    @property
    def cut(self) -> bool:
        """Whether the allowance permits less than its user wishes."""
        wish = self.wish
        return wish is not None and self.requested is not None and wish.milli < self.requested.milli

    @property
    def kind(self) -> PodKind:
        """All that decides which nodes can serve it while it is pending, apart from its rank and its node's line."""
        asks, selector = frozenset(self.asks.items()), frozenset(self.selector.items())
        wish = (self.wish, self.model_allowances) if self.model_allowances else self.wish
        return (wish, self.slots, self.limit, bool(self.fault), asks, selector, self.offered)

    @property
    def waits(self) -> bool:
        """Whether it is in line, or may be once its newest wish, or an allowance that was raised, is decided."""
        if self.gone or self.requested is None:
            return False
        if self.allocated is None or self.allocated.ticket is not None:
            return True
        if self.allocated.reason is Reason.LIMIT_EXCEEDED and self.wish and self.wish.milli > self.has:
            return True
        return self.allocated.observed_generation != self.requested.generation

    @property
    def has(self) -> int:
        """Milli allocated to it that it can use or keep; none while it is pending, nor once it has finished."""
        known: int | None = self._has
        if known is None:
            known = total(self.allocated.shares) if self.allocated and self.node and not self.finished else 0
            object.__setattr__(self, "_has", known)
        return known

    @property
    def wished(self) -> int:
        """Milli that its user wishes in all, whatever is permitted; nothing more is given to a pod that is gone."""
        return self.requested.milli if self.requested and not self.fault and not self.gone else 0

    @property
    def lacks_gpus(self) -> bool:
        """Whether its user wishes more than it has, permitted or not."""
        return self.wished > self.has

    @property
    def claimed(self) -> int:
        """Milli that it holds or wishes in all, whichever is more."""
        known: int | None = self._claimed
        if known is None:
            known = max(self.holds, self.wished)
            object.__setattr__(self, "_claimed", known)
        return known

    @property
    def holds(self) -> int:
        """Milli that it holds in all, see `held`."""
        known: int | None = self._holds
        if known is None:
            known = sum(self.held.values())
            object.__setattr__(self, "_holds", known)
        return known

    @property
    def held(self) -> Mapping[str, int]:
        """Milli held by uuid, see `held`; nothing while it is pending."""
        known: Mapping[str, int] | None = self._held
        if known is None:
            known = held(None if self.finished else self.allocated, self.attached) if self.node else _NO_HOLDERS
            object.__setattr__(self, "_held", known)
        return known

    def held_with(self, shares: tuple[GpuShare, ...]) -> Mapping[str, int]:
        """Return what it holds once these shares are decided: what it loses stays held until its node has closed it."""
        decided = (self.allocated or Allocated(0)).with_shares(shares, self.attached)
        return replace(self, allocated=decided).held

    def showing(self, limit: PodLimit | None, allocated: Allocated | None) -> PodState:
        """Return the pod with another limit to show, and that limit written or not: all that is computed stays.

        ``allocated`` may differ in nothing else. Several times faster than `replace`, as all pods of an owner change.
        """
        made = _copy(self)
        object.__setattr__(made, "pod_limit", limit)
        object.__setattr__(made, "allocated", allocated)
        return made

    def under(
        self,
        allowance: int | None,
        model_allowances: tuple[tuple[str, int], ...],
        limit: PodLimit,
        standing: OwnerStanding | None,
    ) -> PodState:
        """Return the pod under other terms: what it holds and wishes stays, and so what is computed of that."""
        made = _copy(self)
        object.__setattr__(made, "allowance", allowance)
        object.__setattr__(made, "model_allowances", model_allowances)
        object.__setattr__(made, "pod_limit", limit)
        object.__setattr__(made, "standing", standing)
        if standing or self.standing:  # without, a rank does not follow from terms
            made.__post_init__()
        return made


_copy = copier(PodState, PodState.__slots__)


@dataclass(slots=True)
class _Node:
    gpus: tuple[Gpu, ...]
    facts: NodeFacts


class ClusterSnapshot:
    """The nodes with their GPUs, the pods with their shares, and the holders of each GPU. No I/O; not thread-safe.

    Nodes and pods may come in any order: a pod may be known before its node is.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, PodState] = {}
        self._by_node: dict[str, dict[str, PodState]] = {}  # "" holds the pending ones
        self._pending = Line()
        self._nominated: dict[str, Line] = {}
        self._kinds: dict[PodKind, Line] = {}  # of those in line
        self._kinds_at: dict[str, dict[PodKind, Line]] = {}  # the same by the node that they are nominated to
        self._holders: dict[str, dict[str, int]] = {}  # uuid → uid → milli
        self._owned: dict[Owner, dict[str, PodState]] = {}
        self._owner_holds: dict[Owner, int] = {}
        self._owner_claims: dict[Owner, int] = {}
        self._unserved: dict[Owner, dict[str, PodState]] = {}  # pods that wish more than they have
        self._homes: dict[str, set[str]] = {}  # uuid → nodes
        self._gpu_kinds: Counter[GpuKind] = Counter()
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
        self._owned.setdefault(pod.owner, {})[pod.uid] = pod
        self._owner_holds[pod.owner] = self._owner_holds.get(pod.owner, 0) + pod.holds
        self._owner_claims[pod.owner] = self._owner_claims.get(pod.owner, 0) + pod.claimed
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
        _discard(self._by_node, pod.node, uid)
        _discard(self._owned, pod.owner, uid)
        if pod.lacks_gpus:
            _discard(self._unserved, pod.owner, uid)
        self._owner_holds[pod.owner] -= pod.holds
        self._owner_claims[pod.owner] -= pod.claimed
        if pod.owner not in self._owned:
            del self._owner_holds[pod.owner], self._owner_claims[pod.owner]
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
        return max(0, MILLI_PER_GPU - sum(self.holders(uuid, node).values()))

    def contested(self, node: str) -> tuple[str, ...]:
        """Return the GPUs of a node of which more than all is held: records that contradict each other."""
        uuids = (gpu.uuid for gpu in self.gpus(node) or ())
        return tuple(uuid for uuid in uuids if sum(self.holders(uuid, node).values()) > MILLI_PER_GPU)

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
        """Return the cached answers to one question that follow from inventories alone: no pod drops them."""
        return self._gpu_memos.of(question)


def _discard(index: dict[Any, dict[str, PodState]] | dict[str, dict[str, int]], key: Any, uid: str) -> None:
    index[key].pop(uid)
    if not index[key]:
        del index[key]
