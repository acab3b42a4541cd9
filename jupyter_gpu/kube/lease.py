"""One leader among several processes, by a Lease object of the cluster.

Clocks of other machines are not trusted: a candidate takes the lease only after it has seen it unchanged for
``duration`` on its own clock. The leader counts from *before* it sent its last successful renewal, and stops leading
when that is ``renew`` seconds ago: sooner than anybody may follow. Every write has the resource version as a
precondition, so of two who try only one succeeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .client import Kube


class Lease:
    """A candidate for one lease; ``identity`` must be its own, such as the pod's name and uid."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 15,
        renew: float = 10,
        retry: float = 2,
    ) -> None:
        if not 0 < retry < renew < duration:
            raise ValueError("A lease needs 0 < retry < renew < duration, so that one leader ends before the next.")
        self._kube = kube
        self.leading = False
        """Whether this process leads now."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election again and again; while elected, ``lead`` runs. Returns when ``lead`` does."""
        raise NotImplementedError
