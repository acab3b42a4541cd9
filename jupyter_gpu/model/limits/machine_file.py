"""The limits of one machine, in its administrator's file: a document as ``jupyter gpu limits export`` prints it. Pure.

Its items may be objects, as ``jupyter gpu limits set --machine`` writes them: with the record of their changes, and in
``status`` the members of a group that the machine does not know. Unlike an import, the file is used as far as it can be
read: a field that can't be read counts as the least that it could mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from .. import strict
from .amount import Unlimited
from .changes import LimitChange
from .limit import Limit, Subject, SubjectKind
from .owner import object_name
from .read_limit import read_limit
from .times import Budget, BudgetWindow
from .transfer.document import objects_of
from .transfer.row import MAX_BYTES
from .transfer.table import BOM

HUB = "local"
"""Name of the hub that all users of the machine belong to."""

NOTHING = (
    Limit(Subject(SubjectKind.CAP), max=0, unread=frozenset({"max"}), object_name=object_name(SubjectKind.CAP.value)),
)
"""The limits while it is not known which hold: nobody gets anything."""


def stored(text: bytes) -> tuple[tuple[Mapping[str, Any], Limit], ...]:
    """Return the objects of a file, each with the limit that it says, under a name of its own.

    Raises `FieldError` for a file that is no such document, or has a limit without a subject.
    """
    names: set[str] = set()
    found = []
    for item in objects_of(_decoded(text)):
        limit = read_limit(item)
        subject = limit.subject
        if subject is None:
            raise strict.FieldError(limit.problem, "subject")
        name = object_name(subject.kind.value, subject.name, subject.hub)
        if name in names:  # the smaller of the two holds
            name = f"{name}-{len(names)}"
        names.add(name)
        found.append((item, replace(limit, object_name=name)))
    return tuple(found)


def limits_of(text: bytes, by: str, at: int) -> tuple[Limit, ...]:
    """Return the limits of a file that ``by`` wrote ``at``, in seconds since 1970: who and when, if it does not say so.

    Raises as `stored`.
    """
    return tuple(_annotated(replace(limit, changed=limit.changed or LimitChange(by, at))) for _, limit in stored(text))


def reclaims(text: bytes) -> bool:
    """Tell whether a file says ``"reclaim": true``: guaranteed GPUs are reclaimed from others. Raises `FieldError`."""
    body = strict.loads(_decoded(text).removeprefix(BOM), MAX_BYTES)
    return isinstance(body, Mapping) and bool(strict.optional(body, "reclaim", strict.boolean))


def unsuitable(limit: Limit) -> str:
    """Return why a limit has no meaning on one machine; empty if it has."""
    subject = limit.subject
    if subject and subject.kind is SubjectKind.NAMESPACE:
        return "One machine has no namespaces: set a limit for a user, a group, default or cap."
    if subject and subject.hub not in ("", HUB):
        return "All users of one machine belong together: leave the hub out."
    return ""


def has_budget(limit: Limit) -> bool:
    """Tell whether a limit has a budget that can be used up."""
    return limit.budget is not None and not isinstance(limit.budget.amount, Unlimited)


def uncounted(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """Return the limits while no process counts GPU-hours: each budget counts as used up."""
    spent = Budget(0, BudgetWindow.DAY)
    return tuple(
        replace(limit, budget=spent, unread=limit.unread | {"budget"}) if has_budget(limit) else limit
        for limit in limits
    )


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise strict.FieldError("The text is not valid JSON: it is not in UTF-8.") from None


def _annotated(limit: Limit) -> Limit:
    """Return a limit as it applies here; administrators get a note about fields without effect."""
    if why := unsuitable(limit):
        return replace(limit, problem=" ".join(filter(None, [limit.problem, why])))
    return limit


def with_members(limits: Iterable[Limit], groups: Mapping[str, Collection[str]]) -> tuple[Limit, ...]:
    """Return the limits, with those of ``groups`` (by user's name) among the members of groups."""
    members: dict[str, set[str]] = {}
    for user, names in groups.items():
        for name in names:
            members.setdefault(name, set()).add(user)
    return tuple(
        replace(limit, members=limit.members | members.get(limit.subject.name, frozenset()))
        if limit.subject and limit.subject.kind is SubjectKind.GROUP
        else limit
        for limit in limits
    )


def problems(limits: Iterable[Limit]) -> tuple[str, ...]:
    """Return a sentence for each limit of which something can't be read, for administrators."""
    return tuple(f"Limit {limit.object_name}: {limit.problem}" for limit in limits if limit.problem)
