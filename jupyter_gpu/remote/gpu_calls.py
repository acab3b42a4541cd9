"""`gpu.run`, `gpu.arun` and `gpu.map`: functions of this program, called in a process that sees the GPUs of now.

Around each call stands a block of `gpu.at_least`, whose GPUs are on one node. The process is a kernel of a worker there
(`own_worker`). Where the block had to ask for more GPUs than there were, that kernel ends before they are given back.
"""

from __future__ import annotations

import asyncio
import contextvars
import keyword
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from jupyter_gpu.kernel.arguments import fields
from jupyter_gpu.kernel.client import get_status
from jupyter_gpu.model.errors import InvalidRequest, StaleGeneration
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.view import View
from jupyter_gpu.remote import calls, codec
from jupyter_gpu.remote.cell import Cell, CellCode, before_here, forget_old, handle_of, send_modules
from jupyter_gpu.remote.codec import Namespace
from jupyter_gpu.remote.connection import Listener
from jupyter_gpu.remote.errors import CannotSend
from jupyter_gpu.remote.handles import Handle, Handles, Remote
from jupyter_gpu.remote.items import Items
from jupyter_gpu.remote.moves import Moved, NotBroughtError, bring
from jupyter_gpu.remote.newest import Newest
from jupyter_gpu.remote.own_worker import Cancelled, OwnWorker, Seat, Wanted
from jupyter_gpu.remote.rules.keeping import Choice, choice, free_set, gained
from jupyter_gpu.remote.rules.names import CellNames
from jupyter_gpu.remote.rules.shipping import There

if TYPE_CHECKING:
    from jupyter_gpu.kernel.api import Runner
    from jupyter_gpu.kernel.blocks import AtLeast
    from jupyter_gpu.kernel.waiting import Steps

GRACE = 5.0
"""Seconds that a cancelled call may take to end by itself; then its kernel is ended."""


class GpuCalls:
    """The calls of one `gpu`; ``at_least`` makes the block around each."""

    def __init__(self, runner: Runner, at_least: Callable[..., AtLeast]) -> None:
        self._runner, self._at_least = runner, at_least
        self.worker = OwnWorker(lambda: runner.client)
        self._handles = Handles()
        self._newest: Newest[Seat] = Newest()
        self.remote = Remote(self._handles)

    def run(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], gpus: float | str
    ) -> Any:
        """Call a function; see `ServerGpus.run`."""
        milli = amount(gpus)
        call = Call(self.worker, self._newest, function, arguments, named, alone=True, handles=self._handles)
        with self._held(gpus, milli) as (view, _):
            return call.run(lambda now: choice(now, milli), view)

    def keep(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        gpus: float | str,
    ) -> Handle:
        """Call a function; see `ServerGpus.keep`."""
        milli = amount(gpus)
        if not (isinstance(name, str) and name.isidentifier()) or keyword.iskeyword(name):
            raise InvalidRequest(gettext("'name': %1 is not the name of a variable.", repr(name)), field="name")
        call = Call(
            self.worker, self._newest, function, arguments, named, alone=True, stays=name, handles=self._handles
        )
        if self._runner.run(_now()).view.status.requested < milli:
            raise InvalidRequest(
                gettext("What stays in another process needs GPUs that stay: call gpu.resize(%1) before.", gpus),
                field="gpus",
            )
        with self._held(gpus, milli) as (view, _):
            handle: Handle = call.run(lambda now: choice(now, milli), view)
        self._handles.add(handle)
        return handle

    def cell(
        self, code: CellCode, gpus: float | str, timeout: float | None, held: tuple[View, View] | None = None
    ) -> None:
        """Run a cell; raises what it raises.

        ``held``: its GPUs are held already, until it has ended; the views before that and now.
        """
        milli = amount(gpus)
        cell = Cell(self.worker, self._handles, self._newest, namespace(), code)
        holding = self._held(gpus, milli, timeout) if held is None else self._used(*held, milli)
        with holding as (view, ends):
            cell.run(lambda now: choice(now, milli), view, ends=ends)

    def before_here(self, names: Callable[[], CellNames]) -> None:
        """Tell of what workers have newer, before a cell of some names runs in this process; raises `CannotSend`."""
        if self._newest:
            before_here(self._newest, namespace(), names())

    async def arun(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], gpus: float | str
    ) -> Any:
        """Do the same without blocking the event loop."""
        milli = amount(gpus)
        call = Call(self.worker, self._newest, function, arguments, named, handles=self._handles)
        async with self._aheld(gpus, milli) as view:
            return await _in_thread(call, lambda: call.run(lambda now: choice(now, milli), view))

    def map(
        self, function: Callable[..., Any], items: Iterable[Any], gpus: float | str, return_exceptions: bool
    ) -> list[Any]:
        """Call a function with each item; see `ServerGpus.map`."""
        milli = amount(gpus)
        with closing(Items(namespace(), items)) as todo:
            if not todo:
                return []
            calls_of_all = Map(self.worker, self._newest, function, todo, milli, return_exceptions)
            with self._held(gpus, milli) as (view, _):
                return calls_of_all.run(view)

    def make_room(self, milli: int = 0) -> None:
        """End kernels that rest and may have GPUs open, before the server has only some milli."""
        self.worker.make_room(milli)

    @contextmanager
    def _held(self, gpus: float | str, milli: int, timeout: float | None = None) -> Iterator[tuple[View, bool]]:
        """Hold GPUs meanwhile; yield the view of now, and whether the worker's kernels end with the block."""
        before = self._runner.run(_now()).view
        with (
            self._at_least(gpus, timeout=timeout, together=True) as status,
            self._used(before, status.view, milli) as used,
        ):
            yield used

    @contextmanager
    def _used(self, before: View, view: View, milli: int) -> Iterator[tuple[View, bool]]:
        """Do the same in a block that holds them."""
        ends = before.status.requested < milli
        try:
            yield view, ends
        finally:
            if ends:
                self.worker.make_room(at=gained(before, view))

    @asynccontextmanager
    async def _aheld(self, gpus: float | str, milli: int) -> AsyncIterator[View]:
        before = (await self._runner.arun(_now())).view
        async with self._at_least(gpus, together=True) as status:
            try:
                yield status.view
            finally:
                if before.status.requested < milli:
                    await asyncio.to_thread(self.worker.make_room, 0, gained(before, status.view))


class Call:
    """One call: its function is read when it is made, and runs once."""

    def __init__(
        self,
        worker: OwnWorker,
        newest: Newest[Seat],
        function: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        *,
        alone: bool = False,
        stays: str | None = None,
        handles: Handles | None = None,
    ) -> None:
        """Raises `CannotSend`. ``alone``: no other one is made meanwhile by this thread, so it can ask the user.

        ``stays``: the name under which the result stays in the kernel; a handle is returned. ``handles``: those of the
        notebook; None: others make this call at the same time, and what it changes in values of workers counts for
        its own kernel alone.
        """
        self._worker, self._newest, self._alone, self._stays = worker, newest, alone, stays
        self._handles = handles
        self._ticket = worker.ticket()
        self._space = namespace()
        self._prepared = calls.prepare(self._space, function, arguments, named)
        self._seat: Seat | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    def run(self, wanted: Wanted, view: View) -> Any:
        """Run it in a kernel with some GPUs; returns and raises as the function does."""
        try:
            seat, moved = self._take(wanted, view)
            assert seat.connection is not None
            assert seat.shown is not None
            send_modules(seat, self._prepared.modules)
            listener = seat.shown.listener(alone=self._alone)
            self._push(seat, moved, listener)
            try:
                result = calls.perform(
                    seat.connection, self._space, self._prepared.chunks, listener, kept=seat.there, stays=self._stays
                )
            finally:
                self._note_used(seat)
            if self._stays is None:
                return result
            here = codec.measure(self._space, {self._stays}, follow=False).fingerprints.get(self._stays)
            seat.there[self._stays] = There(here, newer=True)
            self._newest.changed(self._stays, seat)
            return handle_of(seat, self._newest, self._space, self._stays, result)
        except BaseException as error:
            if self._seat is not None and (said := self._seat.end_sentence()):
                error.add_note(said)
            raise
        finally:
            with self._lock:
                self._seat = None
            self._worker.rest(self)

    def _take(self, wanted: Wanted, view: View) -> tuple[Seat, list[Moved]]:
        """Return a kernel, and the values of other kernels that it needs.

        No kernel is held while those of others are waited for: two calls could wait for each other.
        """
        moved: list[Moved] = []
        while True:
            self._seat = seat = self._worker.take(self, self._ticket, wanted, view, lambda: self._cancelled)
            if self._cancelled:
                raise Cancelled
            forget_old(self._newest, seat)
            held = self._newest.held(self._prepared.elsewhere)
            needed = {name for name, kernels in held.items() if seat not in kernels}
            moved = [one for one in moved if all(one.kernel in held.get(name, ()) for name in one.names)]
            missing = needed - {name for one in moved for name in one.names}
            for name, handle in self._prepared.elsewhere.items():
                if isinstance(handle, Handle) and handle.is_lost and name not in held.keys() | seat.there.keys():
                    handle.get()  # its error
            if not missing:
                return seat, [one for one in moved if not needed.isdisjoint(one.names)]
            with self._lock:
                self._seat = None
            self._worker.rest(self)
            try:
                moved += bring(self._worker, self._newest, missing, alone=self._alone)
            except NotBroughtError as error:
                raise CannotSend(gettext("%1 is in the worker on %2 and cannot be brought: %3. Nothing was called.",
                                         error.name, error.where, error.reason)) from None  # fmt: skip

    def _push(self, seat: Seat, moved: Sequence[Moved], listener: Listener) -> None:
        """Give a kernel what comes from others."""
        assert seat.connection is not None
        chunks = [chunk for one in moved for chunk in one.chunks]
        if chunks and (failed := seat.connection.push(chunks, listener)):
            name, reason = min(failed.items())
            raise CannotSend(gettext("%1, which the function uses, cannot be sent: %2.", name, reason))
        for kernel, name in ((one.kernel, name) for one in moved for name in one.names):
            if kernel in self._newest.holders(name):  # else it is lost, or newer elsewhere by now
                seat.there[name] = There(kernel.there[name].here, newer=True)
                self._newest.copied(name, seat)

    def _note_used(self, seat: Seat) -> None:
        """Note that the call may have changed values of workers: those that others have are old then."""
        for name in self._prepared.elsewhere if self._handles is not None else ():
            if seat in self._newest.holders(name) and self._handles is not None:
                self._newest.used(name, seat)
                before = self._handles.by_name.get(name)
                if before is not None and before.where != seat.where:
                    self._handles.add(handle_of(seat, self._newest, self._space, name, before.type, before.size))

    def cancel(self, *, kill: bool = False) -> None:
        """Interrupt it, from another thread; ``kill`` ends its kernel."""
        self._cancelled = True
        with self._lock:  # the kernel serves no other call meanwhile
            seat = self._seat
            if seat is not None and seat.connection is not None and not kill:
                seat.connection.interrupt()
        if kill and seat is not None:
            self._worker.end(seat)
        with self._worker.changed:
            self._worker.changed.notify_all()


class Map:
    """The calls of one `gpu.map`: as many at a time as there are whole sets of GPUs."""

    def __init__(
        self,
        worker: OwnWorker,
        newest: Newest[Seat],
        function: Callable[..., Any],
        items: Items,
        milli: int,
        keep_on: bool,
    ) -> None:
        """Raises `CannotSend` for the first item. ``keep_on``: errors are results, and all items are called."""
        self._worker, self._newest, self._function, self._items = worker, newest, function, items
        self._milli, self._keep_on = milli, keep_on
        self._first: Call | None = self._made(0)
        self._waiting = list(reversed(range(len(items))))
        self._running: dict[int, tuple[Choice, Call]] = {}
        self._results: dict[int, Any] = {}
        self._error: BaseException | None = None

    def run(self, view: View) -> list[Any]:
        """Run all with the GPUs of a view and of those that follow it; return the results in order."""
        changed = self._worker.changed
        with self._worker.watched(view):
            try:
                while True:
                    with changed:
                        changed.wait_for(lambda: self._is_over or self._free or self._is_overruled)
                        if self._is_over:
                            break
                        if self._is_overruled:
                            raise _overruled(self._view)
                        given, now = self._free, self._view
                    assert given is not None
                    self._start(self._waiting.pop(), given, now)
            finally:
                self._stop()
        if self._error is not None:
            raise self._error
        return [self._results[index] for index in range(len(self._items))]

    @property
    def _view(self) -> View:
        view = self._worker.view
        assert view is not None  # it is watched
        return view

    @property
    def _is_over(self) -> bool:
        return self._error is not None or not (self._waiting or self._running)

    @property
    def _is_overruled(self) -> bool:
        """Whether nothing runs, and the server no longer wants the GPUs of one call."""
        return not (self._running or self._free) and self._view.status.requested < self._milli

    @property
    def _free(self) -> Choice | None:
        """The GPUs for the next call; None if there is none to start now."""
        if not self._waiting:
            return None
        return free_set(self._view, self._milli, [given.gpus for given, _ in self._running.values()])

    def _made(self, index: int) -> Call:
        return Call(self._worker, self._newest, self._function, [self._items[index]], {})

    def _start(self, index: int, given: Choice, view: View) -> None:
        call, self._first = self._first, None
        try:
            call = call or self._made(index)
        except CannotSend as error:
            self._end(index, error, failed=True)
            return
        self._running[index] = given, call

        def job() -> None:
            try:
                outcome, failed = call.run(lambda _: given, view), False
            except BaseException as error:  # the user's own; also an interrupt
                outcome, failed = error, True
            self._end(index, outcome, failed=failed)

        _thread(job)

    def _end(self, index: int, outcome: Any, *, failed: bool) -> None:
        with self._worker.changed:
            self._running.pop(index, None)
            if failed and not self._keep_on:
                self._error = self._error or outcome
            self._results[index] = outcome
            self._worker.changed.notify_all()

    def _stop(self) -> None:
        """End what still runs."""
        for kill in (False, True):
            for _, call in list(self._running.values()):
                call.cancel(kill=kill)
            with self._worker.changed:
                if self._worker.changed.wait_for(lambda: not self._running, GRACE):
                    return


def _overruled(view: View) -> StaleGeneration:
    return StaleGeneration(
        gettext("The server's request was changed meanwhile, and what gpu.map needs is no longer there."),
        current=view.generation,
    )


async def _in_thread(call: Call, work: Callable[[], Any]) -> Any:
    """Run a call in a thread that the end of this program does not wait for; a cancelled task ends the call."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def job() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = work(), None
        except BaseException as error:  # the user's own
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(done.set_result, outcome)

    _thread(job)
    try:
        result, error = await asyncio.shield(done)
    except asyncio.CancelledError:
        for kill in (False, True):
            if not done.done():
                await asyncio.to_thread(call.cancel, kill=kill)
                await asyncio.wait([done], timeout=GRACE)
        raise
    if error is not None:
        raise error
    return result


def _thread(job: Callable[[], None]) -> None:
    """Run a job in a thread; what it shows belongs to the cell that runs now."""
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(job,), name="jupyter-gpu-call", daemon=True).start()


def _now() -> Steps:
    return (yield get_status())


def amount(gpus: float | str) -> int:
    """Return how many GPUs a call needs, in milli; raises `InvalidRequest`."""
    milli = int(fields(gpus)["milli"])
    if not milli:
        raise InvalidRequest(
            gettext("'gpus': a call in another process needs more than 0. What needs no GPU can be called directly."),
            field="gpus",
        )
    return milli


def namespace() -> Namespace:
    """Return the names of the notebook, or of the program."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    found: Namespace = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    return found
