"""The table of users: what each may have, has and waits for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.model.limits.amount import Amount, amount_key, format_amount
from jupyter_gpu.model.limits.changes import Change, format_time
from jupyter_gpu.model.limits.effective import Effective
from jupyter_gpu.model.limits.limit import Limit, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Source, Sourced

from .index import LimitIndex
from .usage import PodUse


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user of the hub; amounts in milli."""

    name: str
    known: bool
    """Whether the hub knows the user; a limit of a user who was removed or renamed stays."""
    limit: Sourced[Amount]
    guaranteed: Sourced[int]
    pods: tuple[PodUse, ...] = ()
    changed: Change | None = None
    """The newest change of a limit that applies to the user."""
    over_since: float | None = None
    """Seconds since 1970 since when the user has more than the limit; ``None``: has not."""
    used: int = field(init=False)
    """Held by all pods of the user."""
    waiting: int = field(init=False)
    idle: int = field(init=False)
    """Held, and open in no process."""

    def __post_init__(self) -> None:
        """Add up the pods once: the table is sorted by these."""
        for name, value in (
            ("used", sum(pod.milli for pod in self.pods)),
            ("waiting", sum(pod.waiting for pod in self.pods)),
            ("idle", sum(pod.idle for pod in self.pods)),
        ):
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "name": self.name,
            "known": self.known,
            "limit": sourced_json(self.limit),
            "guaranteed": sourced_json(self.guaranteed),
            "used": self.used,
            "waiting": self.waiting,
            "idle": self.idle,
            "overSince": self.over_since,
            "changed": {"by": self.changed.by, "at": format_time(self.changed.at)} if self.changed else None,
        }


SORTS: Mapping[str, Callable[[UserRow], Any]] = {
    "name": lambda row: row.name,
    "limit": lambda row: amount_key(row.limit.value),
    "guaranteed": lambda row: row.guaranteed.value,
    "used": lambda row: row.used,
    "waiting": lambda row: row.waiting,
    "idle": lambda row: row.idle,
    "changed": lambda row: row.changed.at if row.changed else 0,
}
"""The columns of the table by which it can be sorted."""


def rows(
    hub: str,
    users: Iterable[str],
    index: LimitIndex,
    pods: Iterable[PodUse],
    over: Mapping[Owner, float],
) -> list[UserRow]:
    """Return the rows of all users of a hub: those whom it knows, and those who have a limit or a pod."""
    of_owner: dict[str, list[PodUse]] = {}
    for pod in pods:
        if pod.owner.kind == "User" and pod.owner.hub == hub:
            of_owner.setdefault(pod.owner.name, []).append(pod)
    known = frozenset(users)
    mine = {name for name in index.names() if has_own(index, Owner("User", name, hub))}
    return [
        row(Owner("User", name, hub), index, of_owner.get(name, ()), known=name in known, over=over)
        for name in sorted({*known, *mine, *of_owner})
    ]


def row(
    owner: Owner, index: LimitIndex, pods: Iterable[PodUse], *, known: bool, over: Mapping[Owner, float]
) -> UserRow:
    """Return the row of one user."""
    effective = index.effective(owner)
    changes = [limit.changed for limit in index.limits(owner) if limit.changed]
    return UserRow(
        name=owner.name,
        known=known,
        limit=effective.max,
        guaranteed=effective.guaranteed,
        pods=tuple(pods),
        changed=max(changes, key=lambda change: change.at, default=None),
        over_since=over.get(owner),
    )


def has_own(index: LimitIndex, owner: Owner) -> bool:
    """Tell whether a limit of that very owner exists."""
    return any(limit.subject and limit.subject.kind is SubjectKind.USER for limit in index.limits(owner))


def sourced_json(value: Sourced[Any]) -> dict[str, Any]:
    """Return ``{"value", "source", "sentence"}``; amounts of GPUs as quantities."""
    return {
        "value": format_amount(value.value),
        "source": value.source.to_json(),
        "sentence": value.source.sentence(you=False),
    }


def explanation(effective: Effective, limits: Iterable[Limit]) -> list[dict[str, Any]]:
    """Return, for each limit that applies to an owner, whether the owner's maximum comes from it."""
    chosen: Source = effective.max.source
    return [
        {
            "object": limit.object_name,
            "subject": limit.subject.to_json() if limit.subject else None,
            "max": None if limit.max is None else format_amount(limit.max),
            "decides": limit.object_name == chosen.object,
            "sentence": limit.source.sentence(you=False),
            "problem": limit.problem,
        }
        for limit in limits
    ]
