"""`gpu.on_change`: callbacks for changes of the GPUs that can be used here.

One thread asks the server for all callbacks of a `gpu`. If there is an event loop, that loop calls them: in a kernel it
is the main thread's, so a callback runs between cells, or while a cell awaits something. A callback that could not be
called for a while is called once with all the changes together.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jupyter_gpu.kernel.reports.status import GpuDevice, GpuStatus, devices
from jupyter_gpu.model.errors import GpuError

from .client import Client, get_status
from .follower import ViewFollower

if TYPE_CHECKING:
    from jupyter_gpu.model.view import View

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class GpuChange:
    """The argument of a `gpu.on_change` callback: the GPUs that can be used now, and the difference from before."""

    status: GpuStatus
    """Status now, as `gpu.status()` returns it."""
    added: tuple[GpuDevice, ...]
    """GPUs that can be used now, and could not before."""
    removed: tuple[GpuDevice, ...]
    """GPUs that cannot be used any more: given back, taken, or broken."""
    resized: tuple[GpuDevice, ...]
    """GPUs of which you have another part now."""

    def __repr__(self) -> str:
        parts = (("added", self.added), ("removed", self.removed), ("resized", self.resized))
        told = [f"{what} {_named(some)}" for what, some in parts if some]
        return f"{self.status.sentence} ({'; '.join(told)})"


def _named(gpus: tuple[GpuDevice, ...]) -> str:
    own = ", ".join(str(one.index) for one in gpus if not one.remote)
    return ", ".join([*([f"GPU {own}"] if own else []), *(one.name for one in gpus if one.remote)])


Callback = Callable[[GpuChange], Awaitable[object] | object]
Report = Callable[["View"], GpuStatus]


def difference(before: tuple[GpuDevice, ...], status: GpuStatus) -> GpuChange | None:
    """Return the change from ``before`` to ``status``; None if there is none."""
    old = {one.uuid: one for one in before}
    new = {one.uuid: one for one in status.devices}
    change = GpuChange(
        status=status,
        added=tuple(one for uuid, one in new.items() if uuid not in old),
        removed=tuple(one for uuid, one in old.items() if uuid not in new),
        resized=tuple(one for uuid, one in new.items() if uuid in old and one.milli != old[uuid].milli),
    )
    return change if change.added or change.removed or change.resized else None


class Subscription:
    """The handle that `gpu.on_change` returns: `cancel()` ends the calls, and so does the end of a `with` block."""

    def __init__(self, hub: Changes, callback: Callback, view: View) -> None:
        self._hub, self._callback = hub, callback
        self._told = devices(view)
        self._view = view
        self._due = False
        self._lock = threading.Lock()
        self._loop = _loop()
        self._context = contextvars.copy_context()  # what the callback prints belongs to the cell that registered it
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def active(self) -> bool:
        """Whether the callback is still called."""
        return not self._cancelled

    def cancel(self) -> None:
        """Stop calling it; a call that is under way goes on. Safe to call twice."""
        self._cancelled = True
        self._hub.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def __repr__(self) -> str:
        name = getattr(self._callback, "__qualname__", None) or repr(self._callback)
        return f"<{'calls' if self.active else 'called'} {name} when the GPUs change>"

    def see(self, view: View) -> None:
        """Schedule the callback; can be called in any thread."""
        with self._lock:
            if view.instance == self._view.instance and view.version <= self._view.version:
                return
            self._view = view
            if self._due:
                return
            self._due = True
        self._arrange()

    def _arrange(self) -> None:
        if self._loop is None:
            self._context.run(self._tell)
            return
        try:
            self._loop.call_soon_threadsafe(self._tell, context=self._context)
        except RuntimeError:  # the loop was closed, and with it the program that this was for
            self.cancel()

    def _tell(self) -> None:
        with self._lock:
            self._due, view = False, self._view
        if self._cancelled or self._task is not None:  # what is under way looks again at its end
            return
        change = difference(self._told, self._hub.report(view))
        if change is None:
            return
        self._told = change.status.devices
        try:
            found = self._callback(change)
        except Exception:
            self._log()
            return
        if inspect.isawaitable(found):
            if self._loop is None:
                asyncio.run(self._finish(found))
            else:
                self._task = self._loop.create_task(self._finish(found), context=self._context)
                self._task.add_done_callback(self._ended, context=self._context)

    async def _finish(self, found: Awaitable[object]) -> None:
        try:
            await found
        except Exception:
            self._log()

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._task = None
        self._tell()

    def _log(self) -> None:
        log.exception("%r: the callback failed. It is called again at the next change.", self)


class Changes:
    """All callbacks of one `gpu`."""

    def __init__(self, client: Callable[[], Client], report: Report) -> None:
        self.report = report
        self._client = client
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._follower: ViewFollower | None = None
        self._thread: threading.Thread | None = None

    def add(self, callback: Callback) -> Subscription:
        """Call ``callback`` from now on. Raises GpuError if the server does not answer."""
        if not callable(callback):
            raise TypeError(f"gpu.on_change takes a function to call, not {callback!r}.")
        view = self._client().send(get_status())
        made = Subscription(self, callback, view)
        with self._lock:
            self._subscriptions = (*self._subscriptions, made)
            if self._thread is None or not self._thread.is_alive():  # after a fork it is not
                follower = self._follower = ViewFollower(self._client)
                self._thread = threading.Thread(
                    target=self._follow, args=(follower, view), name="jupyter-gpu-changes", daemon=True
                )
                self._thread.start()
        return made

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; the last one ends the thread."""
        with self._lock:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
            if self._subscriptions or self._follower is None:
                return
            follower, self._follower, self._thread = self._follower, None, None
        follower.end()

    def _follow(self, follower: ViewFollower, view: View) -> None:
        for new in follower.views(view):
            if isinstance(new, GpuError):
                log.info("Changes of the GPUs are not heard of now, and it is tried again: %s", new)
                continue
            for subscription in self._subscriptions:
                try:
                    subscription.see(new)
                except Exception:  # the other callbacks, and the next change
                    log.exception("A change of the GPUs could not be told.")


def _loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs here, or that of the kernel; None if there is neither."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        found: Any = getattr(getattr(getattr(shell, "kernel", None), "io_loop", None), "asyncio_loop", None)
        return found if isinstance(found, asyncio.AbstractEventLoop) else None
