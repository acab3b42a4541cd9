"""The state of one pod on one GPU, by which `gangs` decides. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Demand(NamedTuple):
    """The state of one pod on one GPU that it shares."""

    wants: bool
    """Whether it waits."""
    holds: bool
    asked: bool
    """Whether it was asked to give the GPU back."""
    once: bool
    """Whether it has the GPU for one launch."""
    milli: int
    steps: bool = True
    """Whether all its clients can be given it for one launch."""
