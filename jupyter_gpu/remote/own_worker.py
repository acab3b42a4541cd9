"""The kernels of this process in workers: they serve calls, rest between them, and end before GPUs are given back.

`keeping` says which kernel serves which call, and how long one is kept. Beside this process stands a worker of its own,
for GPUs of the own node: its first process starts with the first call and ends with this process. GPUs of other nodes
are reached by the workers of the notebook's pod (`pod_workers`); a kernel there outlives a lost connection. A process
that is forked from this one has none of it, and starts its own.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules import visible
from jupyter_gpu.kernel.client import Client
from jupyter_gpu.kernel.follower import ViewFollower
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import Message, gettext
from jupyter_gpu.model.view import View
from jupyter_gpu.remote import versions
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.handles import Handle
from jupyter_gpu.remote.kept_questions import KeptQuestions
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.output import Shown
from jupyter_gpu.remote.pod_workers import PodWorkers
from jupyter_gpu.remote.rules import packages
from jupyter_gpu.remote.rules.control import MAX_KERNELS, Kill
from jupyter_gpu.remote.rules.keeping import HERE, Choice, Gpus, has_room, is_kept, milli_of, share_one
from jupyter_gpu.remote.rules.shipping import There
from jupyter_gpu.remote.sources import Sources
from jupyter_gpu.remote.unusable import sentence

log = logging.getLogger(__name__)

_PATIENCE = 5.0
_LAST_PATIENCE = 1.0
"""Seconds for each kernel on another node when this process ends."""

Wanted = Callable[[View], Choice | None]
"""The GPUs that a call wants of those in a view; None: it waits for them."""


@dataclass(eq=False)
class Seat:
    """A kernel of the worker, or the place of one that is being started, with the GPUs that it was given."""

    place: str
    """The worker: the own one, or one of the pod."""
    given: Gpus
    since: View
    """The view by which it was given them."""
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    """Its name in the worker."""
    connection: Connection | None = None
    shown: Shown | None = None
    sources: Sources | None = None
    """The modules that it may have loaded."""
    there: dict[str, There] = field(default_factory=dict)
    """The names that its namespace has from cells, or for them."""
    handles: list[Handle] = field(default_factory=list)
    """Handles of values that it has."""

    @property
    def where(self) -> str:
        """Its place, in words."""
        return self.connection.address.where if self.connection is not None else ""

    @property
    def is_unusable(self) -> bool:
        """Whether its process can use no GPU any more."""
        return self.connection is not None and self.connection.sticky is not None

    def end_sentence(self) -> Message | None:
        """Return what is said as it ends because it is unusable, with the names of what it has; None if it is not."""
        if self.connection is None or self.connection.sticky is None:
            return None
        names = {name for name, entry in self.there.items() if entry.newer}
        names |= {handle.name for handle in self.handles if not handle.is_lost}
        return sentence(self.where, self.connection.sticky, names)

    def kept(self, view: View | None) -> bool:
        """Tell whether it is kept as it rests, by the latest view."""
        if self.connection is None or self.is_unusable or (self.place == HERE and not self.connection.lives()):
            return False
        return view is None or _is_older(view, self.since) or is_kept(self.given, view, self.place)

    def lose(self) -> None:
        """Note that what it had is lost."""
        self.there.clear()
        for handle in self.handles:
            handle.lose()
        self.handles.clear()


class Cancelled(Exception):
    """The end of a call that was cancelled while it waited for its turn."""


@dataclass
class _State:
    """The state of one process; one that is forked begins anew."""

    local: LocalWorker | None = None
    resting: list[Seat] = field(default_factory=list)
    working: dict[object, Seat] = field(default_factory=dict)
    """By the call that each serves."""
    waiting: dict[int, Wanted] = field(default_factory=dict)
    """The calls that wait for their turn, by their tickets."""
    watchers: int = 0
    """Those that want to hear of changes while there is no kernel."""
    view: View | None = None
    """The latest view that was heard of."""
    follower: ViewFollower | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Notified when a kernel comes to rest or ends, and when the GPUs change; its lock is that of all fields."""


class OwnWorker:
    """The worker of this process; `client` is called when the server is asked."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._kept = KeptQuestions()
        self._pod = PodWorkers(client, self._kept)
        self._state = _State()
        self._tickets = itertools.count()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.close)

    @property
    def changed(self) -> threading.Condition:
        """Notified when a kernel comes to rest or ends, and when the GPUs change."""
        return self._state.changed

    @property
    def view(self) -> View | None:
        """The latest view that was heard of while there are kernels."""
        return self._state.view

    @contextmanager
    def lent(self, seat: Seat) -> Iterator[Connection]:
        """Have the connection to a kernel, once it rests, and keep other calls from it meanwhile.

        Raises `WorkerLost`, `WorkerRefused` and `GpuError`.
        """
        state, call = self._state, object()
        with state.changed:
            state.changed.wait_for(lambda: seat not in state.working.values())
            if seat not in state.resting:
                raise WorkerLost(gettext("the worker has ended"))
            state.resting.remove(seat)
            state.working[call] = seat
        try:
            if seat.connection is None or not seat.connection.lives():
                self._connect(seat, seat.since)
            assert seat.connection is not None
            yield seat.connection
        finally:
            self.rest(call)

    @contextmanager
    def watched(self, view: View) -> Iterator[None]:
        """Keep `view` the latest one meanwhile, from a known one on."""
        with self._state.changed:
            self._state.watchers += 1
            self._follow(view)
        try:
            yield
        finally:
            with self._state.changed:
                self._state.watchers -= 1
                self._unfollow()

    def ticket(self) -> int:
        """Return the place of a call among those that wait: it is before all that are made later."""
        return next(self._tickets)

    def take(self, call: object, ticket: int, wanted: Wanted, view: View, cancelled: Callable[[], bool]) -> Seat:
        """Return a kernel for a call, until `rest`; waits for calls that use one of the GPUs that it wants.

        ``view`` is what the caller knows; a newer one counts. Raises `WorkerLost`, `WorkerRefused`, and `Cancelled`
        once ``cancelled()`` is true and `changed` was notified.
        """
        state = self._state
        with self.watched(view), state.changed:
            state.waiting[ticket] = wanted
            try:
                state.changed.wait_for(lambda: cancelled() or self._has_room(ticket, wanted, self._newer(view)))
                if cancelled():
                    raise Cancelled
            finally:
                del state.waiting[ticket]
                state.changed.notify_all()
            view = self._newer(view)
            chosen = wanted(view)
            assert chosen is not None
            seat, ended = self._seat(chosen, view)
            state.working[call] = seat
        try:
            for one in ended:
                self.end(one)
            if seat.connection is None or not seat.connection.lives():
                self._connect(seat, view)
            assert seat.connection is not None
            assert seat.sources is not None
            if changed := seat.sources.changed():
                seat.connection.reload(changed)
        except BaseException as error:
            lost = isinstance(error, (WorkerLost, KeyboardInterrupt))
            self.rest(call, end=seat.place == HERE or not lost)  # a connection to another node may come back
            raise
        return seat

    def _seat(self, chosen: Choice, view: View) -> tuple[Seat, list[Seat]]:
        """Return the kernel for some GPUs, a new one or one that rests, and those that must end before it works."""
        state, (place, given) = self._state, chosen
        same = (one for one in state.resting if (one.place, one.given) == chosen and not one.is_unusable)
        seat = next(same, None) or Seat(place, given, view)
        seat.since = view
        others = [one for one in state.resting if one.place == place and one is not seat]
        ended = [one for one in others if share_one(one.given, given)]
        others = [one for one in others if one not in ended]
        working = sum(one.place == place for one in state.working.values())
        ended += others[: max(0, len(others) + working + 1 - MAX_KERNELS)]  # the oldest
        state.resting = [one for one in state.resting if one is not seat and one not in ended]
        return seat, ended

    def rest(self, call: object, *, end: bool = False) -> None:
        """Take the kernel of a call back; nothing if it has none."""
        state = self._state
        try:
            with state.changed:
                seat = state.working.get(call)
                kept = seat is not None and not end and seat.kept(state.view)
                if seat is not None and kept:
                    state.resting.append(seat)
            if seat is not None and not kept:
                self.end(seat)
        finally:
            with state.changed:
                state.working.pop(call, None)
                self._unfollow()
                state.changed.notify_all()

    def end(self, seat: Seat) -> None:
        """End a kernel, also in the middle of a call."""
        self._end(seat, _PATIENCE)

    def _end(self, seat: Seat, patience: float) -> None:
        local, connection = self._state.local, seat.connection
        seat.lose()
        if seat.shown is not None:
            seat.shown.close()
        if connection is None:
            return
        if seat.place != HERE:
            self._pod.kill(seat.place, seat.name, patience)
            connection.leave()
        elif local is not None and local.lives:
            connection.end(patience)
        else:  # it ends with the first process
            connection.close()

    def make_room(self, milli: int = 0, at: Collection[str] | None = None) -> None:
        """End the kernels that rest and were given more than an amount: the server is about to have that only.

        ``at``: only in these places.
        """
        self._end_resting(lambda seat: milli_of(seat.given) > milli and (at is None or seat.place in at))

    def close(self) -> None:
        """End the own worker, and the kernels in others."""
        state, self._state = self._state, _State()
        with state.changed:
            if state.follower is not None:
                state.follower.end()
        for seat in state.resting:
            self._end(seat, _LAST_PATIENCE)
        for seat in state.working.values():  # of threads; those here end with the first process
            if seat.place != HERE and seat.connection is not None:
                self._pod.kill(seat.place, seat.name, _LAST_PATIENCE)
        if state.local is not None:
            state.local.close()
        self._pod.close()

    def _newer(self, view: View) -> View:
        known = self._state.view
        return view if known is None or _is_older(known, view) else known

    def _has_room(self, ticket: int, wanted: Wanted, view: View) -> bool:
        chosen = wanted(view)
        if chosen is None:
            return False
        working = [Choice(one.place, one.given) for one in self._state.working.values()]
        earlier = [other(view) for before, other in self._state.waiting.items() if before < ticket]
        return has_room(chosen, working, earlier, MAX_KERNELS)

    def _connect(self, seat: Seat, view: View) -> None:
        """Connect to a kernel: to the one of before, where only the connection was lost, or to a new one."""
        before = seat.connection
        if seat.place == HERE:
            if before is not None:
                self.end(seat)
            connection = self._own(seat)
        else:
            connection = self._pod.connect(seat.place, seat.name, str(Path.cwd()), before)
        if before is not None and connection.continues(before):
            before.leave()
            self._adopt(seat, connection)
            return
        seat.lose()
        try:
            path = sys.path if seat.place == HERE else ()  # on another node it imports what is there
            there = connection.begin(path, visible_values(seat.given, view, seat.place))
            if why := packages.refusal(versions.loaded(), there):
                raise WorkerRefused(why)
        except BaseException:
            with suppress(WorkerLost, WorkerRefused):
                connection.kill(_PATIENCE)
            connection.close()
            raise
        seat.sources = Sources(Path.cwd(), known=seat.place == HERE)
        self._adopt(seat, connection)

    def _adopt(self, seat: Seat, connection: Connection) -> None:
        if seat.shown is not None:
            seat.shown.close()
        seat.connection, seat.shown = connection, Shown(connection)

    def _own(self, seat: Seat) -> Connection:
        """Return a connection to a new kernel of the own worker, which is started where there is none."""
        state = self._state
        with state.changed:
            if state.local is None or not state.local.lives:
                if state.local is not None:
                    state.local.close()
                state.local = LocalWorker()
            address = state.local.address
        try:
            return Connection(address, seat.name, str(Path.cwd()), ask=self._kept.ask)
        except BaseException:
            with suppress(WorkerLost, WorkerRefused):
                self._kept.ask(address, Kill(seat.name), _PATIENCE)
            raise

    def _end_resting(self, ends: Callable[[Seat], bool]) -> None:
        state = self._state
        with state.changed:
            ended = [seat for seat in state.resting if ends(seat)]
            state.resting = [seat for seat in state.resting if seat not in ended]
            self._unfollow()
        for seat in ended:
            self.end(seat)

    def _follow(self, view: View) -> None:
        """Hear of changes of the GPUs while there are kernels."""
        state = self._state
        if state.follower is None:
            state.view, state.follower = view, ViewFollower(self._client)
            job = threading.Thread(
                target=self._run, args=(state, state.follower, view), name="jupyter-gpu-worker", daemon=True
            )
            job.start()

    def _unfollow(self) -> None:
        state = self._state
        if state.follower is not None and not (state.resting or state.working or state.watchers):
            state.follower.end()
            state.follower = state.view = None

    def _run(self, state: _State, follower: ViewFollower, view: View) -> None:
        for new in follower.views(view):
            if isinstance(new, GpuError):
                log.info("Changes of the GPUs are not heard of now, and it is tried again: %s", new)
                continue
            with state.changed:
                if state.follower is not follower:
                    return
                state.view = new
                state.changed.notify_all()
            try:
                self._end_resting(lambda seat: not seat.kept(new))  # noqa: B023 - called at once
            except Exception:  # the next change is heard of as well
                log.exception("A kernel of the worker could not be ended.")

    def _forked(self) -> None:
        state, self._state = self._state, _State()
        self._kept = KeptQuestions()
        self._pod = PodWorkers(self._client, self._kept)
        for seat in (*state.resting, *state.working.values()):
            seat.lose()
        if state.local is not None:
            state.local.forget()


def _is_older(view: View, other: View) -> bool:
    """Tell whether a view says nothing that another one does not."""
    return view.instance == other.instance and view.version <= other.version


def visible_values(given: Gpus, view: View, place: str = HERE) -> dict[str, str]:
    """Return the variables of a process that sees some GPUs of a place, such as ``CUDA_VISIBLE_DEVICES``.

    On the own node the user's choice for the notebook counts for it as well.
    """
    uuids = [uuid for uuid, _ in given]
    if place == HERE:
        return visible.of_process(os.environ, Hint.of(view), uuids)
    there = next((worker.gpus for worker in view.workers if worker.id == place), ())
    return visible.of_uuids(uuids, [share.uuid for share in there])
