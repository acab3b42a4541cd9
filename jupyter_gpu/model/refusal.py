"""The requests that a server refuses at once, before it writes anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .annotations import Requested, Wish
from .errors import GpuError
from .feasible import refuse
from .gpu import Gpu
from .limits.pod_limit import PodLimit
from .reservation import own


def refusal(
    wish: Wish,
    current: Requested | None,
    *,
    limit: int | None,
    of_user: PodLimit | None,
    gpus: Sequence[Gpu] | None,
) -> GpuError | None:
    """Return why ``wish`` must not follow ``current``; ``None`` if it may.

    ``limit`` is the server's own in milli, ``of_user`` that of its user; ``gpus`` as for `refuse`. A request that
    exceeds the user's limit already may stay when blocks of code begin and end beside it.
    """
    most = of_user.milli if of_user else None
    if of_user is None or most is None or wish.milli <= most or (limit is not None and limit < most):
        return refuse(wish, limit=limit, gpus=gpus)
    if _stands(wish, current):
        return None
    from .limit_words import exceeded

    return exceeded(of_user)


def _stands(wish: Wish, current: Requested | None) -> bool:
    """Tell whether ``wish`` asks for no more than ``current``."""
    return current is not None and wish.milli <= current.milli and own(wish) == own(current.wish)
