"""The orders of an `Arbiter` to the shares of its GPU. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnGrant:
    """Permission for ``share`` to run until ``until``. Sent again with a later time while no other share wants the GPU.

    ``turn`` tells turns apart: a share that gave this one back already must not take an order about it for a new one.
    """

    share: str
    until: int
    turn: int
    once: bool = False
    """Whether it may start one launch only (`Rule`)."""


@dataclass(frozen=True, slots=True)
class TurnRevoke:
    """An order to ``share`` to give the GPU back as soon as what it let through has ended."""

    share: str
    turn: int


@dataclass(frozen=True, slots=True)
class TurnOverdue:
    """Notice that ``share``, asked for the GPU at ``since``, did not give it back within the grace. Once a turn."""

    share: str
    since: int


TurnOrder = TurnGrant | TurnRevoke | TurnOverdue
