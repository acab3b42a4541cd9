"""Where a request goes: the seam between the Jupyter server and whatever owns the GPUs.

One implementation per place (`backends/`); the contract tests (`tests/contract/`) run on each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .model.annotations import Wish
from .model.details import Details
from .model.lease import Change
from .model.machine import Machine, Shown
from .model.view import Sample, View

Listener = Callable[[View], None]
"""Called on the event loop with each new view, in order of its version."""


class Backend(Protocol):
    """Owner of this server's GPUs. Every coroutine is safe to call from many requests at once.

    A view names holders by pid only; the server adds the notebooks behind them.
    """

    name: str

    async def start(self) -> None:
        """Take the pod up; before the first kernel starts. From here on it can open no GPU not granted.

        Raises :class:`~.model.errors.BackendUnavailable` if GPUs can be neither found nor guarded. What takes long is
        under way in another thread after the first step of this coroutine.
        """

    def await_guard(self) -> None:
        """Block until what :meth:`start` has begun is in force, or has failed; milliseconds."""

    def view(self) -> View:
        """The latest view; never blocks."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear of each new view; the returned function ends it."""

    async def request(self, wish: Wish | Change, generation: int | None = None) -> View:
        """Record ``wish``, or what it makes of the wish as it stands then, and decide; the view after that.

        ``generation``: refuse with :class:`~.model.errors.StaleGeneration` unless it is the current one.
        Raises :class:`~.model.errors.LimitExceeded`, :class:`~.model.errors.Infeasible` (nothing recorded)
        or :class:`~.model.errors.BackendUnavailable` (nothing recorded, or recorded and retried).
        Not enough free GPUs is no error: the view says what is owed.
        """

    async def sample(self) -> Sample:
        """Load of the pod's GPUs now, and a fresh look at who has them open (published as a new view)."""

    async def details(self) -> Details:
        """Limits, rates and memory by process of the pod's GPUs, some seconds old at most."""

    async def machine(self, shown: Shown) -> Machine:
        """All GPUs of this machine, as far as its user may know who has them; of a cluster's node, sums alone.

        Raises :class:`~.model.errors.BackendUnavailable` while that cannot be told.
        """

    async def stop(self) -> None:
        """Give everything back that can be given back now."""
