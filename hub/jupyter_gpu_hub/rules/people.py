"""Pure: one row for each user (limit, GPUs, waiting requests), from which `subjects` makes the page's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.amount import Amount, amount_key, format_amount
from jupyter_gpu.model.limits.changes import LimitChange, format_time
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Sourced

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
    changed: LimitChange | None = None
    """The newest change of a limit that applies to the user."""
    account: Account | None = None
    """The scheduler's account of the user; ``None``: none yet."""
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
            **account_json(self.account),
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


BY_USE = ("used", "waiting", "idle")
"""Columns that are 0 for a user without a pod, whatever the limit is."""


def names(hub: str, users: Iterable[str], index: LimitIndex, owners: Iterable[Owner]) -> list[str]:
    """Return the names of the table, in order: users whom the hub knows, those who have a limit, and owners of pods."""
    served = (owner.name for owner in owners if owner.kind == "User" and owner.hub == hub)
    return sorted({*users, *limited_users(index, hub), *served})


def limited_users(index: LimitIndex, hub: str) -> set[str]:
    """Return the names of a hub's users that have a limit of their own."""
    subjects = (limit.subject for limit in index if limit.subject)
    return {subject.name for subject in subjects if subject.kind is SubjectKind.USER and subject.hub in ("", hub)}


def row(
    owner: Owner, index: LimitIndex, pods: Iterable[PodUse], *, known: bool, accounts: Mapping[Owner, Account]
) -> UserRow:
    """Return the row of one user."""
    counting, (found, _) = index.of(owner), index.once(owner)
    limit, guaranteed = found.max, found.guaranteed
    if guaranteed.source == limit.source:  # one object: there may be thousands
        guaranteed = Sourced(guaranteed.value, limit.source)
    changes = [item.changed for item in counting if item.changed]
    return UserRow(
        name=owner.name,
        known=known,
        limit=limit,
        guaranteed=guaranteed,
        pods=tuple(pods),
        changed=max(changes, key=lambda change: change.at, default=None),
        account=accounts.get(owner),
    )


def sourced_json(value: Sourced[Any]) -> dict[str, Any]:
    """Return ``{"value", "source", "sentence"}``; amounts of GPUs as quantities."""
    return {
        "value": format_amount(value.value),
        "source": value.source.to_json(),
        "sentence": value.source.sentence(you=False),
    }


def account_json(account: Account | None) -> dict[str, Any]:
    """Return what holds now: hours of the day and spent budgets lower the limit for some time."""
    if account is None:
        return {"inForce": None, "until": None, "overSince": None, "giveBackAt": None}
    times = {"until": account.until, "overSince": account.over_since, "giveBackAt": account.give_back_at}
    return {
        "inForce": sourced_json(account.max),
        **{key: None if moment is None else format_time(moment) for key, moment in times.items()},
    }
