"""Division of an owner's maximum among the owner's pods, on whatever nodes they are.

Each pod keeps what it has. Then each may have more, in the order of the line, as long as all that the owner's pods hold
stays within the maximum: a GPU that drains counts for the pod that holds it, so nothing moves before it is closed. What
a pod is still closing it may have back at any time.

A pod whose wish no node can serve, or that waits for something other than GPUs, comes last (`feasibility`): otherwise
it would keep from the others what it can't use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .claims import Claim
from .giving_back import excess, losses

Usable = Callable[[str, int], int]
"""Returns how much of an amount the pod with this uid can use: it may wish for shares of one size."""


def allowances(
    claims: Collection[Claim],
    maximum: int,
    *,
    tolerated: bool = False,
    usable: Usable = lambda _, amount: amount,
) -> dict[str, int]:
    """Return how much each pod of one owner may be allocated now, by uid, in the unit of the claims.

    The sum over the pods that go on is at most ``maximum``. Where they have more, no pod gets anything. While that is
    ``tolerated``, during the grace, each keeps what it has; then they give back so much that they are within it.
    """
    above = excess(claims, maximum)
    if above:
        lost = {} if tolerated else losses(claims, above)
        return {claim.uid: claim.has - lost.get(claim.uid, 0) for claim in claims}
    found = {claim.uid: claim.has for claim in claims}
    room = maximum - sum(claim.has for claim in claims if not claim.leaving)
    free = max(0, maximum - sum(claim.holds for claim in claims))
    return found | raised((claim for claim in claims if claim.wished > claim.has), room, free, usable)


def raised(claims: Iterable[Claim], room: int, free: int, usable: Usable) -> dict[str, int]:
    """Return how much each pod that wishes more than it has may be allocated, by uid.

    ``room``: what is left of the maximum if all that drains is closed; ``free``: what is left of it now, or 0.
    """
    found: dict[str, int] = {}
    for claim in sorted(claims, key=lambda claim: claim.order):
        closing = claim.holds - claim.has
        most = min(claim.wished, claim.has + min(room, closing + free))
        found[claim.uid] = max(claim.has, usable(claim.uid, most))
        gains = found[claim.uid] - claim.has
        room -= gains
        free -= max(0, gains - closing)
    return found


def ends_of_sliders(
    claims: Collection[Claim], maximum: int, beside: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Return the most that each pod may have now, by uid: the maximum less what the owner's other pods hold.

    Two pods may both get that far, but not at once. ``beside``: what counts as held by the pod itself, too.
    """
    held = sum(claim.holds for claim in claims)
    return {claim.uid: max(0, maximum - (held - claim.holds - beside.get(claim.uid, 0))) for claim in claims}


def held_by_workers(pods: Iterable[Claim | PodState]) -> Mapping[str, int]:
    """Return what the workers of each notebook hold, by its uid: allocated, attached or draining."""
    found: Counter[str] = Counter()
    for pod in pods:
        if pod.notebook:
            found[pod.notebook] += pod.holds
    return +found
