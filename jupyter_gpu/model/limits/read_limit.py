"""The reader of ``GpuLimit``: what can't be read counts as the least that it could mean, and a sentence says so.

The API server checks objects when they are written. What it let pass before a rule existed, or in a version with other
rules, must never lift a limit, and one bad field must not make the others void.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import strict
from ..message import gettext, message_of, sentences
from .amount import (
    UNLIMITED,
    Amount,
    model_key,
    parse_amount,
    parse_duration,
    parse_memory,
    reader,
    says_unlimited,
    smaller,
)
from .changes import CHANGES, LimitChange, decode_changes
from .limit import MANAGED_BY, MAX_ITEMS, Limit, Subject, SubjectKind
from .source import MAX_NAME
from .times import Budget, BudgetWindow, Hours

T = TypeVar("T")

MIN_TIMEOUT = 60
"""Seconds."""
NOTHING: tuple[Hours, ...] = (Hours(0),)
"""Hours in which nothing is allowed at any time."""
MANAGERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""Labels and annotations by which tools mark objects that they keep, with the tool's name."""
OUR_WRITERS = frozenset({"jupyter-gpu-hub", "jupyter-gpu", "kubectl"})
"""Values of `MANAGED_BY` that leave an object to people."""


@dataclass(slots=True)
class _SpecReader:
    """The fields of one spec, and what is wrong with them."""

    spec: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)

    def take(self, key: str, read: Callable[[Any, str], T], least: T) -> T | None:
        """Return the value of a field, ``None`` if it is absent, ``least`` if it cannot be read."""
        try:
            return strict.optional(self.spec, key, read)
        except strict.FieldError as error:
            self.unread.add(key)
            self.problems.append(message_of(error))
            return least


def read_limit(obj: Any) -> Limit:
    """Read a ``GpuLimit`` from its JSON; never raises. ``Limit.problem`` says what could not be read.

    A limit whose subject can't be read is about no one: it has ``subject`` ``None``.
    """
    body = _mapping(obj)
    meta, spec = _mapping(body.get("metadata")), body.get("spec")
    reading = _SpecReader(_mapping(spec))
    subject = _subject(reading)
    most = reading.take("max", reader(parse_amount), 0)
    guaranteed = reading.take("guaranteed", reader(parse_guaranteed), 0)
    if guaranteed is not None and isinstance(most, int) and guaranteed > most:
        reading.problems.append(gettext("'guaranteed' is more than 'max', and counts as the same."))
        guaranteed = most
    unknown_models: dict[str, Amount] = {}
    models = reading.take("models", _read_models, unknown_models)
    if "models" in reading.unread:  # they could leave nothing of any model
        most = 0
        reading.unread.add("max")
    if extra := strict.unknown(reading.spec, ("subject", *Limit.FIELDS)):
        names = ", ".join(sorted(repr(strict.printable(key, 60)) for key in extra))
        reading.problems.append(gettext("This version does not know the fields %1, and ignores them.", names))
    members, by_hub = _members(body, reading) if subject and subject.kind is SubjectKind.GROUP else (frozenset(), {})
    return Limit(
        subject=subject,
        max=most,
        guaranteed=guaranteed,
        weight=reading.take("weight", strict.integer(1, 1000), 1),
        priority_max=reading.take("priority", _read_priority, 0),
        models=models or {},
        memory=reading.take("memory", reader(parse_memory), 0),
        idle_timeout=reading.take("idleTimeout", reader(parse_timeout), MIN_TIMEOUT),
        budget=reading.take("budget", _read_budget, Budget(0, BudgetWindow.MONTH)),
        hours=reading.take("hours", strict.list_of(Hours.from_json, MAX_ITEMS), NOTHING),
        remote=reading.take("remote", strict.boolean, False),
        lendable=reading.take("lendable", strict.boolean, True),
        grace=reading.take("grace", reader(lambda value: parse_duration(value, 0)), 0),
        members=members,
        hub_members=by_hub,
        changed=_newest(_mapping(meta.get("annotations"))),
        managed_by=_manager(meta),
        object_name=_text(meta.get("name")),
        problem=sentences(*reading.problems),
        unread=frozenset(reading.unread),
        extra=extra,
    )


def changes_of(obj: Any) -> tuple[LimitChange, ...]:
    """Return the recorded changes of a ``GpuLimit``, oldest first; none where they cannot be read."""
    text = _mapping(_mapping(_mapping(obj).get("metadata")).get("annotations")).get(CHANGES)
    try:
        return decode_changes(text) if isinstance(text, str) else ()
    except strict.FieldError:
        return ()


def _subject(reading: _SpecReader) -> Subject | None:
    try:
        return strict.required(reading.spec, "subject", Subject.from_json)
    except strict.FieldError as error:
        reading.problems.append(gettext("%1 So this limit is about no one.", message_of(error)))
        return None


def parse_guaranteed(value: object) -> int:
    """Read milli of GPUs from a quantity; raises ``ValueError`` with a sentence."""
    amount = parse_amount(value)
    if not isinstance(amount, int):
        raise ValueError(gettext("a guaranteed amount cannot be unlimited; use a number such as 2 or 0.5."))
    return amount


def parse_timeout(value: object) -> Amount:
    """Read the seconds of an idle timeout, or ``unlimited``; raises ``ValueError`` with a sentence."""
    return UNLIMITED if says_unlimited(value) else parse_duration(value, MIN_TIMEOUT)


def _read_priority(value: Any, key: str) -> int:
    body = strict.an_object(value, key)
    strict.no_unknown(body, ("max",))
    return strict.required(body, "max", strict.integer(0, 9))


def _read_models(value: Any, key: str) -> dict[str, Amount]:
    found: dict[str, Amount] = {}
    for item in strict.list_of(strict.an_object, MAX_ITEMS)(value, key):
        strict.no_unknown(item, ("model", "max"))
        model = strict.required(item, "model", strict.text(128))
        if not model_key(model):
            raise strict.FieldError(gettext("%1 has no word of a GPU's model, such as A100.", repr(model)), "model")
        most = strict.required(item, "max", reader(parse_amount))
        found[model] = smaller(found.get(model, UNLIMITED), most)
    return found


def _read_budget(value: Any, key: str) -> Budget:
    return Budget(UNLIMITED, BudgetWindow.MONTH) if says_unlimited(value) else Budget.from_json(value, key)


def _members(body: Mapping[str, Any], reading: _SpecReader) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Return the members of a group, and those of each hub; once a hub has told its own, only such count."""
    status = _mapping(body.get("status"))
    by_hub = {hub: _names(listed, reading) for hub, listed in _mapping(status.get("membersOfHubs")).items()}
    if by_hub:
        return frozenset[str]().union(*by_hub.values()), by_hub
    return _names(status.get("members"), reading), {}


def _names(listed: Any, reading: _SpecReader) -> frozenset[str]:
    """Return the names that can be read: a bad one must not drop the group's other members."""
    if listed is None:
        return frozenset()
    names = [name for name in listed if isinstance(name, str) and name] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(names) < len(listed):
        reading.problems.append(gettext("'members' in the status must be a list of names; what is none is ignored."))
    return frozenset(names)


def _newest(annotations: Mapping[str, Any]) -> LimitChange | None:
    changes = changes_of({"metadata": {"annotations": annotations}})
    return changes[-1] if changes else None


def _manager(meta: Mapping[str, Any]) -> str:
    labels, annotations = _mapping(meta.get("labels")), _mapping(meta.get("annotations"))
    for key, tool in MANAGERS.items():
        if key in labels or key in annotations:
            return tool
    name = _text(labels.get(MANAGED_BY))
    return "" if name in OUR_WRITERS else name


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return strict.printable(value, MAX_NAME) if isinstance(value, str) and value else ""
