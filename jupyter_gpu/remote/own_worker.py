"""The worker of this process: its kernels serve calls, rest between them, and end before their GPUs are given back.

`keeping` says which kernel serves which call, and how long one is kept. The first process of the worker starts with the
first call and ends with this process. A process that is forked from this one has none of it, and starts its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules.visible import OURS, VISIBLE, chosen, named, narrowed
from jupyter_gpu.kernel.client import Client
from jupyter_gpu.kernel.follower import ViewFollower
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.view import View
from jupyter_gpu.remote import versions
from jupyter_gpu.remote.connection import Connection, Listener, ask
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.handles import Handle
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.output import Shown
from jupyter_gpu.remote.rules import packages
from jupyter_gpu.remote.rules.control import MAX_KERNELS, Kill
from jupyter_gpu.remote.rules.keeping import Gpus, is_kept, milli_of, share_one
from jupyter_gpu.remote.rules.shipping import There
from jupyter_gpu.remote.sources import Sources

log = logging.getLogger(__name__)

_SETUP = f"""
import os, sys
sys.path[:] = {{path!r}}
os.environ[{VISIBLE!r}] = {{visible!r}}
os.environ.pop({OURS!r}, None)
del os, sys
"""
"""The code that a new kernel runs first: it imports what this process can import, and sees the GPUs that it was given,
as if a user had chosen them: also those that come later are not added.
"""
_PATIENCE = 5.0

Wanted = Callable[[View], Gpus]
"""The GPUs that a call wants of those in a view."""


@dataclass(eq=False)
class Seat:
    """A kernel of the worker, or the place of one that is being started, with the GPUs that it was given."""

    given: Gpus
    since: View
    """The view by which it was given them."""
    connection: Connection | None = None
    shown: Shown | None = None
    sources: Sources | None = None
    """The modules that it may have loaded."""
    there: dict[str, There] = field(default_factory=dict)
    """The names that its namespace has from cells, or for them."""
    handles: list[Handle] = field(default_factory=list)
    """Handles of values that it has."""

    def kept(self, view: View | None) -> bool:
        """Tell whether it is kept as it rests, by the latest view."""
        if self.connection is None or not self.connection.lives():
            return False
        return view is None or _is_older(view, self.since) or is_kept(self.given, view)

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
        self._state = _State()
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

    def has(self, name: str) -> bool:
        """Tell whether a kernel that rests has a name from cells."""
        with self._state.changed:
            return any(name in seat.there for seat in self._state.resting)

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

    def take(self, call: object, wanted: Wanted, view: View, cancelled: Callable[[], bool]) -> Seat:
        """Return a kernel for a call, until `rest`; waits for calls that use one of the GPUs that it wants.

        ``view`` is what the caller knows; a newer one counts. Raises `WorkerLost`, `WorkerRefused`, and `Cancelled`
        once ``cancelled()`` is true and `changed` was notified.
        """
        state = self._state
        with state.changed:
            state.changed.wait_for(lambda: cancelled() or self._has_room(wanted(self._newer(view))))
            if cancelled():
                raise Cancelled
            view = self._newer(view)
            given = wanted(view)
            seat = next((one for one in state.resting if one.given == given), None) or Seat(given, view)
            seat.since = view
            others = [one for one in state.resting if one is not seat]
            ended = [one for one in others if share_one(one.given, given)]
            others = [one for one in others if one not in ended]
            ended += others[: max(0, len(others) + len(state.working) + 1 - MAX_KERNELS)]  # the oldest
            state.resting = [one for one in others if one not in ended]
            state.working[call] = seat
            self._follow(view)
        try:
            for one in ended:
                self.end(one)
            if seat.connection is not None and not seat.connection.lives():
                self.end(seat)
                seat.connection = None
            if seat.connection is None:
                self._start(seat, view)
            assert seat.connection is not None
            assert seat.sources is not None
            if changed := seat.sources.changed():
                seat.connection.reload(changed)
        except BaseException:
            self.rest(call, end=True)
            raise
        return seat

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
        local = self._state.local
        seat.lose()
        if seat.shown is not None:
            seat.shown.close()
        if seat.connection is None:
            return
        if local is not None and local.lives:
            seat.connection.end(_PATIENCE)
        else:  # it ends with the first process
            seat.connection.close()

    def make_room(self, milli: int = 0) -> None:
        """End the kernels that rest and were given more than an amount: the server is about to have that only."""
        self._end_resting(lambda seat: milli_of(seat.given) > milli)

    def close(self) -> None:
        """End the worker."""
        state, self._state = self._state, _State()
        with state.changed:
            if state.follower is not None:
                state.follower.end()
        for seat in state.resting:
            assert seat.connection is not None
            seat.lose()
            seat.connection.close()
        if state.local is not None:
            state.local.close()

    def _newer(self, view: View) -> View:
        known = self._state.view
        return view if known is None or _is_older(known, view) else known

    def _has_room(self, given: Gpus) -> bool:
        working = self._state.working
        return len(working) < MAX_KERNELS and not any(share_one(one.given, given) for one in working.values())

    def _start(self, seat: Seat, view: View) -> None:
        state = self._state
        with state.changed:
            if state.local is None or not state.local.lives:
                if state.local is not None:
                    state.local.close()
                state.local = LocalWorker()
            address = state.local.address
        name = secrets.token_hex(8)
        try:
            connection = Connection(address, name, str(Path.cwd()))
            if why := packages.refusal(versions.loaded(), connection.versions()):
                connection.close()
                raise WorkerRefused(why)
        except BaseException:
            with suppress(WorkerLost, WorkerRefused):
                ask(address, Kill(name), _PATIENCE)
            raise
        seat.connection = connection
        seat.sources = Sources(Path.cwd())
        seat.shown = Shown(connection)
        visible = visible_value(seat.given, view)
        connection.run(_SETUP.format(path=sys.path, visible=visible), Listener())

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
        for seat in (*state.resting, *state.working.values()):
            seat.lose()
        if state.local is not None:
            state.local.forget()


def _is_older(view: View, other: View) -> bool:
    """Tell whether a view says nothing that another one does not."""
    return view.instance == other.instance and view.version <= other.version


def visible_value(given: Gpus, view: View) -> str:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` for a process that sees some GPUs of a view.

    The user's choice for the notebook counts for it as well.
    """
    hint, names = Hint.of(view), {uuid for uuid, _ in given}
    gpus = [gpu for gpu in hint.gpus if gpu.uuid in names]
    own = chosen(os.environ)
    if own is not None and not view.simulated:
        only = Hint(hint.instance, hint.version, hint.simulated, tuple(gpus), hint.enforced)
        return ",".join(narrowed(own, only, os.environ))
    return ",".join(named(gpus, hint, os.environ))
