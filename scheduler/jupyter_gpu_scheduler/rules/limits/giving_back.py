"""The order in which an owner's pods give back what is above the owner's maximum: idle shares first, then the newest.

Of idle shares, those that no process has open come before those that are open and rest.
A share that shrinks is a share that is given back and taken smaller, so it is chosen in the same order. What drains
counts as given back already, and so does all that a pod has which is being deleted.
"""

from __future__ import annotations

from collections.abc import Collection

from jupyter_gpu.model.use_class import use_class

from .claims import Claim


def excess(claims: Collection[Claim], maximum: int) -> int:
    """Return how much more than ``maximum`` the pods of one owner have; 0: they are within it."""
    return max(0, sum(claim.has for claim in claims if not claim.leaving) - maximum)


def losses(claims: Collection[Claim], amount: int) -> dict[str, int]:
    """Return how much each pod gives back, by uid, so that it is ``amount`` in all; the others are left out."""
    granted = [
        (use_class(uuid, claim.busy, claim.resting), -claim.created, -age, claim.uid, part)
        for claim in claims
        if not claim.leaving
        for age, (uuid, part) in enumerate(claim.shares)
    ]
    found: dict[str, int] = {}
    for *_, uid, part in sorted(granted):
        lost = min(amount, part)
        if lost:
            found[uid] = found.get(uid, 0) + lost
            amount -= lost
    return found
