"""The state of one pod as decisions see it: its wish, what was decided for it, and what it holds.

Milli held on a GPU by a pod = max(allocated, attached, draining) there, and so is the memory that it holds: a share is
taken from the moment it is decided until its device is proven closed.

A pod without a node is *pending*: it holds nothing. If it waits for GPUs it is *nominated* to one node and stands in
that node's line; ticket and nomination are in its own ``allocated``, so they outlive this process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish, held
from jupyter_gpu.model.demand import HeldMemory, held_memory, part
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.limits.owner import Owner

from .line import Rank
from .offers import OfferedNodes
from .parked import Parkable, ParkedPart, parked_part
from .permitted import permitted
from .slots_copied import copier
from .standing import OwnerStanding, next_amount
from .taints import Toleration

if TYPE_CHECKING:
    from jupyter_gpu.model.limits.pod_limit import PodLimit

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
_NO_HELD: Mapping[str, int] = MappingProxyType({})
_NO_MEMORY: Mapping[str, HeldMemory] = MappingProxyType({})


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
    tolerations: frozenset[Toleration] = frozenset()
    """Its tolerations of nodes' taints, which its workers have, too."""
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
    notebook: str = ""
    """The uid of the pod whose worker it is: what it wishes is a part of that pod's wish; empty: it is no worker."""
    most_here: int | None = None
    """The most milli that its node can ever serve, where other nodes may serve the rest; ``None``: all or nothing."""
    anywhere: bool = False
    """Whether it may get a node while another node gives it the GPUs, by a worker; false once it has a node."""
    standing: OwnerStanding | None = None
    """The standing of its owner, while it waits in a fair line; ``None``: tickets alone decide."""
    lends_by_wish: bool = False
    """Whether its wish says if its whole GPUs may have guests: GPUs are lent, and no limit says it."""
    parkable: tuple[Parkable, ...] = ()
    """Bundles that may be parked for other pods now, see `rules.parking.candidates`."""
    parked: ParkedPart | None = field(init=False, default=None, repr=False, compare=False)
    """The part of it that is parked; ``None``: nothing."""
    wanted: Wish | None = field(init=False, repr=False, compare=False)
    """Its user's wish without what is parked and not needed; ``None`` where there is none."""
    rank: Rank = field(init=False, repr=False, compare=False)
    """Sorts pods into the order in which they are served: priority, then ticket, then age; in a fair line see
    `standing`."""

    # Computed once, as all pods of an owner are asked at each change of one of them.
    _has: int | None = field(init=False, default=None, repr=False, compare=False)
    _holds: int | None = field(init=False, default=None, repr=False, compare=False)
    _claimed: int | None = field(init=False, default=None, repr=False, compare=False)
    _held: Mapping[str, int] | None = field(init=False, default=None, repr=False, compare=False)
    _held_memory: Mapping[str, HeldMemory] | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the rank once: a pod is compared with many others."""
        wish = self.requested.wish if self.requested is not None else None
        if self.attached is not None and self.attached.parked:
            parked = parked_part(self.attached)
            object.__setattr__(self, "parked", parked)
            wish = parked.left_of(wish, () if self.allocated is None else self.allocated.shares) if wish else None
        object.__setattr__(self, "wanted", wish)
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
        """The wish that its node serves: the user's, as far as the allowance permits; ``None`` where there is none."""
        if self.most_here is not None and (wish := self.permitted):
            return permitted(wish, self.most_here)
        if self.wanted is None or self.allowance is None:  # as in `permitted`, for speed
            return self.wanted
        return permitted(self.wanted, self.allowance)

    @property
    def permitted(self) -> Wish | None:
        """The wish as far as the allowance permits, whichever node can serve it; ``None`` where there is none."""
        if self.wanted is None or self.allowance is None:
            return self.wanted
        return permitted(self.wanted, self.allowance)

    @property
    def preemptible(self) -> bool:
        """Whether it runs on GPUs that others do not use, and gives them back when another pod waits."""
        return self.requested is not None and self.requested.extra.get(PREEMPTIBLE) is True

    @property
    def lendable(self) -> bool | None:
        """Whether its whole GPUs may have guests, as its panel shows it; ``None``: its wish does not say that."""
        return bool(self.requested and self.requested.wish.lent) if self.lends_by_wish else None

    @property
    def cut(self) -> bool:
        """Whether the allowance permits less than its user wishes."""
        wish, wanted = self.permitted, self.wanted
        return wish is not None and wanted is not None and wish.milli < wanted.milli

    @property
    def kind(self) -> PodKind:
        """All that decides which nodes can serve it while it is pending, apart from its rank and its node's line."""
        asks, selector = frozenset(self.asks.items()), frozenset(self.selector.items())
        wish = (self.wish, self.model_allowances) if self.model_allowances else self.wish
        may = (self.limit, bool(self.fault), self.anywhere, self.preemptible)
        return (wish, self.slots, *may, asks, selector, self.offered)

    @property
    def waits(self) -> bool:
        """Whether it is in line, or may be once its newest wish, or an allowance that was raised, is decided."""
        if self.gone or self.requested is None:
            return False
        if self.allocated is None or self.allocated.ticket is not None:
            return True
        if self.allocated.reason is Reason.LIMIT_EXCEEDED and self.wish and self.wish.milli > self.has:
            return True
        return self.undecided

    @property
    def undecided(self) -> bool:
        """Whether its newest wish is not decided yet."""
        wish, decided = self.requested, self.allocated
        return wish is not None and (decided is None or decided.observed_generation != wish.generation)

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
        """Milli that its user wishes in all, whatever is permitted, without what is parked and not needed.

        Nothing more is given to a pod that is gone.
        """
        return self.wanted.milli if self.wanted and not self.fault and not self.gone else 0

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
            known = held(None if self.finished else self.allocated, self.attached) if self.node else _NO_HELD
            object.__setattr__(self, "_held", known)
        return known

    @property
    def held_memory(self) -> Mapping[str, HeldMemory]:
        """Memory held by uuid, only where a share records it; nothing while it is pending."""
        known: Mapping[str, HeldMemory] | None = self._held_memory
        if known is None:
            decided = None if self.finished else self.allocated
            known = held_memory(decided, self.attached) if self.node else _NO_MEMORY
            object.__setattr__(self, "_held_memory", known)
        return known

    def memory_held(self, gpu: Gpu) -> int:
        """Return the bytes of a GPU that it holds in the books."""
        recorded = self.held_memory.get(gpu.uuid)
        return recorded.booked(gpu.memory) if recorded else part(gpu.memory, self.held.get(gpu.uuid, 0))

    def with_shares(self, shares: tuple[GpuShare, ...]) -> PodState:
        """Return the pod once these shares are decided: what it loses stays held until its node has closed it."""
        return replace(self, allocated=(self.allocated or Allocated(0)).with_shares(shares, self.attached))

    def settled(self) -> PodState:
        """Return the pod without the shares that were parked since they were decided: they are closed already."""
        parked, decided = self.parked, self.allocated
        if parked is None or decided is None or all(share.uuid not in parked.away for share in decided.shares):
            return self
        return replace(self, allocated=replace(decided, shares=parked.others(decided.shares)))

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
