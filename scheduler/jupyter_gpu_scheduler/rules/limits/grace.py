"""The time for which an owner may keep more than the maximum. Pure; the time is an argument.

It begins when the owner first has more, whether a limit was lowered, a budget ran out or a night began. The beginning
outlives the process: it is stored before it counts, so no restart begins it anew, and no GPU is lost because a write
failed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grace:
    """Since when an owner has had more than the maximum, and what follows; times in seconds since 1970."""

    since: float | None = None
    """To be stored; ``None``: the owner is within the maximum."""
    give_back_at: float | None = None
    """The time at which GPUs above the maximum are taken back."""
    tolerated: bool = False
    """Whether it is kept until then."""


def grace(stored: float | None, *, above: bool, seconds: float, now: float) -> Grace:
    """Return the grace of an owner who is ``above`` the maximum or not; ``stored``: the beginning that is stored.

    A beginning that lies in the future counts as now: the clock was set back.
    """
    if not above:
        return Grace()
    since = now if stored is None else min(stored, now)
    return Grace(since, since + seconds, now < since + seconds)
