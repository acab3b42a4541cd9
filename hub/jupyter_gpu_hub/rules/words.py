"""Sentences about limits and use, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.limits.amount import Amount, Unlimited
from jupyter_gpu.model.limits.source import Sourced
from jupyter_gpu.model.message import Message, gettext, sentences
from jupyter_gpu.model.quantity import EXACT_POSITIONS, gpus

from .people import UserRow
from .usage import PodUse


def amount(value: Amount) -> Message:
    """Return ``2 GPUs`` or ``any number of GPUs``."""
    return gettext("any number of GPUs") if isinstance(value, Unlimited) else gpus(value)


def may_have(limit: Sourced[Amount], *, name: str = "") -> Message:
    """Return the sentence about a maximum, for the user or about ``name``."""
    source = limit.source.sentence(you=not name)
    if name:
        return gettext("%1 may have %2, %3.", name, amount(limit.value), source)
    return gettext("You may have %1, %2.", amount(limit.value), source)


def use(row: UserRow, *, name: str = "") -> Message:
    """Return the sentences about what a user has and waits for."""
    has = gettext("%1 has %2 now.", name, gpus(row.used)) if name else gettext("You have %1 now.", gpus(row.used))
    idle = gettext("No program uses %1 of these.", gpus(row.idle)) if row.idle else ""
    return sentences(has, _waiting(row, name), idle)


def _waiting(row: UserRow, name: str) -> str:
    if not row.waiting:
        return ""
    place = _place(row.pods)
    if name:
        text = gettext("%1 waits for %2 more", name, gpus(row.waiting))
    else:
        text = gettext("You wait for %1 more", gpus(row.waiting))
    if place is None:
        return gettext("%1.", text)
    if place > EXACT_POSITIONS:
        return gettext("%1, at place about %2 in line.", text, place)
    return gettext("%1, at place %2 in line.", text, place)


def _place(pods: Iterable[PodUse]) -> int | None:
    """Return the first place in line of the pods that wait; ``None``: it is not known."""
    return min((pod.position for pod in pods if pod.waiting and pod.position is not None), default=None)
