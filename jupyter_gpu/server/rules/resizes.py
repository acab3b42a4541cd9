"""Detects the end of each resize in the sequence of views. Pure: time is an argument."""

from __future__ import annotations

from typing import Any, NamedTuple

from jupyter_gpu.model.view import View

SUPERSEDED = "Superseded"


class Resize(NamedTuple):
    """One event; amounts in milli, ``duration`` in seconds. ``events/resize/v1.json`` describes each field."""

    old: int
    new: int
    requested: int
    reason: str | None
    duration: float

    def to_json(self) -> dict[str, Any]:
        """Return the data of the event."""
        return self._asdict()


class _Open(NamedTuple):
    """A resize that is under way."""

    generation: int
    requested: int
    old: int
    since: float


class Resizes:
    """A detector of the ends of resizes in the sequence of views.

    A resize begins with a new generation of the request, and ends when the view is settled for it or when the next
    generation comes. Waiting in line is part of it.
    """

    def __init__(self) -> None:
        self._asked: dict[int, float] = {}
        self._tokens = 0
        self._seen: View | None = None
        self._open: _Open | None = None

    def asked(self, now: float) -> int:
        """Note that a request arrived and return its token. The wait for its turn is part of its duration."""
        self._tokens += 1
        self._asked[self._tokens] = now
        return self._tokens

    def answered(self, token: int) -> None:
        """Note that the request with this token was answered, with or without an error."""
        del self._asked[token]

    def see(self, view: View, now: float) -> list[Resize]:
        """Return the resizes that ended with ``view``. Older views than the last one are ignored."""
        before, self._seen = self._seen, view
        if before is None:
            return []  # requests to an earlier server are not counted
        if before.instance == view.instance and view.version <= before.version:
            self._seen = before
            return []
        ended = []
        if view.generation != before.generation:
            if self._open:
                ended.append(self._end(self._open, view, SUPERSEDED, now))
            since = min(self._asked.values(), default=now)
            self._open = _Open(view.generation, view.status.requested, before.status.attached, since)
        if self._open and view.status.settled:
            ended.append(self._end(self._open, view, view.status.reason, now))
        return ended

    def _end(self, resize: _Open, view: View, reason: str | None, now: float) -> Resize:
        self._open = None
        return Resize(
            old=resize.old,
            new=view.status.attached,
            requested=resize.requested,
            reason=reason and str(reason),
            duration=max(0.0, now - resize.since),
        )
