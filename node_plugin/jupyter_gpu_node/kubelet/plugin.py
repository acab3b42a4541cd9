"""The kubelet's device plugin for slots: it serves a socket, registers it, and notices when the kubelet restarts.

A kubelet that restarts removes the sockets of all plugins and knows none of them. And it drops a new registration when
the stream of an older one ends after it. So the order is: end the old socket, serve, register, check that a kubelet
listens. As soon as one of these no longer holds, the plugin starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.processes.folder_watch import FolderWatch
from jupyter_gpu_node.settings import Settings

from .pod_resources import OPTIONS
from .registration import NotRegistered, register
from .service import NAME as SERVICE
from .service import Service

SETTLE_SECONDS = 0.5
"""Between the end of our last socket and the next registration: the kubelet sees the end of a stream a little later."""
LISTEN_SECONDS = 10.0
"""A kubelet that took the plugin begins to listen at once, or something went wrong."""
LOCK_SECONDS, LOCK_PAUSE = 60.0, 0.2
"""Seconds for the plugin that ran before us to end, and between two tries."""
TRY_SECONDS, TRIES = 10.0, 3
"""Seconds between two calls of ourselves, and how many in a row may fail."""
STOP_SECONDS = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
_log = logging.getLogger(__name__)


class DevicePlugin:
    """The device plugin: serves the kubelet until cancelled; registers anew whenever the kubelet comes back."""

    def __init__(self, settings: Settings, service: Service) -> None:
        self._settings = settings
        self._service = service
        self._why = "It has not started yet."

    async def run(self) -> None:
        """Run until cancelled, as the only one of this node. Raises errors that must end the process."""
        async with hold_lock(self._settings.lock):
            await self.serve()

    async def serve(self) -> None:
        """Run as `run` does, for a caller that has the lock already."""
        changes = FolderWatch(self._settings.plugins)
        self._service.on_stream = changes.notify
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve_always(changes))
                group.create_task(self._try_always())
        finally:
            changes.close()
            self._why = "It has ended."

    def not_ready(self) -> str:
        """Return why the kubelet can't reach this plugin now, in plain words; empty if it can (readiness)."""
        return "" if self._service.streams else self._why or "The kubelet has not taken the plugin yet."

    def set_problem(self, problem: str) -> None:
        """Offer no slots, for a reason in plain words, or offer them again (empty). Pods that run are not touched."""
        self._service.set_problem(problem)

    async def _serve_always(self, changes: FolderWatch) -> None:
        pause = FIRST_PAUSE
        while True:
            kubelet = _Socket.at(self._settings.kubelet_socket)
            if kubelet is None:
                self._why = f"The kubelet's socket {self._settings.kubelet_socket} is not there."
                await changes.wait()
                continue
            try:
                async with _serving(self._service, self._settings.plugin_socket) as own:
                    listened = await self._session(changes, kubelet, own)
            except NotRegistered as error:
                self._why, listened = str(error), False
            pause = FIRST_PAUSE if listened else min(2 * pause, LONGEST_PAUSE)
            _log.warning("The plugin is registered again: %s", self._why)
            await self._pause(changes, kubelet, max(SETTLE_SECONDS, pause))

    async def _session(self, changes: FolderWatch, kubelet: _Socket, own: _Socket) -> bool:
        """Register, and stay until the kubelet does not listen any more; return whether it ever did."""
        registering = asyncio.create_task(
            register(self._settings.kubelet_socket, self._settings.plugin_socket.name, self._settings.resource)
        )
        registering.add_done_callback(lambda _: changes.notify())
        ever, registered = False, 0.0
        try:
            while True:
                if registering.done():
                    registering.result()
                    registered = registered or time.monotonic()
                ever = ever or self._service.streams > 0
                waiting = time.monotonic() - registered if registered else 0.0
                if why := self._lost(kubelet, own, ever, waiting):
                    self._why = why
                    return ever
                await changes.wait()
        finally:
            registering.cancel()
            await asyncio.gather(registering, return_exceptions=True)

    def _lost(self, kubelet: _Socket, own: _Socket, ever: bool, waiting: float) -> str:
        """Return why the plugin has to register again, in plain words; empty if it has not."""
        if _Socket.at(self._settings.kubelet_socket) != kubelet:
            return "The kubelet has restarted."
        if _Socket.at(self._settings.plugin_socket) != own:
            return "The plugin's socket is gone."
        if ever and not self._service.streams:
            return "The kubelet does not listen any more."
        if not ever and waiting > LISTEN_SECONDS:
            return f"The kubelet does not listen after {LISTEN_SECONDS:g} seconds."
        return ""

    async def _pause(self, changes: FolderWatch, kubelet: _Socket, seconds: float) -> None:
        """Wait so long, unless the kubelet comes anew: a new one knows nothing of what was before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while _Socket.at(self._settings.kubelet_socket) in (kubelet, None):
                    await changes.wait()

    async def _try_always(self) -> None:
        """Call the own socket as the kubelet does: one that takes calls and never answers would stop the kubelet."""
        failures = 0
        while failures < TRIES:
            await asyncio.sleep(TRY_SECONDS)
            failures = 0 if await answers(self._settings.plugin_socket) or not self._service.streams else failures + 1
        raise RuntimeError(f"The socket {self._settings.plugin_socket} does not answer any more.")


async def answers(path: Path) -> bool:
    """Tell whether the plugin behind ``path`` answers within some seconds."""
    try:
        async with grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS) as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/GetDevicePluginOptions",
                request_serializer=api.Empty.SerializeToString,
                response_deserializer=api.DevicePluginOptions.FromString,
            )
            await call(api.Empty(), timeout=TRY_SECONDS)
    except grpc.aio.AioRpcError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Socket:
    """The identity of a socket: a new one at the same path has another."""

    device: int
    inode: int
    changed: int
    """The number of an inode is soon used again."""

    @classmethod
    def at(cls, path: Path) -> _Socket | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns)


@contextlib.asynccontextmanager
async def _serving(service: Service, path: Path) -> AsyncIterator[_Socket]:
    """Run a server on the socket ``path``. At the end every stream has ended, and the path is free."""
    _remove(path)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((service.handler(),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    service.listen()
    try:
        own = _Socket.at(path)
        if own is None:
            raise NotRegistered(f"The plugin's socket {path} vanished while it was made.")
        yield own
    finally:
        service.end_streams()
        await server.stop(STOP_SECONDS)
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def hold_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock ``path``: two plugins would take the kubelet from each other without end, and one that still ends
    could open again what the next has closed and given on.

    Raises `TimeoutError` if another plugin keeps it.
    """
    descriptor = _open(path)
    try:
        for _ in range(int(LOCK_SECONDS / LOCK_PAUSE)):
            if _locked(descriptor):
                break
            await asyncio.sleep(LOCK_PAUSE)
        else:
            raise TimeoutError(
                f"Another node plugin still runs on this node: it holds {path}. Remove one of the two DaemonSets."
            )
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
