"""Pure: the file with the limits of one machine, as a list of objects that commands change."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.amount import Unlimited, format_amount
from jupyter_gpu.model.limits.changes import CHANGES, LimitChange, encode_changes, format_time
from jupyter_gpu.model.limits.conflicts import conditions
from jupyter_gpu.model.limits.explain import explain
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import GROUP, HUB_PROPERTIES, VERSION, Limit, Subject
from jupyter_gpu.model.limits.machine_file import HUB, reclaims, stored, unsuitable, with_members
from jupyter_gpu.model.limits.owner import Owner, object_name
from jupyter_gpu.model.limits.read_limit import changes_of, read_limit
from jupyter_gpu.model.limits.transfer.difference import Difference, DifferenceLine, LineOutcome
from jupyter_gpu.model.quantity import count_gpus

WRITTEN = (LineOutcome.ADDED, LineOutcome.CHANGED, LineOutcome.REMOVED)


class FileLimit(NamedTuple):
    """One limit of the file: the object, and what it says."""

    object: Mapping[str, Any]
    limit: Limit

    @property
    def fields(self) -> dict[str, Any]:
        """The spec without its subject."""
        return {key: value for key, value in self.limit.spec().items() if key != "subject"}


class Wanted(NamedTuple):
    """A wanted change of the limit of one subject."""

    subject: Subject
    fields: Mapping[str, Any] | None
    """The fields to set; one that is ``None`` is inherited from then on. ``None``: remove the limit."""


class Outcomes(NamedTuple):
    """The file after some changes, and their results for programs."""

    limits: tuple[FileLimit, ...]
    results: tuple[Mapping[str, Any], ...]


class LimitFile(NamedTuple):
    """The whole file."""

    limits: tuple[FileLimit, ...] = ()
    reclaim: bool = False
    """Whether guaranteed GPUs are reclaimed from others."""


def read(text: bytes) -> LimitFile:
    """Read the file; raises `FieldError`."""
    return LimitFile(tuple(FileLimit(item, limit) for item, limit in stored(text)), reclaims(text))


def write(file: LimitFile) -> str:
    """Return the text of the file."""
    settings = {"reclaim": True} if file.reclaim else {}
    return (
        json.dumps({"limits": [item.object for item in file.limits], **settings}, indent=2, ensure_ascii=False) + "\n"
    )


def changed(limits: Sequence[FileLimit], wanted: Iterable[Wanted], by: str, at: int) -> Outcomes:
    """Carry out changes that ``by`` makes ``at``, in seconds since 1970. Raises `FieldError` for one that can't be."""
    found, results = list(limits), []
    for one in wanted:
        mine = [number for number, item in enumerate(found) if _is_about(item.limit, one.subject)]
        if len(mine) > 1:
            raise strict.FieldError(f"{len(mine)} limits are about the same subject: keep one of them in the file.")
        current = found[mine[0]] if mine else None
        made, result = _carried_out(one, current, by, at)
        results.append(result)
        if made is not None and mine:
            found[mine[0]] = made
        elif made is not None:
            found.append(made)
        elif mine:
            del found[mine[0]]
    return Outcomes(tuple(found), tuple(results))


def _is_about(limit: Limit, subject: Subject) -> bool:
    """Tell whether people write this limit for that subject: the copy of a hub's group's properties is beside it."""
    return limit.subject == subject and limit.managed_by != HUB_PROPERTIES


def _carried_out(
    wanted: Wanted, current: FileLimit | None, by: str, at: int
) -> tuple[FileLimit | None, Mapping[str, Any]]:
    before = current.fields if current else None
    after = None if wanted.fields is None else _merged(wanted.subject, before or {}, wanted.fields)
    if after == before:
        return current, _result(wanted.subject, "unchanged", before, after)
    if after is None:
        return None, _result(wanted.subject, "removed", before, after)
    changes = [*(changes_of(current.object) if current else ()), LimitChange(by, at, before, after)]
    old: Mapping[str, Any] = current.object if current else {}
    metadata = old.get("metadata") if isinstance(old.get("metadata"), Mapping) else {}
    made = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GpuLimit",
        **old,
        "metadata": {**(metadata or {}), "annotations": {CHANGES: encode_changes(changes)}},
        "spec": {"subject": wanted.subject.to_json(), **after},
    }
    word = "changed" if current else "created"
    return FileLimit(made, read_limit(made)), _result(wanted.subject, word, before, after)


def _merged(subject: Subject, before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields afterwards, as every reader writes them; raises `FieldError`."""
    values = {key: value for key, value in {**before, **fields}.items() if value is not None}
    limit = read_limit({"spec": {"subject": subject.to_json(), **values}})
    if why := limit.problem or unsuitable(limit):
        raise strict.FieldError(why, ", ".join(sorted(limit.unread & fields.keys())))
    return {key: value for key, value in limit.spec().items() if key != "subject"}


def _result(subject: Subject, word: str, before: Any, after: Any) -> Mapping[str, Any]:
    name = object_name(subject.kind.value, subject.name, subject.hub)
    return {"subject": subject.to_json(), "object": name, "result": word, "from": before, "to": after}


def wanted_of(found: Difference) -> list[Wanted]:
    """Return the changes of an import, each of which sets or inherits every field."""
    return [_wanted(line, line.subject) for line in found.lines if line.outcome in WRITTEN and line.subject]


def _wanted(line: DifferenceLine, subject: Subject) -> Wanted:
    if line.after is None:
        return Wanted(subject, None)
    spec = line.after.spec()
    return Wanted(subject, {key: spec.get(key) for key in Limit.FIELDS})


def rows(limits: Sequence[FileLimit]) -> list[dict[str, Any]]:
    """Return the table of limits, as the REST of a hub's service has it."""
    told = conditions([item.limit for item in limits])
    return [_row(item, [one.to_json() for one in told.get(item.limit.object_name, ())]) for item in limits]


def _row(item: FileLimit, notes: list[dict[str, Any]]) -> dict[str, Any]:
    limit = item.limit
    problem = " ".join(filter(None, [limit.problem, unsuitable(limit)]))
    return {
        "object": limit.object_name,
        "subject": limit.subject.to_json() if limit.subject else None,
        "fields": item.fields,
        "managedBy": limit.managed_by or None,
        "problem": problem or None,
        "conditions": notes,
        "changed": {"by": limit.changed.by, "at": format_time(limit.changed.at)} if limit.changed else None,
    }


def explained(limits: Iterable[FileLimit], user: str, groups: Collection[str]) -> dict[str, Any]:
    """Return the limit of a user who is in these groups, with a sentence, and why it holds."""
    index = LimitIndex(with_members((item.limit for item in limits), {user: groups}))
    owner = Owner("User", user, HUB)
    most = index.effective(owner).max
    amount = "any number of GPUs" if isinstance(most.value, Unlimited) else count_gpus(most.value)
    why = most.source.sentence(you=False)
    return {
        "name": user,
        "limit": {"value": format_amount(most.value), "source": most.source.to_json(), "sentence": why},
        "sentence": f"{user} may have {amount}, {why}.",
        "limits": [step.to_json() for step in explain(owner, index.of(owner))],
    }
