"""The decision about the pod of this server: the scheduler's own rules, over the records of all servers.

Loaded with the first decision, which is made while the server serves already: its start must not wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from jupyter_gpu.model.annotations import Allocated, Requested
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.queue.aging import is_overdue, stamped
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts

from .limits.rules.owner_terms import UserLimits, settle
from .pod_states import states, unknown
from .records.other_pods import NODE, OtherPod
from .records.record import Record


class Decided(NamedTuple):
    """The decision about one pod."""

    allocated: Allocated | None
    """``None``: it never wanted anything."""
    due: float | None = None
    """Seconds since 1970 at which a limit is another one; ``None``: that is not foreseen."""


def decision(
    uid: str,
    record: Record,
    requested: Requested | None,
    *,
    busy: frozenset[str],
    resting: frozenset[str],
    gpus: Collection[Gpu],
    used_outside: frozenset[str],
    other_pods: Iterable[OtherPod],
    unreadable: bool,
    patience: float,
    now: float,
    users: UserLimits | None = None,
) -> Decided:
    """Decide what pod ``uid`` is allocated now that it wants ``requested``.

    ``busy``: uuids that it has open, ``resting``: those of them that do nothing; ``used_outside``: uuids that programs
    of no pod use; ``unreadable``: a pod lives whose record cannot be read, so nothing more is handed out; ``patience``
    and ``now`` in seconds since boot; ``users``: the limits of the pods' users, where there are any.
    """
    overdue = partial(is_overdue, patience=patience, now=now)
    me = PodState(uid, NODE, requested, record.allocated, record.attached, record.limit, busy, resting)
    me = replace(me, overdue=overdue(record.allocated))
    # A GPU that we only have not closed yet is no claim against other pods.
    mine = PodState(uid, NODE, allocated=Allocated(0, record.allocated.shares if record.allocated else ()))
    others = states(other_pods, mine, gpus, overdue)
    snapshot = ClusterSnapshot()
    snapshot.put_node(NODE, tuple(gpus), NodeFacts(outside=used_outside))
    for pod in (me, *others):
        snapshot.put_pod(pod)
    if unreadable:
        snapshot.put_pod(unknown(tuple(gpus), others, me))
    due = settle(snapshot, users) if users else None
    own = (made.allocated for made in decide(snapshot, NODE) if made.uid == uid)
    after = next(own, record.allocated)
    return Decided(stamped(after, now) if after else None, due)
