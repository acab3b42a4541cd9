"""The kernel of a worker: an IPython kernel with messages of ours, and with interrupts that are never lost.

Names and values travel by two requests on the shell channel:

- ``gpu_push``: buffers are bound in the namespace (`codec.load`); its reply names what could not be loaded.
- ``gpu_pull``: the reply brings names, up to a number of bytes, and names what could not be sent.
- ``gpu_bulk``: a connection by TLS is opened, by which the buffers of both others go where they are large.
- ``gpu_begin``: the first request to a new kernel: which GPUs it sees and from where it imports; the reply has the
  versions of packages on which pickled values depend.
- ``gpu_sources``: sources of modules; those that are loaded there are run again, others can be imported.

It is to be known what a cell did (`watched.Watch`):

- ``watch`` in an ``execute_request``: names are deleted, and what the cell assigns is watched; the cell has a number.
- ``gpu_outcome``: the reply names what the cell assigned, deleted and changed, with sizes of what it assigned.

After an error with which CUDA ends for this process, each reply has its code (``sticky``).

Stock ipykernel raises KeyboardInterrupt wherever it is between two cells, or drops it, and then no reply comes. Here
``interrupt_request`` says which request it means (``of``): SIGINT is raised once, and inside that request only. If it
comes before its request, it waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from ipykernel.ipkernel import IPythonKernel

from jupyter_gpu.common.rules import visible
from jupyter_gpu.remote import certificates, codec, versions
from jupyter_gpu.remote.bulk import is_large
from jupyter_gpu.remote.rules.names import CellNames
from jupyter_gpu.remote.rules.shipping import LIMIT
from jupyter_gpu.remote.sources import Sent, Source
from jupyter_gpu.remote.unusable import sticky_code
from jupyter_gpu.remote.watched import Watch
from jupyter_gpu.worker.bulk import BulkServer

Reply = dict[str, Any]
OURS = ("gpu_push", "gpu_pull", "gpu_bulk", "gpu_begin", "gpu_sources", "gpu_outcome")
"""Requests on the shell channel beside those of ipykernel."""
MAX_EARLY = 100
"""Interrupts that wait for their requests."""


class GpuKernel(IPythonKernel):  # type: ignore[misc] # it has no types
    """The kernel of a worker."""

    msg_types: ClassVar = [*IPythonKernel.msg_types, *OURS]
    control_msg_types: ClassVar = [name for name in IPythonKernel.control_msg_types if name != "execute_request"]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._running: str | None = None
        self._due: str | None = None
        self._early: dict[str, None] = {}
        self._bulk = BulkServer()
        self._watch: Watch | None = None
        self._sent = Sent()
        self._sticky: int | None = None
        signal.signal(signal.SIGINT, self._on_sigint)

    def pre_handler_hook(self) -> None:
        """Leave the handler of SIGINT as it is, and so in `post_handler_hook`."""

    def post_handler_hook(self) -> None:
        """See `pre_handler_hook`."""

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Interrupt the request that is named, now or as soon as it begins. In the control thread."""
        self.interrupt(parent["content"].get("of", self._running))
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def interrupt(self, of: Any = None) -> None:
        """Interrupt a request by its id, or the one that runs. In another thread than it."""
        of = of or self._running
        if isinstance(of, str):
            # In this order, and the other way round in `_interruptible`: one of both sees what the other did.
            self._early[of] = None
            for old in list(self._early)[:-MAX_EARLY]:
                self._early.pop(old, None)
            if self._running == of:
                self._due = of
                self._send_interrupt_children()
                self.io_loop.add_callback(lambda: None)  # a cell that awaits: its loop looks for signals when it wakes

    def _on_sigint(self, *_: object) -> None:
        due, self._due = self._due, None
        if due is not None and due == self._running:
            self._early.pop(due, None)
            raise KeyboardInterrupt

    async def _interruptible(self, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Do the work of the current request; return an error if it is interrupted, wherever that is."""
        request = str(self.get_parent("shell")["header"]["msg_id"])
        try:
            try:
                self._running = request
                if request in self._early:
                    raise KeyboardInterrupt
                return await work()
            finally:
                self._running = None
        except KeyboardInterrupt as error:
            self._running = None
            return _failed(error)
        finally:
            self._early.pop(request, None)

    async def do_execute(self, *args: Any, **kwargs: Any) -> Reply:
        """Run a cell, and watch what it does where the request says so."""
        watch = self.get_parent("shell")["content"].get("watch")

        async def work() -> Reply:
            if watch is not None:
                self._begin_watch(watch)
            before = getattr(sys, "last_value", None)
            reply: Reply = await super(GpuKernel, self).do_execute(*args, **kwargs)
            shown = getattr(sys, "last_value", None)
            if reply["status"] == "error" and shown is not before:
                self._note(sticky_code(shown))
            return reply

        reply = await self._interruptible(work)
        return {"execution_count": self.execution_count, "user_expressions": {}, "payload": [], **self._marked(reply)}

    async def gpu_push(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Bind what was sent."""

        async def work() -> Reply:
            parts = self._bulk.receive() if parent["content"].get("bulk") else parent["buffers"]
            chunks = codec.read_frames(parent["content"]["chunks"], parts)
            return {"status": "ok", "failed": codec.load(self.shell.user_ns, chunks)}

        await self._answer(stream, ident, parent, work, [])

    async def gpu_pull(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Send names."""
        parts: list[Any] = []

        async def work() -> Reply:
            asked, space = parent["content"], self.shell.user_ns
            copies = bool(asked.get("host_copies"))
            found = codec.measure(space, asked["names"], limit=asked.get("limit"), host_copies=copies, follow=False)
            self._note(found.sticky)
            header, made = codec.frames(codec.chunks(space, found, found.pickled, host_copies=copies))
            by_tls = is_large(made) and bool(asked.get("bulk"))
            if is_large(made) and not by_tls and asked.get("connect"):
                return {"status": "ok", "connect": True, "bulk": False}
            if by_tls:
                self._bulk.send(made)
            else:
                parts.extend(made)
            answer = {"chunks": header, "failed": dict(found.failed), "large": sorted(found.large)}
            return {"status": "ok", **answer, "bulk": by_tls}

        await self._answer(stream, ident, parent, work, parts)

    async def gpu_bulk(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Listen for the connection by TLS, for the peer whose certificate was sent."""

        async def work() -> Reply:
            peer = certificates.read_certificate(parent["content"]["certificate"], "certificate")
            run = self.parent.run
            port, certificate = self._bulk.listen(run.address, peer, run.bulk)
            return {"status": "ok", "port": port, "certificate": certificate}

        await self._answer(stream, ident, parent, work, [])

    async def gpu_begin(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """See the GPUs that are named, import from the folders that are, and tell the versions of packages.

        The GPUs count as a user's own choice: also those that come later are not added.
        """

        async def work() -> Reply:
            asked, found = parent["content"], versions.installed()
            if asked["path"]:
                sys.path[:] = asked["path"]
            if asked["visible"] is not None:
                visible.choose(os.environ, asked["visible"])
            return {"status": "ok", "versions": found}

        await self._answer(stream, ident, parent, work, [])

    async def gpu_sources(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Load modules again."""

        async def work() -> Reply:
            self._sent.take([Source(**one) for one in parent["content"]["sources"]], sys.modules)
            return {"status": "ok"}

        await self._answer(stream, ident, parent, work, [])

    def _begin_watch(self, asked: dict[str, Any]) -> None:
        """Watch what the cell does that is about to run."""
        space = self.shell.user_ns
        for name in asked["forget"]:
            space.pop(name, None)
        names = CellNames(assigns=frozenset(asked["assigns"]), deletes=frozenset(asked["deletes"]))
        self._watch = Watch(space, names, set(asked["needed"]))
        self.shell.execution_count = asked["count"]  # tracebacks name the cell by it

    async def gpu_outcome(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Tell what the last cell did that was watched; names of ``outputs`` are not measured."""

        async def work() -> Reply:
            watch, self._watch = self._watch, None
            assert watch is not None
            outcome, space = watch.outcome(), self.shell.user_ns
            measured = outcome.assigned.difference(parent["content"]["outputs"])
            found = codec.measure(space, measured, inline=LIMIT, follow=False)
            self._note(found.sticky)
            return {
                "status": "ok",
                "assigned": sorted(outcome.assigned),
                "deleted": sorted(outcome.deleted),
                "changed": sorted(outcome.changed),
                "unwatched": sorted(outcome.unwatched),
                "sizes": found.sizes,
                "failed": dict(found.failed),
                "large": sorted(found.large),
                "kinds": {name: type(space[name]).__name__ for name in outcome.assigned},
                "present": sorted(space.keys() & set(parent["content"]["outputs"])),
            }

        await self._answer(stream, ident, parent, work, [])

    async def _answer(
        self, stream: Any, ident: Any, parent: dict[str, Any], work: Callable[[], Awaitable[Reply]], parts: list[Any]
    ) -> None:
        """Answer a request of ours, whatever its work raises."""
        try:
            reply = await self._interruptible(work)
        except Exception as error:
            self._note(sticky_code(error))
            reply = _failed(error)
        buffers = parts if reply["status"] == "ok" else []
        kind = parent["header"]["msg_type"] + "_reply"
        self.session.send(stream, kind, self._marked(reply), parent, ident=ident, buffers=buffers)

    def _note(self, sticky: int | None) -> None:
        """Note that this process can use no GPU any more."""
        self._sticky = self._sticky or sticky

    def _marked(self, reply: Reply) -> Reply:
        return reply if self._sticky is None else {**reply, "sticky": self._sticky}


def _failed(error: BaseException) -> Reply:
    lines = traceback.format_exception(error)
    return {"status": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": lines}
