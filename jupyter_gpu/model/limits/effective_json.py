"""Effective limits as JSON, for the status of a ``GpuAccount`` and for the answers of a service.

``{"max": {"value": "2", "source": {…}}, …}``: the fields of a ``GpuLimit``, each value written as there, with its
source. Budgets and hours have ``{"alternatives": [[…], …], "cap": […]}``. What no limit sets is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .. import strict
from .amount import format_amount, format_duration, format_memory, parse_amount, parse_duration, parse_memory, reader
from .effective import NO_LIMITS, EffectiveLimits, TimeLimits
from .limit import format_timeout
from .read_limit import parse_guaranteed, parse_timeout
from .source import Source, Sourced, SourceKind
from .times import Budget, Hours

T = TypeVar("T")
MAX_PARTS = 1000
"""Most groups of one user, and most budgets or hours of one group."""


def _grace(value: Any) -> int:
    return parse_duration(value, 0)


def _same(value: Any) -> Any:
    return value


SIMPLE: tuple[tuple[str, str, Callable[[Any], Any], Callable[[Any, str], Any]], ...] = (
    ("max", "max", format_amount, reader(parse_amount)),
    ("guaranteed", "guaranteed", format_amount, reader(parse_guaranteed)),
    ("weight", "weight", _same, strict.integer(1, 1000)),
    ("priority", "priority_max", _same, strict.integer(0, 9)),
    ("memory", "memory", format_memory, reader(parse_memory)),
    ("idleTimeout", "idle_timeout", format_timeout, reader(parse_timeout)),
    ("remote", "remote", _same, strict.boolean),
    ("lendable", "lendable", _same, strict.boolean),
    ("grace", "grace", format_duration, reader(_grace)),
)
"""Name in the spec, attribute of a limit, writer and reader of each field that has one value."""


def effective_json(effective: EffectiveLimits) -> dict[str, Any]:
    """Return the JSON object; `read_effective` reads it."""
    body: dict[str, Any] = {}
    for key, attribute, write, _ in SIMPLE:
        found = getattr(effective, attribute)
        if found.source.kind is not SourceKind.UNSET:
            body[key] = sourced_json(found, write)
    if effective.models:
        body["models"] = {model: sourced_json(most, format_amount) for model, most in effective.models.items()}
    for key, combined in (("budget", effective.budget), ("hours", effective.hours)):
        if combined.alternatives or combined.cap:
            body[key] = _combined_json(combined)
    return body


def read_effective(value: Any, key: str = "limits") -> EffectiveLimits:
    """Read and check the JSON; raises `FieldError`. Fields that are not known are left out."""
    body = strict.an_object(value, key)
    simple = {
        attribute: strict.optional(body, name, _sourced_reader(read)) or getattr(NO_LIMITS, attribute)
        for name, attribute, _, read in SIMPLE
    }
    return EffectiveLimits(
        models=strict.optional(body, "models", _read_models) or {},
        budget=strict.optional(body, "budget", _combined_reader(Budget.from_json)) or TimeLimits(),
        hours=strict.optional(body, "hours", _combined_reader(Hours.from_json)) or TimeLimits(),
        **simple,
    )


def sourced_json(found: Sourced[T], write: Callable[[T], Any]) -> dict[str, Any]:
    """Return ``{"value", "source"}``."""
    return {"value": write(found.value), "source": found.source.to_json()}


def _combined_json(combined: TimeLimits[Budget] | TimeLimits[Hours]) -> dict[str, Any]:
    def listed(items: tuple[Sourced[Any], ...]) -> list[Any]:
        return [sourced_json(item, lambda value: value.to_json()) for item in items]

    body = {"alternatives": [listed(items) for items in combined.alternatives], "cap": listed(combined.cap)}
    return {key: items for key, items in body.items() if items}


def _sourced_reader(read: Callable[[Any, str], T]) -> Callable[[Any, str], Sourced[T]]:
    def read_sourced(value: Any, key: str) -> Sourced[T]:
        body = strict.an_object(value, key)
        return Sourced(
            strict.required(body, "value", read),
            strict.required(body, "source", Source.from_json),
        )

    return read_sourced


def _combined_reader(read: Callable[[Any, str], T]) -> Callable[[Any, str], TimeLimits[T]]:
    read_items = strict.list_of(_sourced_reader(read), MAX_PARTS)

    def read_combined(value: Any, key: str) -> TimeLimits[T]:
        body = strict.an_object(value, key)
        alternatives = strict.optional(body, "alternatives", strict.list_of(read_items, MAX_PARTS))
        return TimeLimits(alternatives or (), strict.optional(body, "cap", read_items) or ())

    return read_combined


def _read_models(value: Any, key: str) -> Mapping[str, Sourced[Any]]:
    read = _sourced_reader(reader(parse_amount))
    return {model: read(item, key) for model, item in strict.an_object(value, key).items()}
