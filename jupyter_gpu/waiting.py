"""How a wish is made and waited for: generators that say what to do next and do nothing themselves.

A generator yields :class:`~.client.Call` (ask the server, get a view) and :class:`Pause`; `gpu.resize` drives it with
blocking calls, `await gpu.aresize` without blocking (see `kernel`). So there is one order of things for both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .client import Call, get_status, put_request
from .model.annotations import Reason
from .model.errors import (
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
from .model.quantity import count_gpus, format_gpus
from .model.status import Phase
from .model.view import GpuState, User, View
from .progress import Progress


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for ``seconds``."""

    seconds: float


Steps = Generator[Call | Pause, View, View]

_POLL = 25.0
"""Seconds that one question waits at the server where nobody looks at a progress bar."""
_TICK = 1.0
"""Seconds between updates of the elapsed time that a progress bar shows."""
_RETRY = 30.0
"""Seconds for which a server that was there is expected to come back."""


@dataclass(slots=True)
class Patience:
    """How long to wait, and whom to show it."""

    timeout: float | None
    """Seconds; None means for ever."""
    progress: Progress
    waits_for_itself: Callable[[View], bool] = lambda _: False
    """Whether a GPU that drains is open in this process, which cannot close it while it waits."""
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """Seconds left, at least 0."""
        return None if self.timeout is None else max(0.0, self.started + self.timeout - time.monotonic())


def resize(fields: Mapping[str, Any], patience: Patience | None) -> Steps:
    """Wish for ``fields``; with ``patience``, until that is so."""
    view = yield put_request(fields)
    return view if patience is None else (yield from settle(view, patience))


def settle(view: View, patience: Patience) -> Steps:
    """Until nothing more happens by itself. The wish stands whatever is raised."""
    generation = view.generation
    try:
        while not settled(view, generation, patience):
            view = yield from _newer(view, patience)
    except KeyboardInterrupt:
        patience.progress.say(standing(view))
        raise
    finally:
        patience.progress.close(view)
    return view


def settled(view: View, generation: int, patience: Patience) -> bool:
    """Whether the wish ``generation`` is fulfilled; raises what stands in the way for good."""
    if view.generation != generation:
        raise StaleGeneration(
            f"The request was changed to {count_gpus(view.status.requested)} meanwhile, in the panel or by "
            "other code, so this call stopped waiting.",
            current=view.generation,
        )
    raise_refusal(view)
    if view.status.phase is Phase.RELEASING and patience.waits_for_itself(view):
        raise deadlock(view)
    return view.status.settled


def raise_refusal(view: View) -> None:
    """Raise if ``view`` says that the wish cannot be fulfilled."""
    now = view.status
    if now.phase is Phase.DEGRADED:
        raise Unhealthy(gpus=[item.gpu.uuid for item in view.gpus if item.state is GpuState.UNHEALTHY])
    if now.phase is Phase.REFUSED:
        raise LimitExceeded(limit=view.limit) if now.reason is Reason.LIMIT_EXCEEDED else Infeasible(have=view.total)


def expired(view: View) -> GpuError:
    """The error of a wait that took too long."""
    now = view.status
    if now.phase is Phase.RELEASING:
        return Draining(holders=[user.to_json() for user in holders(view)])
    if now.phase is Phase.WAITING:
        return NoCapacity(have=now.attached, queue=view.allocated.position if view.allocated else None)
    return BackendUnavailable(
        f"The server has not attached {count_gpus(now.requested)} yet. The request stands; "
        "gpu.wait() waits for it, gpu.release() cancels it."
    )


def deadlock(view: View) -> Draining:
    """The error of a process that waits for itself."""
    leaving = sorted(item.gpu.index for item in view.gpus if item.state is GpuState.DRAINING)
    names = ("GPU " if len(leaving) == 1 else "GPUs ") + ", ".join(map(str, leaving))
    keep = format_gpus(view.status.requested + view.status.draining)
    return Draining(
        f"This kernel itself still has {names} open, so to wait here would never end. There are two ways out: "
        "restart this kernel (or close what uses the GPU), and it is given back at once; "
        f"or keep it with gpu.resize({keep}).",
        holders=[user.to_json() for user in holders(view)],
    )


def holders(view: View) -> tuple[User, ...]:
    """Who keeps GPUs open that are being given back."""
    users = [user for item in view.gpus if item.state is GpuState.DRAINING for user in item.users]
    return tuple(dict.fromkeys(users))


def standing(view: View) -> str:
    """What is true after somebody stopped waiting."""
    now = view.status
    if now.phase is Phase.RELEASING:
        return "Stopped waiting: the GPU is given back as soon as it is closed."
    return (
        f"Stopped waiting: the request for {count_gpus(now.requested)} stands and is granted when GPUs "
        "come free; gpu.release() cancels it."
    )


def _newer(view: View, patience: Patience) -> Steps:
    """The next view, within what is left of the time; raises when that is over."""
    patience.progress.show(view)
    left = patience.left
    if left == 0.0:
        raise expired(view)
    poll = _TICK if patience.progress.visible else _POLL
    lost_at: float | None = None
    pause = 0.25
    while True:
        try:
            return (yield get_status(view, poll if left is None else min(left, poll)))
        except ServerUnreachable:
            # The connection may be lost for a moment; a server that was started anew tells so itself: it knows no wish.
            lost_at = time.monotonic() if lost_at is None else lost_at
            if time.monotonic() - lost_at > _RETRY or patience.left == 0.0:
                raise
        yield Pause(pause)
        pause = min(2 * pause, 4.0)


class Ledger:
    """The `at_least` blocks of one process, so that overlapping ones give back exactly what they took together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[object, tuple[int, int]] = {}

    def enter(self, block: object, level: int, took: int) -> None:
        """``block`` needs ``level`` milli and took ``took`` of them itself."""
        with self._lock:
            self._blocks[block] = (level, took)

    def leave(self, block: object, requested: int) -> int:
        """How much to give back now of ``requested`` milli; the rest passes to a block that still needs it."""
        with self._lock:
            _, took = self._blocks.pop(block)
            needed = max((level for level, _ in self._blocks.values()), default=0)
            give = max(0, min(took, requested - needed))
            if self._blocks and took > give:
                heir = max(self._blocks, key=lambda other: self._blocks[other][0])
                level, own = self._blocks[heir]
                self._blocks[heir] = (level, own + took - give)
            return give


def take(milli: int, block: object, ledger: Ledger, patience: Patience) -> Steps:
    """Until at least ``milli`` are attached; asks for what is missing. What it asked for is withdrawn if it fails."""
    view, took = yield from _raise_to(milli)
    ledger.enter(block, milli, took)
    try:
        while view.status.attached < milli:
            if view.status.requested < milli:
                raise StaleGeneration(
                    f"The request was changed to {count_gpus(view.status.requested)} meanwhile; "
                    f"{count_gpus(milli)} must stay here.",
                    current=view.generation,
                )
            raise_refusal(view)
            view = yield from _newer(view, patience)
    except BaseException as error:
        yield from give_back(block, ledger)
        if isinstance(error, KeyboardInterrupt):
            patience.progress.say("Stopped waiting: what was asked for here is withdrawn.")
        raise
    finally:
        patience.progress.close(view)
    return view


def _raise_to(milli: int) -> Generator[Call | Pause, View, tuple[View, int]]:
    while True:
        view = yield get_status()
        missing = milli - view.status.requested
        if missing <= 0:
            return view, 0
        try:
            return (yield put_request(with_amount(view, milli), view.generation)), missing
        except StaleGeneration:
            continue  # somebody changed the wish between look and write: look again


def give_back(block: object, ledger: Ledger) -> Steps:
    """End ``block``: the wish becomes what it was without it. Does not wait until devices are closed."""
    view = yield get_status()
    give = ledger.leave(block, view.status.requested)
    while give and view.status.requested:
        try:
            return (yield put_request(with_amount(view, max(0, view.status.requested - give)), view.generation))
        except StaleGeneration:
            view = yield get_status()
    return view


def with_amount(view: View, milli: int) -> dict[str, Any]:
    """The wish of ``view`` with another amount, all else kept."""
    wish = view.requested.wish.to_json() if view.requested else {}
    if milli % int(wish.get("each", 1)):
        del wish["each"]
    return {**wish, "milli": milli}
