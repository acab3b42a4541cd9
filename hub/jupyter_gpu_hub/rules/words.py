"""Sentences about limits and use, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.limits.amount import Amount, Unlimited
from jupyter_gpu.model.limits.source import Sourced
from jupyter_gpu.model.quantity import EXACT_POSITIONS, count_gpus

from .people import UserRow
from .usage import PodUse


def amount(value: Amount) -> str:
    """Return ``2 GPUs`` or ``any number of GPUs``."""
    return "any number of GPUs" if isinstance(value, Unlimited) else count_gpus(value)


def may_have(limit: Sourced[Amount], *, name: str = "") -> str:
    """Return the sentence about a maximum, for the user or about ``name``."""
    whom = f"{name} may have" if name else "You may have"
    return f"{whom} {amount(limit.value)}, {limit.source.sentence(you=not name)}."


def use(row: UserRow, *, name: str = "") -> str:
    """Return the sentences about what a user has and waits for."""
    whom, has, waits = (name, "has", "waits") if name else ("You", "have", "wait")
    sentences = [f"{whom} {has} {count_gpus(row.used)} now."]
    if row.waiting:
        sentences.append(f"{whom} {waits} for {count_gpus(row.waiting)} more{_place(row.pods)}.")
    if row.idle:
        sentences.append(f"No program uses {count_gpus(row.idle)} of these.")
    return " ".join(sentences)


def _place(pods: Iterable[PodUse]) -> str:
    places = [pod.position for pod in pods if pod.waiting and pod.position is not None]
    if not places:
        return ""
    first = min(places)
    return f", at place {'about ' if first > EXACT_POSITIONS else ''}{first} in line"
