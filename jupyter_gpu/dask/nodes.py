"""Dask's scheduler and worker without a port for their pages, which have no login.

The scheduler's are at a socket of this user, from which the Jupyter server shows them behind its own login
(`server/dask_route.py`). A worker's are nowhere: the scheduler's say the same of it.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Scheduler, Status, Worker
from distributed.http.routing import RoutingApplication
from distributed.protocol.serialize import Serialized
from distributed.utils_comm import gather_from_workers
from tornado.httpserver import HTTPServer

from jupyter_gpu.common import rendezvous
from jupyter_gpu.dask.gateway import NotebookGateway
from jupyter_gpu.dask.rules.targets import Target

YOUNG = 60.0
"""Seconds in which a socket that nobody listens at may belong to a scheduler that is about to."""


class UserScheduler(Scheduler):
    """A scheduler with its pages at the socket ``pages``; ``None``: without. The notebook's gateway is beside it."""

    def __init__(self, pages: str | None, gateway: NotebookGateway, **settings: Any) -> None:
        self._pages = Path(pages) if pages else None
        self.gateway = gateway
        gateway.known = self.knows
        super().__init__(dashboard=bool(pages), **settings)

    def start_http_server(self, routes: Any, *_: Any, **__: Any) -> None:
        """Serve the pages at the socket; Dask would use a port."""
        _without_port(self, routes)
        if self._pages:
            remove_dead(self._pages.parent)
            self.http_server.add_socket(_listen(self._pages))

    def knows(self, target: Target) -> bool:
        """Tell whether a process of this node is the scheduler or one of its workers."""
        address = f"{self.address.partition('://')[0]}://{target.place}:{target.port}"
        return address == self.address or address in self.workers

    async def close(self, *reasons: Any, **settings: Any) -> None:
        """End it, and remove the socket."""
        if self._pages:
            self._pages.unlink(missing_ok=True)
        await super().close(*reasons, **settings)


class UserWorker(Worker):
    """A worker without pages."""

    def start_http_server(self, routes: Any, *_: Any, **__: Any) -> None:
        """Serve nothing; Dask would use a port."""
        _without_port(self, routes)


class ResultKeeper(UserWorker):
    """A worker that takes no tasks, and keeps results as they came, so that what is in them needs no GPU here.

    It is paused from the start, which the scheduler takes to mean: no tasks.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, deserialize=False, **settings)

    @property
    def status(self) -> Any:
        """Its state, which is never that of a worker that takes tasks."""
        return self._status

    @status.setter
    def status(self, value: Any) -> None:
        base: Any = Worker.status
        base.fset(self, Status.paused if value == Status.running else value)

    async def gather(self, who_has: dict[Any, list[str]]) -> Any:
        """Fetch results from workers, and tell which ones could not be had."""
        data, missing, failed, _ = await gather_from_workers(who_has, self.rpc, who=self.address)
        whole: Any = {key: one for key, one in data.items() if isinstance(one, Serialized) and is_whole(one.header)}
        self.update_data(whole, stimulus_id="jupyter-gpu")
        wrong = [*missing, *failed, *(data.keys() - whole.keys())]
        return {"status": "partial-fail", "keys": wrong} if wrong else {"status": "OK"}

    async def get_data(self, comm: Any, keys: Any, who: str | None = None, serializers: Any = None) -> Any:  # noqa: ARG002
        """Send results as they came: Dask would wrap them once more."""
        data = {key: self.data[key] for key in keys if key in self.data}
        try:
            await comm.write({"status": "OK", "data": data}, serializers=serializers)
            await comm.read()
        except OSError:
            comm.abort()
            raise
        return Status.dont_reply


def is_whole(header: Any) -> bool:
    """Tell whether a value could be serialized, and all that is in it: else its error was sent."""
    return header.get("serializer") != "error" and all(map(is_whole, header.get("sub-headers", ())))


def remove_dead(folder: Path) -> None:
    """Remove sockets of schedulers that were killed."""
    for path in folder.glob(rendezvous.dask_socket(folder, "*").name):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as asking, rendezvous.short(str(path)) as address:
            old = path.stat().st_mtime < time.time() - YOUNG
            try:
                asking.connect(address)
            except ConnectionRefusedError:
                if old:
                    path.unlink()


def _without_port(node: Any, routes: Any) -> None:
    application: Any = RoutingApplication  # it has no types
    node.http_application = application(routes)
    node.http_server = HTTPServer(node.http_application)
    node.http_server.port = 0  # Dask names it in settings of its plots that nothing reads here


def _listen(path: Path) -> socket.socket:
    """Return a socket that listens, for this user alone."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        with rendezvous.short(str(path)) as address:
            sock.bind(address)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
