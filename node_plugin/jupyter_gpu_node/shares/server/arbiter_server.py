"""The arbiter's server of one node: a `GpuServer` for each GPU, a socket and two files for each share.

It adds and removes shares; `rules.turns` decides whose turn it is.
"""

from __future__ import annotations

import asyncio
import functools
import resource
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.shares.rules import share_file
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules
from jupyter_gpu_node.shares.rules.pace import Pace
from jupyter_gpu_node.shares.rules.share_file import Savings, ShareKey
from jupyter_gpu_node.shares.rules.turns.books import ShareFigures
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

from . import paths
from .clocks import microseconds, milliseconds
from .gpu_server import GpuServer, ShareOverdue
from .multi_gpu import MultiGpuCoordinator, ServerProcess
from .peer import Check, Peer
from .share_socket import ShareSocket
from .store import ShareEntry, ShareStore
from .worker_thread import WorkerThread

MOST_CLIENTS = 256
"""Connections of one share, if the process may open that many files."""


@dataclass(frozen=True, slots=True)
class PlacedShare:
    """One share, and the directory in which its pod finds ``shares/<gpu>.sock`` and ``shares/<gpu>.json``."""

    terms: Terms
    directory: Path


@dataclass(frozen=True, slots=True)
class ConnectedProcess:
    """A process that is a client of a share."""

    gpu: str
    pod: str
    process: Peer


class ArbiterServer:
    """The arbiter's server of one node.

    ``check`` says which processes may use a socket; ``overdue`` is called when a share does not give a GPU back.
    ``rules`` is asked once for each GPU. ``servers``: the Jupyter servers, whose children are programs of their own.
    ``order``: makes the order of turns of each GPU; another one is for comparisons.
    """

    def __init__(
        self,
        store: ShareStore,
        check: Check,
        *,
        rules: Callable[[str], GpuRules] = lambda _: GpuRules(elastic=None),
        overdue: Callable[[ShareOverdue], None] = lambda _: None,
        servers: Callable[[], Iterable[ServerProcess]] = lambda: (),
        order: Callable[[Timing], TurnOrdering] = TurnOrdering,
    ) -> None:
        self._store = store
        self._check = check
        self._rules = rules
        self._overdue = overdue
        self._order = order
        self._gpu_servers: dict[str, GpuServer] = {}
        self._coordinator = MultiGpuCoordinator(self._gpu_servers, microseconds, servers)
        self._shares: dict[ShareKey, PlacedShare] = {}
        self._share_sockets: dict[ShareKey, ShareSocket] = {}
        self._paces: dict[str, Pace] = {}
        """By pod, also of one that has no share now and connected lately."""
        self._one = asyncio.Lock()
        self._worker = WorkerThread("shares")
        self._loop = asyncio.get_running_loop()
        self._saved: dict[ShareKey, Savings] | None = None
        """The state that an earlier server saved of shares that are not set yet; None: not read yet."""

    # --- for the node -------------------------------------------------------------------------------------------------

    async def set(self, wanted: Mapping[str, Mapping[str, PlacedShare]]) -> None:
        """Set the shares from now on, by GPU and pod. Again with the same: nothing.

        Raises `ValueError` if a GPU would be given away more than once or a name cannot be one, with nothing
        changed, and `OSError` if a socket cannot be made: all else is so then, and the next call tries again.
        """
        _validate(wanted)
        after = {(gpu, pod): placed for gpu, shares in wanted.items() for pod, placed in shares.items()}
        async with self._one:
            if self._saved is None:
                self._saved = await self._worker.run(self._store.begin, list(after))
            saved = {key: self._saved.pop(key) for key in after if key in self._saved}
            before, self._shares = self._shares, after
            gone = self._shut(before)
            for gpu in sorted({gpu for gpu, _ in {*before, *after}}):
                if _terms_on(gpu, after) != _terms_on(gpu, before):
                    self._set_gpu(gpu, saved)
            gone += [self._close_books(*key) for key in before.keys() - after.keys()]
            problem = self._open()
            for removed in gone:
                await removed
            if problem:
                raise problem

    def usage(self, gpu: str, pod: str) -> ShareFigures:
        """Return the figures of one share; `KeyError` if there is none."""
        return self._gpu_servers[gpu].usage(pod)

    def share(self, gpu: str, pod: str) -> ShareUse:
        """Return what one share's user sees of it; `KeyError` if there is none."""
        return self._gpu_servers[gpu].share(pod)

    def holder(self, gpu: str) -> str | None:
        """Return the pod whose share has that GPU now; None: none has."""
        share = self._gpu_servers[gpu].manager.holder if gpu in self._gpu_servers else None
        return share.name if share else None

    def patient(self, gpu: str) -> tuple[str, int] | None:
        """Return the pod whose share was asked for that GPU and has said that its work takes longer, and when."""
        share = self._gpu_servers[gpu].manager.holder if gpu in self._gpu_servers else None
        return (share.name, share.patient) if share and share.patient is not None else None

    def gpu_server(self, gpu: str) -> GpuServer | None:
        """Return the server of that GPU's turns, if it was ever shared here."""
        return self._gpu_servers.get(gpu)

    def share_socket(self, gpu: str, pod: str) -> ShareSocket:
        """Return the socket of one share; `KeyError` if there is none."""
        return self._share_sockets[gpu, pod]

    def connected(self) -> tuple[ConnectedProcess, ...]:
        """Return all connected processes. One that uses a shared GPU and is not among them avoids the gate."""
        return tuple(
            ConnectedProcess(gpu, client.share.name, connection.peer)
            for gpu, gpu_server in self._gpu_servers.items()
            for client, connection in gpu_server.processes.items()
        )

    async def close(self) -> None:
        """End: every connection is closed, and the files tell the next server what the banks hold."""
        async with self._one:
            for share_socket in self._share_sockets.values():
                share_socket.shut()
            entries = [self._entry(self._gpu_servers[gpu], pod) for gpu, pod in self._shares]
            self._coordinator.stop()
            for gpu_server in self._gpu_servers.values():
                gpu_server.stop()
            await self._worker.run(self._store.write, entries)
            self._share_sockets, self._shares, self._gpu_servers = {}, {}, {}
            self._worker.close()

    # --- adding and removing ------------------------------------------------------------------------------------------

    def _set_gpu(self, gpu: str, saved: Mapping[ShareKey, Savings]) -> None:
        """Set the shares of one GPU, with what an earlier server ``saved`` of those that are new."""
        terms, wall = _terms_on(gpu, self._shares), milliseconds()
        found = {pod: saved[gpu, pod] for pod in terms if (gpu, pod) in saved}
        deposits = {pod: share_file.restored(one, microseconds(), wall) for pod, one in found.items()}
        previous = {pod: one.previous for pod, one in found.items() if one.previous}
        owes = {pod: share_file.owed(one, wall) for pod, one in found.items()}
        self._gpu_server_of(gpu).set(terms, deposits, previous, owes)

    def _gpu_server_of(self, gpu: str) -> GpuServer:
        if gpu not in self._gpu_servers:
            rules = self._rules(gpu)
            self._gpu_servers[gpu] = GpuServer(
                gpu, rules.timing, rules.elastic, self._order, self._save, self._overdue, self._coordinator
            )
        return self._gpu_servers[gpu]

    def _shut(self, before: Mapping[ShareKey, PlacedShare]) -> list[asyncio.Future[None]]:
        """Close the sockets of shares that are gone, or moved to another directory, and remove what their pods see."""
        gone = []
        new = {(gpu, placed.directory) for (gpu, _), placed in self._shares.items()}
        for key, placed in before.items():
            now = self._shares.get(key)
            if now is None or now.directory != placed.directory:
                if share_socket := self._share_sockets.pop(key, None):
                    share_socket.shut()
                    if now is not None:
                        for connection in list(share_socket.connections):
                            share_socket.lost(connection, "its share is in another directory now")
                if (key[0], placed.directory) not in new:  # else what is there is another pod's by now
                    gone.append(self._worker.run(self._store.withdraw, *key, placed.directory))
        return gone

    def _close_books(self, gpu: str, pod: str) -> asyncio.Future[None]:
        """Keep nothing of a share that is gone but what it owes."""
        if debt := self._gpu_servers[gpu].debts().get(pod):
            return self._worker.run(self._store.owe, gpu, pod, *debt, milliseconds())
        return self._worker.run(self._store.forget, gpu, pod)

    def _open(self) -> OSError | None:
        """Make the sockets that are missing, all of them also if one cannot be made; then the last reason.

        It makes its few system calls in the loop, as asyncio's own servers do: starting them in a thread would take
        longer, and a program is waiting.
        """
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(1, min(MOST_CLIENTS, files // 2 // max(1, len(self._shares))))
        problem: OSError | None = None
        for key, placed in self._shares.items():
            if key not in self._share_sockets:
                try:
                    listening = paths.listen(placed.directory, key[0])
                except OSError as error:
                    problem = error
                    continue
                self._share_sockets[key] = ShareSocket(*key, placed.directory, self._check, self._gpu_servers[key[0]])
                self._share_sockets[key].open(listening)
            self._share_sockets[key].most = most
        self._link_siblings()
        return problem

    def _link_siblings(self) -> None:
        """Link each socket with the others of its pod, and give all of them one pace of connections."""
        now = self._loop.time()
        of_pod: dict[str, list[ShareSocket]] = {}
        for share_socket in self._share_sockets.values():
            of_pod.setdefault(share_socket.pod, []).append(share_socket)
        self._paces = {pod: pace for pod, pace in self._paces.items() if pod in of_pod or not pace.rests(now)}
        for share_socket in self._share_sockets.values():
            share_socket.siblings = [other for other in of_pod[share_socket.pod] if other is not share_socket]
            share_socket.pace = self._paces.setdefault(share_socket.pod, share_socket.pace)

    # --- files --------------------------------------------------------------------------------------------------------

    def _save(self, gpu_server: GpuServer, shown: Collection[str], kept: Collection[str]) -> None:
        pods = [pod for pod in {*shown, *kept} if (gpu_server.gpu, pod) in self._shares]
        for pod in {*kept}.difference(pods):
            self._close_books(gpu_server.gpu, pod)
        entries = [replace(self._entry(gpu_server, pod), public=pod in shown, own=pod in kept) for pod in pods]
        written = self._worker.run(self._store.write, entries)
        written.add_done_callback(functools.partial(self._written, gpu_server, pods))

    def _written(self, gpu_server: GpuServer, pods: Sequence[str], written: asyncio.Future[bool]) -> None:
        if written.cancelled() or written.exception() is not None or not written.result():
            gpu_server.forget_written(pods)

    def _entry(self, gpu_server: GpuServer, pod: str) -> ShareEntry:
        file, deposits, now = gpu_server.file(pod, milliseconds())
        return ShareEntry(gpu_server.gpu, pod, self._shares[gpu_server.gpu, pod].directory, file, deposits, now)


def _terms_on(gpu: str, shares: Mapping[ShareKey, PlacedShare]) -> dict[str, Terms]:
    """Return the terms of the shares of that GPU by pod."""
    return {pod: placed.terms for (at, pod), placed in shares.items() if at == gpu}


def _validate(wanted: Mapping[str, Mapping[str, PlacedShare]]) -> None:
    for gpu, shares in wanted.items():
        for name in (gpu, *shares):
            paths.checked(name)
        if (total := sum(placed.terms.milli for placed in shares.values())) > MILLI_PER_GPU:
            raise ValueError(f"Shares of {gpu} are together at most {MILLI_PER_GPU} thousandths of it, not {total}.")
