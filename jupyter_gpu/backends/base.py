"""The interface between the Jupyter server and the owner of the GPUs. Every request passes through it.

One implementation for one machine and one for a cluster; the contract tests (`tests/contract/`) run on each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.reservation import WishChange
from jupyter_gpu.model.view import Sample, View

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import Details
    from jupyter_gpu.model.machine import Machine, Shown
    from jupyter_gpu.model.service import Peer, Service

Listener = Callable[[View], None]
"""Called on the event loop with each new view, in order of its version."""


class Backend(Protocol):
    """The owner of this server's GPUs. Every coroutine may be called by several requests at once.

    A view names holders by pid only; the server adds the notebooks behind them.
    """

    name: str

    async def guard(self) -> None:
        """Set up the pod, before the first kernel starts. From then on it can open only GPUs that were granted.

        Raises `BackendUnavailable` if GPUs can be neither found nor guarded. After the first step of this coroutine,
        slow work is under way in another thread.
        """

    def await_guard(self) -> None:
        """Block until the guard that `guard` began is in force, or has failed; takes milliseconds."""

    async def start(self) -> None:
        """Load what requests need; guard the pod first, if that was not done. Raises as `guard` does."""

    def view(self) -> View:
        """Return the latest view; never blocks."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each new view; the returned function ends that."""

    async def request(self, wish: Wish | WishChange, generation: int | None = None) -> View:
        """Record ``wish``, or what it returns for the current wish, and decide; return the view after that.

        ``generation``: refuse with `StaleGeneration` unless it is the current one.
        Raises `LimitExceeded`, `Infeasible` (nothing recorded)
        or `BackendUnavailable` (nothing recorded, or recorded and retried).
        Too few free GPUs are no error: the view says how many are missing.
        """

    async def sample(self) -> Sample:
        """Return the load of the pod's GPUs now, and scan for their holders (published as a new view)."""

    async def details(self) -> Details:
        """Return limits, rates and memory by process of the pod's GPUs, some seconds old at most."""

    async def machine(self, shown: Shown) -> Machine:
        """Return all GPUs of this machine, with the holders that its user may see; in a cluster, sums of the node.

        Raises `BackendUnavailable` while that is not known.
        """

    async def stop(self) -> None:
        """Give back every GPU that can be given back now."""


class PodWorkers(Protocol):
    """The workers on other nodes of the pod that the server runs in, and the keys that the pod says are its own."""

    known: bool
    service: Service | None
    recorded: Peer | None

    async def changed(self) -> None:
        """Wait until something is new since the last call."""

    async def say(self, peer: Peer) -> None:
        """Say the pod's keys; they are in ``recorded`` later. Raises `BackendUnavailable`."""


@runtime_checkable
class WithWorkers(Protocol):
    """A backend whose pod can have workers."""

    workers: PodWorkers
