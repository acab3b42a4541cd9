"""The recorded changes of a limit: the writer, the time, and the values before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .. import strict
from .source import MAX_NAME, MAX_TIME

CHANGES = "jupyter-gpu.io/changes"
"""Annotation of a ``GpuLimit``: a JSON list of `LimitChange`, newest last."""
MOST_CHANGES = 20
MAX_BYTES = 64 * 1024
"""Limit for the annotation; older changes go first."""


@dataclass(frozen=True, slots=True)
class LimitChange:
    """One change: ``{"by": "root", "at": "2026-05-03T10:00:00Z", "from": {…}, "to": {…}}``."""

    by: str
    """Name of the person or program."""
    at: int
    """Seconds since 1970."""
    before: Mapping[str, Any] | None = None
    """The spec before, without its subject; ``None``: there was none, or it is not known."""
    after: Mapping[str, Any] | None = None
    """The spec after, without its subject; ``None``: it was removed, or it is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        body = {"by": strict.printable(self.by, MAX_NAME), "at": format_time(self.at)}
        more = {"from": self.before, "to": self.after}
        return {**body, **{key: dict(value) for key, value in more.items() if value is not None}}

    @classmethod
    def from_json(cls, value: Any, key: str = "change") -> LimitChange:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            by=strict.required(body, "by", strict.label(MAX_NAME)),
            at=strict.required(body, "at", parse_time),
            before=strict.optional(body, "from", strict.an_object),
            after=strict.optional(body, "to", strict.an_object),
        )


def decode_changes(text: str) -> tuple[LimitChange, ...]:
    """Read the annotation, oldest first; raises `FieldError`."""
    read = strict.list_of(LimitChange.from_json, MOST_CHANGES)
    return read(strict.loads(text, MAX_BYTES), CHANGES)


def encode_changes(changes: Sequence[LimitChange]) -> str:
    """Write the annotation: the newest `MOST_CHANGES` of ``changes``, or fewer where they are long."""
    kept = [change.to_json() for change in changes[-MOST_CHANGES:]]
    while len(kept) > 1 and len(strict.dumps(kept).encode()) > MAX_BYTES:
        del kept[0]
    return strict.dumps(kept)


def format_time(seconds: int) -> str:
    """Write seconds since 1970 as Kubernetes does: ``2026-05-03T10:00:00Z`` (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(value: Any, key: str) -> int:
    """Read seconds since 1970 from a time with its offset (RFC 3339); fractions are cut off."""
    try:
        seconds = datetime.fromisoformat(strict.text(64)(value, key))
        if seconds.tzinfo and 0 <= seconds.timestamp() <= MAX_TIME:
            return int(seconds.timestamp())
    except (ValueError, OverflowError):
        pass
    raise strict.FieldError(f"{key!r} must be a time such as 2026-05-03T10:00:00Z.", key)
