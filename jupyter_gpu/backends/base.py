"""The interface between the Jupyter server and the owner of the GPUs, by which every request goes.

One implementation per place (`backends/`); the contract tests (`tests/contract/`) run on each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.lease import WishChange
from jupyter_gpu.model.view import Sample, View

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import Details
    from jupyter_gpu.model.machine import Machine, Shown

Listener = Callable[[View], None]
"""Called on the event loop with each new view, in order of its version."""


class Backend(Protocol):
    """Owner of this server's GPUs. Every coroutine is safe to call from many requests at once.

    A view names holders by pid only; the server adds the notebooks behind them.
    """

    name: str

    async def start(self) -> None:
        """Take the pod up; before the first kernel starts. From here on it can open no GPU not granted.

        Raises `BackendUnavailable` if GPUs can be neither found nor guarded. What takes long is
        under way in another thread after the first step of this coroutine.
        """

    def await_guard(self) -> None:
        """Block until what `start` has begun is in force, or has failed; milliseconds."""

    def view(self) -> View:
        """Return the latest view; never blocks."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear of each new view; the returned function ends it."""

    async def request(self, wish: Wish | WishChange, generation: int | None = None) -> View:
        """Record ``wish``, or what it makes of the wish as it stands then, and decide; the view after that.

        ``generation``: refuse with `StaleGeneration` unless it is the current one.
        Raises `LimitExceeded`, `Infeasible` (nothing recorded)
        or `BackendUnavailable` (nothing recorded, or recorded and retried).
        Not enough free GPUs is no error: the view says what is owed.
        """

    async def sample(self) -> Sample:
        """Return the load of the pod's GPUs now, and scan for their holders (published as a new view)."""

    async def details(self) -> Details:
        """Return limits, rates and memory by process of the pod's GPUs, some seconds old at most."""

    async def machine(self, shown: Shown) -> Machine:
        """Return all GPUs of this machine, with the holders that its user may see; of a cluster's node, sums alone.

        Raises `BackendUnavailable` while that is not known.
        """

    async def stop(self) -> None:
        """Give everything back that can be given back now."""
