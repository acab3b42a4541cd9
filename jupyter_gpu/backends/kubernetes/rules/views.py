"""The view that a pod's user sees, made from the pod's JSON, its node's GPUs and their holders; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_gpu.backends.kubernetes.settings import Settings
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    SERVICE,
    Allocated,
    Attached,
    Requested,
    Wish,
    decode_allocated,
    decode_attached,
    decode_requested,
)
from jupyter_gpu.model.annotations import record as next_request
from jupyter_gpu.model.cards import cards
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu.model.gpu_kind import gpu_kinds
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.quantity import MAX_MILLI, MILLI_PER_GPU
from jupyter_gpu.model.status import status
from jupyter_gpu.model.view import Condition, Mode, View, steps

from . import conditions, event_texts

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from .workers import Workers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """The node as its plugin describes it."""

    name: str
    simulated: bool
    gpus: tuple[Gpu, ...]
    unenforced: str = ""
    """Why time shares of this pod are only counted; empty: they are enforced."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Why the pod's share of a GPU was taken away, by uuid."""


@dataclass(frozen=True, slots=True)
class Records:
    """The annotations of a pod, with a condition for each that could not be read."""

    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None
    problems: tuple[Condition, ...] = ()
    workers: Workers | None = None
    """The parts that other nodes serve; ``None``: the scheduler has said nothing of that."""

    @property
    def generation(self) -> int:
        """Generation of the recorded request; 0 if it was written by hand."""
        return self.requested.generation if self.requested else 0

    @property
    def newest(self) -> int:
        """The highest generation on record: a request that was written by hand hides the one before."""
        seen = [item.observed_generation for item in (self.allocated, self.attached) if item]
        return max([self.generation, *seen])


def read(pod: Mapping[str, Any] | None) -> Records:
    """Read the annotations of ``pod``. One that cannot be read counts as absent and gives a condition."""
    problems: list[Condition] = []

    def one(key: str, decode: Callable[[str], T], problem: Callable[[str], Condition]) -> T | None:
        value, why = objects.decoded(pod, key, decode)
        if why:
            problems.append(problem(why))
        return value

    found = read_workers(pod)
    requested = one(REQUESTED, decode_requested, conditions.request_unreadable)
    allocated = one(ALLOCATED, decode_allocated, conditions.state_unreadable)
    attached = one(ATTACHED, decode_attached, conditions.state_unreadable)
    if allocated and allocated.limit:
        allocated = replace(allocated, limit=allocated.limit.together())
    return Records(requested, allocated, attached, tuple(problems), found)


def read_workers(pod: Mapping[str, Any] | None) -> Workers | None:
    """Read the parts that other nodes serve; ``None``: the scheduler has said nothing of that."""
    if objects.annotation(pod, SERVICE) is None:
        return None
    from . import workers

    return workers.read(pod)


def advance(records: Records, wish: Wish, highest: int = 0, *, anew: bool = False) -> Requested:
    """Return ``wish`` as the next generation; the same wish again changes nothing, unless ``anew``.

    After a request that was written by hand (generation 0), the count continues from the ``highest`` that was ever
    seen.
    """
    previous = records.requested
    after = next_request(previous, wish)
    if after is previous and not anew:
        return after
    return replace(after, generation=max(records.newest, highest) + 1)


def candidates(wish: Wish, node: Node | None, workers: Workers | None = None) -> tuple[Gpu, ...] | None:
    """Return the GPUs that may serve ``wish``; ``None`` if not all of them are known, so that only the scheduler can
    refuse.

    That is so while the ``node`` has not answered, and for a wish that other nodes may serve: where the pod has or had
    ``workers``, each wish that does not say ``local``.
    """
    anywhere = wish.placement == "any" or (wish.placement is None and workers is not None)
    return None if node is None or anywhere else node.gpus


def answered(records: Records, generation: int) -> bool:
    """Tell whether cluster and node have done all that can be done now for the request of this generation.

    A worker that is not there yet takes longer than a request waits.
    """
    if records.generation != generation:
        return records.generation > generation  # another request followed
    allocated, attached = records.allocated, records.attached
    given = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
    usable = {share.uuid: share.milli for share in attached.shares} if attached else {}
    if allocated is None or allocated.observed_generation != generation:
        # A request for nothing needs no answer if nothing is held.
        wanted = records.requested.milli if records.requested else 0
        return not (wanted or given or usable or (attached and attached.draining))
    workers = records.workers.known if records.workers else ()
    if given != usable or any(worker.attaching for worker in workers):
        return False
    # A draining GPU is waited for until it is closed, or until its holders are known.
    return all(item.holders for item in attached.draining) if attached else True


@dataclass(frozen=True, slots=True)
class KnownState:
    """All that is known at one moment."""

    instance: str
    pod: Mapping[str, Any] | None = None
    """The last known state."""
    gone: bool = False
    """Whether the cluster said that there is no such pod any more."""
    node: Node | None = None
    holders: Mapping[str, tuple[Holder, ...]] | None = None
    """Holders by the last scan; ``None`` before the first."""
    events: tuple[Mapping[str, Any], ...] = ()
    node_trouble: str = ""
    cluster_trouble: str = ""
    silent: frozenset[tuple[str, str]] = frozenset()
    """Id and stage of each worker of which nothing was heard for too long."""


def compose(version: int, state: KnownState, settings: Settings) -> View:
    """Compose the view of this moment."""
    records = read(state.pod)
    gpus = state.node.gpus if state.node else ()
    workers = records.workers.known if records.workers else ()
    elsewhere = _elsewhere(records)
    total = min(MAX_MILLI, len(gpus) * MILLI_PER_GPU + (elsewhere or 0))
    of_user = records.allocated.limit if records.allocated else None
    own = (settings.limit, of_user.milli if of_user else None)
    limit = min([total, *(milli for milli in own if milli is not None)])
    now = status(records.requested, records.allocated, records.attached, workers)
    kinds, others = gpu_kinds(gpus), records.workers.kinds if records.workers else ()
    return View(
        instance=state.instance,
        version=version,
        mode=Mode.ENFORCED,
        simulated=bool(state.node and state.node.simulated),
        backend="kubernetes",
        total=total,
        limit=limit,
        steps=steps(limit, settings.fractions, () if elsewhere and not others else (*kinds, *others)),
        requested=records.requested,
        allocated=records.allocated,
        attached=records.attached,
        gpus=cards(records.allocated, records.attached, {gpu.uuid: gpu for gpu in gpus}, state.holders or {}),
        conditions=(
            *_of_cluster(state),
            *_of_limit(of_user, now.allocated),
            *records.problems,
            *_of_workers(records.workers, state.silent),
            *_of_node(state, elsewhere or 0),
            *_of_shares(records, state.node),
            *event_texts.conditions(state.events, now.phase),
        ),
        workers=workers,
        elsewhere=elsewhere,
        kinds=kinds,
        lendable=records.allocated.lendable if records.allocated and any(kind.gate for kind in kinds) else None,
        kinds_elsewhere=others,
    )


def _elsewhere(records: Records) -> int | None:
    """Return the milli of other nodes; the scheduler says nothing of them to a pod that always wished for its own."""
    if records.workers:
        return records.workers.elsewhere
    return 0 if records.requested and records.requested.wish.placement == "local" else None


def _of_cluster(state: KnownState) -> Iterator[Condition]:
    if state.gone:
        yield conditions.gone()
    elif objects.deleting(state.pod):
        yield conditions.ending()
    if state.cluster_trouble:
        yield conditions.cluster_unreachable(state.cluster_trouble)


def _of_limit(limit: PodLimit | None, milli: int) -> Iterator[Condition]:
    if limit is None:
        return
    from jupyter_gpu.model.limit_words import lowered_condition  # many clusters have no limits

    if found := lowered_condition(limit, milli):
        yield found


def _of_workers(found: Workers | None, silent: frozenset[tuple[str, str]]) -> Iterator[Condition]:
    if found is None:
        return
    from . import workers

    yield from found.problems
    yield from workers.troubles(found.known, silent)
    yield from workers.still_open(found)


def _of_node(state: KnownState, elsewhere: int) -> Iterator[Condition]:
    if state.node_trouble:
        yield conditions.node_unreachable(state.node_trouble)
    if state.node is None:
        if not state.node_trouble:
            yield conditions.not_answered()
    elif not state.node.gpus:
        if not elsewhere:
            yield conditions.no_gpu()
    elif state.node.simulated:
        yield conditions.simulated(len(state.node.gpus))


def _of_shares(records: Records, node: Node | None) -> Iterator[Condition]:
    shares: Iterable[Any] = records.allocated.shares if records.allocated else ()
    if node and node.unenforced and any(not share.exclusive for share in shares):
        yield conditions.share_not_enforced(node.unenforced)
    if node:
        yield from (conditions.share_taken(why) for why in sorted(set(node.taken.values())))
