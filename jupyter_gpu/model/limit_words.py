"""Sentences about the limit of a user: its amount and source, what waits because of it, what is taken back. Pure.

The limit holds for all servers of the user together, so what one server may have depends on the others.
"""

from __future__ import annotations

from datetime import UTC, datetime

from . import strict
from .errors import LimitExceeded
from .limits.pod_limit import PodLimit
from .limits.source import date
from .quantity import count_gpus, format_gpus
from .view import LIMIT_LOWERED, Condition, View

MAX_MESSAGE = 1024
"""Most letters of a condition."""
_MORE = "ask an administrator for more."


def described(limit: PodLimit) -> str:
    """Return ``Your limit is 2 GPUs, set for group ml by root on 3 May. Your other servers have 1.``"""
    if limit.max is None:
        return "You have no limit."
    text = f"Your limit is {count_gpus(limit.max)}, {limit.source.sentence()}."
    if not is_shared(limit):
        return text
    others = format_gpus(limit.max - limit.milli) if limit.milli else "all of that"
    return f"{text} Your other servers have {others}."


def exceeded(limit: PodLimit) -> LimitExceeded:
    """Return the error of a wish above ``limit`` that is refused."""
    if not limit.milli:
        advice = f"Give some back there, or {_MORE}" if limit.max else _MORE.capitalize()
    elif is_shared(limit):
        advice = f"Ask here for {count_gpus(limit.milli)} or less, give some back there, or {_MORE}"
    else:
        advice = f"Ask for that or less, or {_MORE}"
    return _error(f"{described(limit)} {advice}", limit, limit.milli or 0)


def unfulfilled(limit: PodLimit, wanted: int, granted: int) -> LimitExceeded:
    """Return the error of a wait for a wish that stands: ``limit`` allows ``granted`` of the ``wanted`` milli."""
    why = described(limit) if is_full(limit, granted) else "Your limits allow no more now."
    advice = f"gpu.resize({format_gpus(granted)}) asks for no more" if granted else "gpu.release() takes it back"
    text = f"The request for {count_gpus(wanted)} stands: the rest comes when that allows it; {advice}."
    return _error(f"{why} {text}", limit, granted)


def is_shared(limit: PodLimit) -> bool:
    """Tell whether other servers of the user have a part of the limit."""
    return limit.max is not None and limit.milli is not None and limit.milli < limit.max


def is_full(limit: PodLimit, milli: int) -> bool:
    """Tell whether ``milli`` are all that a server with this limit may have now, or more."""
    return limit.milli is not None and milli >= limit.milli


def lowered(limit: PodLimit, milli: int) -> str:
    """Say how much of the ``milli`` of a server is taken back, when and why; empty if none is."""
    return " ".join(filter(None, [_above(limit, milli), _reclaimed(limit)]))


def _reclaimed(limit: PodLimit) -> str:
    if not limit.reclaimed:
        return ""
    parts = [f"{count_gpus(item.milli)} at {moment(item.at)}" for item in limit.reclaimed]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return (
        f"Others wait for GPUs that come first to them: {listed} will be taken back from this server, idle GPUs first, "
        "then the newest. Only pods of preemptible Jobs are ended."
    )


def _above(limit: PodLimit, milli: int) -> str:
    if limit.milli is None or limit.give_back_at is None or milli <= limit.milli:
        return ""
    over = milli - limit.milli
    amount = f"{'up to ' if is_shared(limit) else ''}{count_gpus(over)}"
    when = moment(limit.give_back_at)
    return (
        f"{described(limit)} This server has {count_gpus(milli)}: {amount} will be taken back at {when}, idle GPUs "
        "first, then the newest. No program is ended. Give back what you choose before that."
    )


def lowered_condition(limit: PodLimit, milli: int) -> Condition | None:
    """Return the condition of a server with ``milli``, where some of that is taken back; ``None``: nothing is."""
    text = lowered(limit, milli)
    return Condition(LIMIT_LOWERED, strict.printable(text, MAX_MESSAGE)) if text else None


def remark(view: View) -> str:
    """Describe the limit of the user of ``view``; empty where there is none, or where a condition describes it."""
    limit = view.user_limit
    if limit is None or limit.max is None or any(one.type == LIMIT_LOWERED for one in view.conditions):
        return ""
    return described(limit)


def moment(at: float) -> str:
    """Return a time as ``12:10 UTC on 4 May``; ``at`` is in seconds since 1970."""
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%H:%M} UTC on {date(when)}"


def _error(text: str, limit: PodLimit, milli: int) -> LimitExceeded:
    return LimitExceeded(text, limit=milli, source=limit.source.to_json(), maximum=limit.max)
