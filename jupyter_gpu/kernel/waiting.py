"""Generators that send a request and wait for it: they yield each step and do no I/O themselves.

A generator yields `Call` (ask the server, get a view) and `Pause`. `gpu.resize` runs the steps with blocking calls,
`await gpu.aresize` without blocking (`Runner` in `api`), so both do the same in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.model.annotations import Reason, Wish
from jupyter_gpu.model.errors import (
    BackendUnavailable,
    Draining,
    GpuError,
    Infeasible,
    LimitExceeded,
    NoCapacity,
    ServerUnreachable,
    StaleGeneration,
    Unhealthy,
)
from jupyter_gpu.model.quantity import count_gpus, format_gpus
from jupyter_gpu.model.reservation import ReservationOwner, own
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuState, GpuUser, View
from jupyter_gpu.model.workers import SELF, Worker, describe

from .client import Call, get_status, put_request, put_reservation
from .progress import Progress


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of ``seconds``."""

    seconds: float


Steps = Generator[Call | Pause, View, View]

_POLL = 25.0
"""Seconds that one poll waits at the server without a progress bar."""
_TICK = 1.0
"""Seconds between updates of the elapsed time that a progress bar shows."""
_ENDING = 1.0
"""Seconds within which workers that were asked to end are expected to."""
_RETRY = 30.0
"""Seconds for which a server that was there is expected to come back."""


@dataclass(slots=True)
class Patience:
    """The time limit of a wait, and where its progress is shown."""

    timeout: float | None
    """Seconds; None means for ever."""
    progress: Progress
    own_holders: Callable[[View], tuple[Worker, ...]] = lambda _: ()
    """Function that returns our processes that have a draining GPU open: this one and those that it started."""
    nvml_refusal: Callable[[], str] = lambda: ""
    """Function that returns why NVML keeps GPUs open in this process; "" if it does not."""
    suspected: float | None = None
    """Time from which on only workers of this process seem to keep GPUs open; they may be about to end."""
    named: bool = False
    """Whether the message names programs of this process already."""
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Seconds left, at least 0."""
        return None if self.timeout is None else max(0.0, self.started + self.timeout - time.monotonic())


def resize(fields: Mapping[str, Any], patience: Patience | None) -> Steps:
    """Request ``fields``; with ``patience``, wait until that is fulfilled."""
    view = yield put_request(fields)
    return view if patience is None else (yield from wait_settled(view, patience))


def wait_settled(view: View, patience: Patience) -> Steps:
    """Wait until nothing more happens by itself. The request stands even if an error is raised."""
    first = view
    try:
        while not settled(view, first, patience):
            view = yield from _newer(view, patience)
    except KeyboardInterrupt:
        patience.progress.say(standing(view))
        raise
    finally:
        patience.progress.close(view)
    return view


def settled(view: View, first: View, patience: Patience) -> bool:
    """Tell whether the request of ``first`` is fulfilled; raises an error if it never will be.

    Blocks of other code that begin and end meanwhile change how much is held, not what was requested.
    """
    if view.generation != first.generation and _own(view) != _own(first):
        raise StaleGeneration(
            f"The server's request was changed to {count_gpus(_own(view).milli)} meanwhile, in the panel or by "
            "other code, so this call stopped waiting.",
            current=view.generation,
        )
    now = view.status
    more = view.requested is not None and view.requested.wish.base is not None
    if more and not now.draining and now.phase in (Phase.WAITING, Phase.ATTACHING) and now.attached >= _own(view).milli:
        return True  # only what another block waits for is missing
    raise_refusal(view)
    if now.phase is Phase.RELEASING:
        _check_own(view, patience)
    return now.settled


def _check_own(view: View, patience: Patience) -> None:
    """Raise if this process waits for itself, or for workers that wait for it; name other programs that it started."""
    own = patience.own_holders(view)
    if any(one.kind == SELF for one in own):
        raise deadlock(view, patience.nvml_refusal())
    waiting = [one for one in own if one.waits]
    if not waiting:
        patience.suspected = None
        if own and not patience.named:
            patience.named = True
            patience.progress.say(describe(own))
        return
    if patience.suspected is None:
        patience.suspected = time.monotonic()
    if time.monotonic() - patience.suspected >= _ENDING:
        raise Draining(
            f"{describe(waiting)} They wait for this kernel, so to wait here would not end. The GPU is given back as "
            f"soon as they end; or keep it with gpu.resize({_kept(view)}).",
            holders=[user.to_json() for user in holders(view)],
        )


def _own(view: View) -> Wish:
    return own(view.requested.wish if view.requested else None)


def raise_refusal(view: View) -> None:
    """Raise if ``view`` says that the request cannot be fulfilled, or not before a limit is raised."""
    now = view.status
    if now.phase is Phase.DEGRADED:
        own = [item.gpu.uuid for item in view.gpus if item.state is GpuState.UNHEALTHY]
        raise Unhealthy(gpus=[*own, *(share.uuid for worker in view.workers for share in worker.unhealthy)])
    if now.limited and view.user_limit:
        from jupyter_gpu.model.limit_words import unfulfilled

        raise unfulfilled(view.user_limit, now.requested, now.allocated)
    if now.phase is Phase.REFUSED:
        raise LimitExceeded(limit=view.limit) if now.reason is Reason.LIMIT_EXCEEDED else Infeasible(have=view.total)


def expired(view: View) -> GpuError:
    """Return the error of a wait that took too long."""
    now = view.status
    if now.phase is Phase.RELEASING:
        return Draining(holders=[user.to_json() for user in holders(view)])
    if now.phase is Phase.WAITING:
        return NoCapacity(have=now.attached, queue=view.allocated.position if view.allocated else None)
    return BackendUnavailable(
        f"The server has not attached {count_gpus(now.requested)} yet. The request stands; "
        "gpu.wait() waits for it, gpu.release() cancels it."
    )


def deadlock(view: View, nvml_refusal: str = "") -> Draining:
    """Return the error of a process that waits for itself; ``nvml_refusal``: why NVML keeps the GPU open, if so."""
    leaving = sorted(item.gpu.index for item in view.gpus if item.state is GpuState.DRAINING)
    names = ("GPU " if len(leaving) == 1 else "GPUs ") + ", ".join(map(str, leaving))
    nvml = f"It is NVML that has it open, and it can't be shut down now: {nvml_refusal}. " if nvml_refusal else ""
    return Draining(
        f"This kernel itself still has {names} open, so to wait here would never end. {nvml}There are two ways out: "
        "restart this kernel (or close what uses the GPU), and it is given back at once; "
        f"or keep it with gpu.resize({_kept(view)}).",
        holders=[user.to_json() for user in holders(view)],
    )


def _kept(view: View) -> str:
    return format_gpus(view.status.requested + view.status.draining)


def holders(view: View) -> tuple[GpuUser, ...]:
    """List the processes that keep GPUs open that are being given back."""
    users = [user for item in view.gpus if item.state is GpuState.DRAINING for user in item.users]
    return tuple(dict.fromkeys(users))


def standing(view: View) -> str:
    """Describe the state after the user stopped waiting."""
    now = view.status
    if now.phase is Phase.RELEASING:
        return "Stopped waiting: the GPU is given back as soon as it is closed."
    return (
        f"Stopped waiting: the request for {count_gpus(now.requested)} stands and is granted when GPUs "
        "come free; gpu.release() cancels it."
    )


def _newer(view: View, patience: Patience) -> Steps:
    """Return the next view; raises if there is none in the time left."""
    patience.progress.show(view)
    left = patience.left
    if left == 0.0:
        raise expired(view)
    poll = _TICK if patience.progress.visible else _POLL
    if patience.suspected is not None:
        poll = _ENDING / 4
    lost_at: float | None = None
    pause = 0.25
    while True:
        try:
            return (yield get_status(view, poll if left is None else min(left, poll)))
        except ServerUnreachable:
            # The connection may be lost for a moment. A restarted server is known by its instance.
            lost_at = time.monotonic() if lost_at is None else lost_at
            if time.monotonic() - lost_at > _RETRY or patience.left == 0.0:
                raise
        yield Pause(pause)
        pause = min(2 * pause, 4.0)


def take(key: str, milli: int, owner: ReservationOwner, patience: Patience, *, together: bool = False) -> Steps:
    """Reserve ``milli`` under ``key`` and wait until they are attached. The caller ends it, also after an error.

    ``together``: on one node.
    """
    call = put_reservation(key, milli, owner, together=together)
    view = first = yield call
    try:
        while (view.together if together and view.workers else view.status.attached) < milli:
            if view.instance != first.instance:  # a restarted server knows no reservations
                view = first = yield call
                continue
            if view.status.requested < milli:
                raise StaleGeneration(
                    f"The server's request was changed to {count_gpus(view.status.requested)} meanwhile; "
                    f"{count_gpus(milli)} must stay here.",
                    current=view.generation,
                )
            raise_refusal(view)
            view = yield from _newer(view, patience)
    except KeyboardInterrupt:
        patience.progress.say("Stopped waiting: what was asked for here is withdrawn.")
        raise
    finally:
        patience.progress.close(view)
    return view
