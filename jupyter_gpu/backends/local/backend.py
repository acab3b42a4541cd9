"""The backend of one machine as the server sees it: everything that blocks happens in one worker thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from jupyter_gpu.backends.base import Listener
from jupyter_gpu.backends.view_feed import ViewFeed
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.reservation import WishChange
from jupyter_gpu.model.view import Sample, View

from .pod_start import PodStart
from .processes.pod_ends import PodEnds
from .records import notify
from .settings import Settings

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import Details
    from jupyter_gpu.model.machine import Machine, Shown

    from .job_result import JobResult
    from .limits.watch import LimitsFileWatch
    from .pod import Pod

T = TypeVar("T")

FIRST_RECONCILE = 0.05
"""Seconds after the start until the pod is reconciled by itself: what it loads for that must not delay the server."""

_log = logging.getLogger(__name__)


class LocalBackend:
    """The `Backend` of the machine that the server runs on."""

    name = "local"

    def __init__(self, settings: Settings | None = None) -> None:
        self._pod_start = PodStart(settings or Settings())
        self._pod: Pod | None = None
        """The pod with its jobs, made by the first of them in the worker thread."""
        self._feed = ViewFeed(self._pod_start.view)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="jupyter-gpu")
        self._watch = PodEnds(self._wake)
        self._timer: asyncio.TimerHandle | None = None
        self._notified: socket.socket | None = None
        self._limit_watch: LimitsFileWatch | None = None
        self._waking = False
        self._guarded = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that kernels of this pod must have; also set in this process's own environment."""
        return self._pod_start.environment

    async def search_path(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the search path of libraries that a kernel with this environment must have, where it has one."""
        return await asyncio.to_thread(self._pod_start.search_path, dict(environ))

    async def guard(self) -> None:
        """Guard the GPUs and join the other servers; a server waits for it."""
        self._loop = asyncio.get_running_loop()
        await asyncio.wrap_future(self._worker.submit(self._close_gpus))

    def _close_gpus(self) -> None:
        try:
            self._pod_start.close_gpus()
        finally:
            self._guarded.set()

    def await_guard(self) -> None:
        """Block until the pod is guarded, or could not be; only after the first step of `guard`."""
        self._guarded.wait()

    async def start(self) -> None:
        """Load the jobs of the pod; what takes long (finding real GPUs) goes on in the background."""
        if self._loop is None:
            await self.guard()
        watch = await self._do(lambda pod: pod.watch_limits())
        if self._loop is None:  # stopped meanwhile
            watch.close()
            return
        self._limit_watch = watch
        if (descriptor := watch.fileno()) is not None:
            self._loop.add_reader(descriptor, self._folder_changed, watch)
        self._loop.call_later(FIRST_RECONCILE, self._wake)

    def _folder_changed(self, watch: LimitsFileWatch) -> None:
        watch.drain()
        if self._pod and self._pod.limits_changed:  # mostly another file beside it
            self._wake()

    def view(self) -> View:
        """Return the latest view; never blocks."""
        return self._feed.latest

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear of each new view; the returned function ends it."""
        return self._feed.subscribe(listener)

    async def request(self, wish: Wish | WishChange, generation: int | None = None) -> View:
        """Record the wish, decide, attach; the view after that. See `Backend`."""
        await self._do(lambda pod: pod.request(wish, generation))
        return self._feed.latest

    async def sample(self) -> Sample:
        """Sample the load of the pod's GPUs now, and who has them open."""
        loads, shares = await self._do(lambda pod: pod.sample())
        return Sample(time=time.time(), loads=loads, shares=shares)  # a time to show in charts; no decision sees it

    async def details(self) -> Details:
        """Return limits, rates and memory by process of the pod's GPUs."""
        from jupyter_gpu.model.details import Details

        return Details(time.time(), await self._do(lambda pod: pod.details()))

    async def machine(self, shown: Shown) -> Machine:
        """Return all GPUs of this machine, as far as ``shown`` goes."""
        return await self._do(lambda pod: pod.machine(shown))

    async def stop(self) -> None:
        """Give back what no process has open any more; the rest when its last process ends. Safe to call twice."""
        if self._loop is None:
            return
        done = self._submit(lambda pod: pod.give_back())
        self._loop = None  # before the goodbye: nothing may bring the pod back after it
        await asyncio.wrap_future(done)
        self._watch.set(())
        if self._timer:
            self._timer.cancel()
        if self._notified:
            asyncio.get_running_loop().remove_reader(self._notified)
            self._notified.close()
            self._notified = None
        if self._limit_watch:
            if (descriptor := self._limit_watch.fileno()) is not None:
                asyncio.get_running_loop().remove_reader(descriptor)
            self._limit_watch.close()
            self._limit_watch = None
        self._worker.shutdown(wait=False)

    async def _do(self, job: Callable[[Pod], T]) -> T:
        """Run ``job`` in the worker. What it changed is published even if the caller is gone by then."""
        if self._loop is None:
            raise BackendUnavailable("GPUs are not available: the server is starting or stopping. Try again later.")
        return await asyncio.wrap_future(self._submit(job))

    def _submit(self, job: Callable[[Pod], T]) -> Future[T]:
        loop = self._loop

        def run() -> T:
            pod = self._loaded()
            try:
                return job(pod)
            finally:
                outcome = pod.outcome()
                if loop is not None:
                    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nothing is left to tell
                        loop.call_soon_threadsafe(self._finish_job, outcome)

        return self._worker.submit(run)

    def _loaded(self) -> Pod:
        if self._pod is None:
            from .pod import Pod  # with the first job: the start of a server need not wait for what it imports

            self._pod = Pod(self._pod_start)
        return self._pod

    def _wake(self) -> None:
        """Reconcile soon. Many calls before it happens are one."""
        if self._waking or self._loop is None:
            return
        self._waking = True
        self._submit(self._reconcile)

    def _reconcile(self, pod: Pod) -> None:
        self._waking = False  # before it: what happens from now on needs another one
        if self._loop is None:
            return
        try:
            pod.reconcile()
            load()
        except Exception:
            _log.exception("GPUs could not be looked after; it is tried again.")

    def _finish_job(self, outcome: JobResult) -> None:
        """Tell the listeners and arrange for the next reconcile, on the event loop, after each job."""
        if self._loop is None:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if outcome.due is not None:
            self._timer = self._loop.call_later(max(0.0, outcome.due - time.monotonic()), self._wake)
        self._watch.set(outcome.watch)
        self._listen(outcome.socket)
        if outcome.view.version > self._feed.latest.version:
            self._feed.publish(outcome.view)

    def _listen(self, notified: socket.socket | None) -> None:
        if notified is self._notified or self._loop is None:
            return
        if self._notified:
            self._loop.remove_reader(self._notified)
            self._notified.close()
        self._notified = notified
        if notified:
            self._loop.add_reader(notified, self._heard, notified)

    def _heard(self, notified: socket.socket) -> None:
        notify.drain(notified)
        self._wake()


def load() -> None:
    """Load all that looking after GPUs needs, once: neither a start nor the request for the first GPU waits for it.

    Later it could be too late: a package that is replaced on the disk has modules that do not fit those in memory, and
    a server that cannot load one would take no GPU away any more.
    """
    import zoneinfo  # noqa: F401

    from jupyter_gpu.model import limit_words, refusal  # noqa: F401
    from jupyter_gpu.model.limits import machine_file  # noqa: F401
    from jupyter_gpu_node.agent.rules import plan, use_class  # noqa: F401

    from . import cleanup, decision, pod  # noqa: F401
    from .scans import holder_scan, used_gpus  # noqa: F401
    from .sharing import ending, front  # noqa: F401
    from .sharing.rules import memory_room, revocation  # noqa: F401
