"""Decisions for one node: which pods gain or lose which shares now, in which order and why.

One pass (`queue_pass`): what must be given back is given back; then every pod that is owed something is served in line
order (priority, then ticket). New pods that wait for the node stand in the same line; they get nothing before they are
bound, but what they could use is kept back from those behind them.

Decisions are a function of the snapshot alone. Once they are applied, deciding again changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from types import MappingProxyType

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu.model.quantity import MILLI_PER_GPU, count_gpus, format_bytes, format_gpus
from jupyter_gpu_scheduler.rules.parking.orders import Orders, park_orders
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .fit_cache import has_room
from .gains import with_had
from .positions import shown_position
from .queue_pass import STEP, QueuePass

_NONE: Orders = MappingProxyType({})
GUEST = " Meanwhile its programs run on a GPU of others while those do nothing."


@dataclass(frozen=True, slots=True)
class Decision:
    """A new ``allocated`` of one pod."""

    uid: str
    allocated: Allocated
    added: tuple[GpuShare, ...] = ()
    """Shares that were not there before; a share that changes its size is both added and removed."""
    removed: tuple[GpuShare, ...] = ()

    @classmethod
    def between(cls, pod: PodState, after: Allocated) -> Decision:
        """Return the step from what ``pod`` was allocated to ``after``."""
        before = pod.allocated.shares if pod.allocated else ()
        added = tuple(share for share in after.shares if share not in before)
        removed = tuple(share for share in before if share not in after.shares)
        return cls(pod.uid, after, added, removed)


def only_position(before: Allocated | None, after: Allocated) -> bool:
    """Tell whether only a pod's position in line changed."""
    if before is None or before.position is None or after.position is None:
        return False
    return before != after and before == replace(after, position=before.position)


def decide(snapshot: ClusterSnapshot, node: str) -> tuple[Decision, ...]:
    """Return the changes of ``allocated`` on ``node``: pods that lose first, then pods that gain, in line order.

    Pending pods nominated to ``node`` get their position, and a message when there is room for them. There are no
    decisions for a node that is not known, nor for pods that are gone.
    """
    return _last(decide_in_steps(snapshot, node))


def _last(steps: Generator[None, None, tuple[Decision, ...]]) -> tuple[Decision, ...]:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            decisions: tuple[Decision, ...] = done.value
            return decisions


def decide_in_steps(snapshot: ClusterSnapshot, node: str) -> Generator[None, None, tuple[Decision, ...]]:
    """Decide in steps, as a line may be long. If the node changes between two steps, discard the result."""
    gpus = snapshot.gpus(node)
    if gpus is None:
        return ()
    queue_pass = QueuePass(snapshot, node, gpus, (*snapshot.pods(node), *snapshot.nominated(node)))
    yield from queue_pass.serve_in_steps()
    orders = park_orders(queue_pass.decided(snapshot.holds)) if snapshot.parks else _NONE
    return (yield from _decisions(snapshot, queue_pass, orders))


def as_guest(snapshot: ClusterSnapshot, pod: PodState, node: str) -> Allocated | None:
    """Return what a pending pod would be allocated on a known node if it were there; ``None``: it would be no guest."""
    before = pod.allocated and replace(
        pod.allocated, extra={key: value for key, value in pod.allocated.extra.items() if key != NOMINATED}
    )
    there = replace(pod, node=node, allocated=before, anywhere=False, offered=None)
    others = (each for each in (*snapshot.pods(node), *snapshot.nominated(node)) if each.uid != pod.uid)
    queue_pass = QueuePass(snapshot, node, snapshot.gpus(node) or (), (*others, there))
    queue_pass.serve()
    if not any(share.guest for share in queue_pass.shares[pod.uid]):
        return None
    return next(each.allocated for each in _last(_decisions(snapshot, queue_pass)) if each.uid == pod.uid)


def _decisions(
    snapshot: ClusterSnapshot, queue_pass: QueuePass, orders: Orders = _NONE
) -> Generator[None, None, tuple[Decision, ...]]:
    """Collect the changes, with reasons, positions in line, and the orders to park."""
    decisions = []
    last = 0
    line = 0
    for number, pod in enumerate(queue_pass.pods, start=1):
        if not number % STEP:
            yield
        if pod.pending and pod.uid in queue_pass.refused:
            continue  # another node may serve it: `nominate` knows
        before = pod.allocated or Allocated(0)
        ticket = position = None
        if pod.pending or queue_pass.owed.get(pod.uid) or queue_pass.owed_memory.get(pod.uid):
            line += 1
            position = shown_position(line, before.position)
            if _is_up_to_date(pod, position, queue_pass):
                continue
            ticket = before.ticket
            if ticket is None:
                ticket = last = max(last, snapshot.last_ticket) + 1
        if pod.parked and (known := queue_pass.unsettled.get(pod.uid)):
            # By itself, whatever else it gains or loses: two pods that parked for each other wait for no write.
            decisions.append(Decision.between(known, replace(before, park=orders.get(pod.uid, ()))))
            continue
        reason, message = _reason(snapshot, pod, queue_pass)
        generation = pod.requested.generation if pod.requested else before.observed_generation
        after = replace(
            before.with_shares(() if pod.pending else queue_pass.shares[pod.uid], pod.attached),
            observed_generation=generation,
            reason=reason,
            message=message,
            ticket=ticket,
            position=position,
            limit=pod.pod_limit,
            lendable=pod.lendable,
            park=orders.get(pod.uid, ()),
        )
        after = with_had(before, after, fair=pod.standing is not None)
        if after != pod.allocated and (pod.allocated or pod.requested or pod.pod_limit):
            decisions.append(Decision.between(pod, after))
    return tuple(sorted(decisions, key=lambda decision: (not decision.removed, not decision.added)))


def _is_up_to_date(pod: PodState, position: int, queue_pass: QueuePass) -> bool:
    """Tell whether the record of a pending pod that still lacks GPUs is up to date, as most in a long line are."""
    now = pod.allocated
    return (
        pod.pending
        and now is not None
        and now.position == position
        and now.ticket is not None
        and now.reason is Reason.DEFERRED
        and not now.shares
        and bool(queue_pass.owed.get(pod.uid))
        and pod.requested is not None
        and now.observed_generation == pod.requested.generation
        and now.limit == pod.pod_limit
        and now.lendable is pod.lendable
        and now.message == outlook(pod, room=False)
    )


def _reason(snapshot: ClusterSnapshot, pod: PodState, queue_pass: QueuePass) -> tuple[Reason | None, str]:
    """Return why the pod has less than it wants; by its own state alone, so that changes of others never rewrite it."""
    if pod.pending:
        return Reason.DEFERRED, outlook(pod, room=not queue_pass.owed.get(pod.uid) and has_room(snapshot, pod))
    error = queue_pass.refused.get(pod.uid)
    if error is not None:
        return Reason(error.reason), error.message
    owed = queue_pass.owed.get(pod.uid, 0)
    has = total(queue_pass.shares[pod.uid])
    if not owed and (memory := queue_pass.owed_memory.get(pod.uid)):
        return Reason.PARTIAL, f"{count_gpus(has)}; {format_bytes(memory)} more of memory is owed.{_bounds(pod)}"
    if not owed:
        return (Reason.LIMIT_EXCEEDED, over_limit(pod, has)) if pod.cut or pod.uid in queue_pass.cut else (None, "")
    verb = "is" if owed <= MILLI_PER_GPU else "are"
    if not has:
        meanwhile = GUEST if any(share.guest for share in queue_pass.shares[pod.uid]) else ""
        text = f"{count_gpus(owed)}{_memory(pod)} {verb} owed; not enough is free now.{meanwhile}{_bounds(pod)}"
        return Reason.DEFERRED, text
    more = f"{format_gpus(owed)} more{_memory(pod)} {verb} owed"
    text = f"{format_gpus(has)} of {format_gpus(has + owed)} GPUs; {more}."
    return Reason.PARTIAL, text + _bounds(pod)


def _memory(pod: PodState) -> str:
    """Name the memory that each share of a pod's wish needs; empty where none is wished."""
    wish = pod.wish
    return f" with {format_bytes(wish.memory)} of memory in each share" if wish and wish.memory else ""


def over_limit(pod: PodState, has: int) -> str:
    """Say that a pod, which has ``has`` milli, gets no more of its wish because of its limit."""
    wished = pod.requested.milli if pod.requested else 0
    return f"{format_gpus(has)} of {format_gpus(wished)} GPUs.{_limited(pod)}"


def outlook(pod: PodState, *, room: bool) -> str:
    """Say what a pending pod waits for. The text changes once there is room; that write makes kube-scheduler retry."""
    wanted = count_gpus(pod.wish.milli if pod.wish else 0) + _memory(pod)
    if room:
        return f"There is room for {wanted} on {pod.nominated} now; the pod is about to start."
    return f"Waiting for {wanted} on {pod.nominated}; not enough is free now.{_bounds(pod)}"


def _bounds(pod: PodState) -> str:
    """Explain all that bounds the wish beside room; empty where nothing does."""
    return _capped(pod) + (_limited(pod) if pod.cut else "")


def _limited(pod: PodState) -> str:
    """Explain the limit of a pod that wishes more than its allowance."""
    limit = pod.pod_limit
    if limit is None:
        return " The limit permits no more."
    if limit.max is None:
        return " The rest is for others: it is guaranteed to them, or this server is preemptible."
    return f" Your limit is {count_gpus(limit.max)} for all your servers together, {limit.source.sentence()}."


def _capped(pod: PodState) -> str:
    """Explain the priority to the pod's user where it is capped; empty where it is not."""
    if pod.wished_priority <= pod.cap:
        return ""
    return f" Priority {pod.wished_priority} counts as {pod.cap}, the highest that this namespace may use."
