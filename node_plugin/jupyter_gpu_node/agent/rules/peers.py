"""The public keys that a pod says are its own: which are taken, and how often they may change. Pure.

A pod is known by its slot, so it speaks of itself alone. What it says is true or harms only itself: who has no secret
to a key can't use it. But each change is a write to the API server, so a pod that says another key in a loop is told
to wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.service import Peer

BURST = 16
"""Changes at once: a notebook says its keys anew for each of its workers."""
PAUSE = 5.0
"""Seconds that bring one more change."""


class Said(NamedTuple):
    """The last word of a pod, and how many changes it may still make."""

    peer: Peer
    changes: float
    """As of `at`."""
    at: float
    """Time of the last change, on a clock that never goes back."""


class Refused(Exception):
    """The error for keys that are not taken; the text is for the pod."""


def say(before: Said | None, peer: Peer, now: float, *, worker: bool) -> Said:
    """Return what a pod has said after it says ``peer``; ``worker``: whether it is one. Raises `Refused`."""
    if bool(peer.key) != worker:
        own = "a worker, and says its one key and port" if worker else "no worker, and says a key for each of its own"
        raise Refused(f"This pod is {own}.")
    peer = replace(peer, keys=tuple(sorted(peer.keys)))  # as it is written: what is read again must be the same
    if before is None:
        return Said(peer, BURST - 1, now)
    if peer == before.peer:
        return before
    changes = min(BURST, before.changes + (now - before.at) / PAUSE)
    if changes < 1:
        raise Refused(f"The keys of this pod change too often: it may say others every {PAUSE:g} seconds.")
    return Said(peer, changes - 1, now)


def recorded(said: Said | None, known: Attached | None) -> Peer | None:
    """Return what is recorded: what the pod said to this process, else to an earlier one; None: it has no key."""
    peer = said.peer if said else known.peer if known else None
    return peer if peer and (peer.key or peer.keys) else None
