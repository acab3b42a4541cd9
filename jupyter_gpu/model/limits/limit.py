"""A ``GpuLimit`` as it is read and written: the subject, and a value for each field that it sets.

Spec of the object (``jupyter-gpu.io/v1alpha1``, cluster-scoped)::

    subject: {kind: User, name: ann, hub: jhub}   # User | Group | Namespace | Default | Cap; no hub: every hub
    max: 2                         # quantity or unlimited, as every amount of GPUs
    guaranteed: 1
    weight: 1                      # 1 … 1000
    priority: {max: 5}             # 0 … 9
    models: [{model: A100, max: 1}]
    memory: 40Gi                   # GPU memory of all shares together; or unlimited
    idleTimeout: 4h                # at least 1m; or unlimited
    budget: {gpuHours: 100, window: Month}        # or unlimited; Day | Week | Month
    hours: [{days: [Mon, Tue], from: "08:00", to: "18:00", max: 1}]    # []: no hours
    remote: true
    grace: 10m
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .. import strict
from ..message import gettext
from .amount import Amount, Unlimited, format_amount, format_duration, format_memory
from .changes import LimitChange
from .source import Source, SourceKind
from .times import Budget, Hours

GROUP, VERSION = "jupyter-gpu.io", "v1alpha1"
LIMITS, ACCOUNTS = "gpulimits", "gpuaccounts"
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label with the tool that writes an object."""
HUB_PROPERTIES = "jupyter-gpu-hub-properties"
"""Value of `MANAGED_BY` of limits that mirror the properties of a hub's group; a limit written for the group wins."""
MAX_SUBJECT = 255
"""Most letters of a subject's name."""
MAX_ITEMS = 10
"""Most models, and most hours, of one limit."""


def read_name(value: Any, key: str) -> str:
    """Read the name of a subject or an owner as it is, whatever letters it has: it is compared, and shown otherwise."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SUBJECT:
        raise strict.FieldError(gettext("%1 must be text of 1 to %2 characters.", repr(key), MAX_SUBJECT), key)
    return value


class SubjectKind(StrEnum):
    """The kind of subject that a limit is about."""

    USER = "User"
    GROUP = "Group"
    NAMESPACE = "Namespace"
    DEFAULT = "Default"
    CAP = "Cap"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """The subject of a limit: a user, a group, a namespace, or everyone."""

    kind: SubjectKind
    name: str = ""
    """Empty for ``Default`` and ``Cap``."""
    hub: str = ""
    """Name of the hub of a user or group; empty: every hub."""

    def to_json(self) -> dict[str, str]:
        """Return the JSON object, without empty fields."""
        return {
            key: value for key, value in (("kind", self.kind.value), ("name", self.name), ("hub", self.hub)) if value
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "subject") -> Subject:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        strict.no_unknown(body, ("kind", "name", "hub"))
        kind = SubjectKind(strict.required(body, "kind", strict.one_of(*SubjectKind)))
        named = kind not in (SubjectKind.DEFAULT, SubjectKind.CAP)
        name = strict.optional(body, "name", read_name) or ""
        hub = strict.optional(body, "hub", read_name) or ""
        if named and not name:
            raise strict.FieldError(gettext("A subject of kind %1 needs a 'name'.", kind), "name")
        if name and not named:
            raise strict.FieldError(gettext("A subject of kind %1 is about everyone, and has no 'name'.", kind), "name")
        if hub and kind not in (SubjectKind.USER, SubjectKind.GROUP):
            raise strict.FieldError(gettext("A subject of kind %1 belongs to no hub, and has no 'hub'.", kind), "hub")
        return cls(kind, name, hub)


@dataclass(frozen=True, slots=True)
class Limit:
    """One ``GpuLimit``. In every field ``None`` is inherited, 0 nothing, `UNLIMITED` no limit of this level."""

    subject: Subject | None
    """``None``: it cannot be read, so the limit is about no one."""
    max: Amount | None = None
    """Milli of GPUs of all the owner's pods together."""
    guaranteed: int | None = None
    """Milli that the owner gets before others get more than theirs."""
    weight: int | None = None
    """1 to 1000: the owner's part of what is left."""
    priority_max: int | None = None
    """0 to 9: wishes of a higher priority count as of this one."""
    models: Mapping[str, Amount] = field(default_factory=dict, hash=False)
    """Milli by words of a GPU model, as in a wish."""
    memory: Amount | None = None
    """Bytes of GPU memory of all shares together."""
    idle_timeout: Amount | None = None
    """Seconds after which an idle GPU is given back."""
    budget: Budget | None = None
    hours: tuple[Hours, ...] | None = None
    remote: bool | None = None
    """Whether the owner may have GPUs of other nodes."""
    lendable: bool | None = None
    """Whether the owner's whole GPUs may have guests while they rest."""
    grace: int | None = None
    """Seconds before GPUs above a lowered maximum are taken back."""
    members: frozenset[str] = frozenset()
    """Names of a group's members, as last mirrored from its hub; of a group of every hub those of all hubs."""
    hub_members: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    """The members of a group of every hub, by hub; empty: ``members`` are those of each hub."""
    changed: LimitChange | None = None
    """The newest change that is recorded."""
    managed_by: str = ""
    """The tool that keeps the object, such as ``Helm``; empty: people."""
    object_name: str = ""
    problem: str = ""
    """A sentence for administrators about what cannot be read; empty: all can be."""
    unread: frozenset[str] = frozenset()
    """Names, as in the spec, of fields that hold the least that they could mean, as they cannot be read."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields of a newer version, kept so that writing the object loses nothing."""

    FIELDS = ("max", "guaranteed", "weight", "priority", "models", "memory", "idleTimeout", "budget", "hours",
      "remote", "lendable", "grace")  # fmt: skip
    """Names of the fields, as in the spec."""

    @property
    def locked(self) -> bool:
        """Whether a tool keeps the object, so that a change by hand would be undone."""
        return bool(self.managed_by)

    @property
    def source(self) -> Source:
        """The limit as the source of its values."""
        return Source(
            kind=SourceKind(self.subject.kind.value) if self.subject else SourceKind.UNSET,
            name=self.subject.name if self.subject else "",
            by=self.changed.by if self.changed else self.managed_by,
            at=self.changed.at if self.changed else None,
            object=self.object_name,
        )

    def spec(self) -> dict[str, Any]:
        """Return the spec of the object; reading it gives the limit again."""
        body: dict[str, Any] = {
            "subject": self.subject.to_json() if self.subject else None,
            "max": _written(self.max, format_amount),
            "guaranteed": _written(self.guaranteed, format_amount),
            "weight": self.weight,
            "priority": None if self.priority_max is None else {"max": self.priority_max},
            "models": [{"model": m, "max": format_amount(self.models[m])} for m in sorted(self.models)] or None,
            "memory": _written(self.memory, format_memory),
            "idleTimeout": _written(self.idle_timeout, format_timeout),
            "budget": self.budget.to_json() if self.budget else None,
            "hours": None if self.hours is None else [hours.to_json() for hours in self.hours],
            "remote": self.remote,
            "lendable": self.lendable,
            "grace": _written(self.grace, format_duration),
        }
        return {**strict.without_none(body), **self.extra}


def format_timeout(timeout: Amount) -> str:
    """Write seconds as ``4h``, or ``unlimited``."""
    return timeout.value if isinstance(timeout, Unlimited) else format_duration(timeout)


def _written(value: Any, write: Any) -> Any:
    return None if value is None else write(value)
