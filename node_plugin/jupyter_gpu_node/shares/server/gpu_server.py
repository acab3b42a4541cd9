"""One GPU of the server: its lease manager, the connections of its clients, and its timers. It never waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules import measured_memory, share_file
from jupyter_gpu_node.shares.rules.framing import Malformed
from jupyter_gpu_node.shares.rules.protocol import FromClient
from jupyter_gpu_node.shares.rules.share_file import ShareFile
from jupyter_gpu_node.shares.rules.turns.actions import Action, Close, LeaseOverdue, Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.books import GpuBooks, ShareFigures
from jupyter_gpu_node.shares.rules.turns.elastic import PreviousState
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.served_share import ShareClient
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

from .alarm import Alarm
from .clocks import microseconds
from .multi_gpu import MultiGpuCoordinator
from .peer import Peer
from .share_socket import ShareConnection

FASTEST = 0.1
"""Seconds between two updates of the books, if a period is shorter."""
SETTLE = (200_000, 1_000_000)
"""Microseconds for which a GPU rests at first, least and most. A share that had it from the previous server is draining
meanwhile; or it has all of it and goes on, without a connection for at most half of the least time (ALONE in the gate's
``launches/lease.c``)."""


REPORTED = 3.0
"""Seconds after a socket is there in which every program that an earlier server served has connected again and said
how much memory it has: some times the longest pause between two attempts of the gate (``connection/connection.c``)."""
HEARD = 0.02
"""Seconds to read messages that were sent before the end of the rest, even if this process was not running then."""
_LONG = 3_600_000_000


@dataclass(frozen=True, slots=True)
class ShareOverdue:
    """Notice that a share, asked for its GPU at ``since`` (by the server's clock), has not given it back in time."""

    gpu: str
    pod: str
    since: int
    processes: tuple[Peer, ...]


class GpuServer:
    """The turns of one GPU, with its clients, books and files.

    ``write``: called with the pods that are to see a new file, and with those whose own copy is to be written.
    ``overdue``: called when a share does not give the GPU back.
    """

    def __init__(
        self,
        gpu: str,
        timing: Timing,
        rules: Elastic | None,
        order: Callable[[Timing], TurnOrdering],
        write: Callable[[GpuServer, Collection[str], Collection[str]], None],
        overdue: Callable[[ShareOverdue], None],
        coordinator: MultiGpuCoordinator,
    ) -> None:
        now = microseconds()
        self.gpu = gpu
        self.timing = timing
        self.manager = LeaseManager(Arbiter(timing, now, order), now)
        self._books = GpuBooks(rules, now)
        self._opens: asyncio.TimerHandle | None = None
        """Timer for the moment when the GPU may be given out."""
        self._is_open = False
        self._listens_since = 0.0
        self._write = write
        self._overdue = overdue
        self._coordinator = coordinator
        self._connections: dict[ShareClient, ShareConnection] = {}
        self._clients: dict[ShareConnection, ShareClient] = {}
        self._written: dict[str, ShareFile] = {}
        self._kept: dict[str, tuple[ShareFile, int]] = {}
        """The own copies, and when they were written."""
        self._owing: dict[str, int] = {}
        """Debts of closed shares by their own copies."""
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._ring)
        self._rings: int | None = None
        """Time that the alarm is set for."""
        self._books_timer: asyncio.TimerHandle | None = None
        self._idle = False

    @property
    def processes(self) -> Mapping[ShareClient, ShareConnection]:
        """The connected processes."""
        return self._connections

    def usage(self, pod: str) -> ShareFigures:
        """Return the figures of one share; `KeyError` if there is none."""
        return self._books.usage(self.manager, pod, microseconds())

    def share(self, pod: str) -> ShareUse:
        """Return what one share's user sees of it; `KeyError` if there is none."""
        return self._books.share(self.manager, self.gpu, pod, microseconds())

    def file(self, pod: str, wall: int) -> tuple[ShareFile, tuple[Deposit, ...], int]:
        """Return the contents of the share's file, its deposits, and the present time by their clock."""
        now = microseconds()
        return self._books.file(self.manager, self.gpu, pod, now, wall), self.manager.deposits(pod), now

    def debts(self) -> dict[str, tuple[int, int]]:
        """Return, by pod, what closed shares owe, if it is worth a file, and what they earned."""
        now = microseconds()
        return {
            pod: (debt.owed(now), max(1, debt.milli))
            for pod, debt in self.manager.closed(now).items()
            if debt.owed(now) > share_file.SMALL
        }

    def set(
        self,
        terms: Mapping[str, Terms],
        deposits: Mapping[str, Iterable[Deposit]],
        previous: Mapping[str, PreviousState],
        owes: Mapping[str, int],
    ) -> None:
        """Set the shares from now on. ``previous`` and ``owes``: what an earlier server saved of new ones."""
        self._books.reset()
        now = microseconds()
        orders = self.manager.set(terms, now, deposits, owes)
        if effective := self._books.resume(self.manager, previous):
            orders += self.manager.adjust(effective, now)
        self._act(orders)

    def apply_rule(self, rule: Rule) -> None:
        """Apply the rule that programs on several GPUs impose on the order here."""
        self._act(self.manager.apply_rule(rule, microseconds()))

    def forget_written(self, pods: Iterable[str]) -> None:
        """Write their files again, although nothing changed."""
        for pod in pods:
            self._written.pop(pod, None)
            self._kept.pop(pod, None)

    def stop(self) -> None:
        """End all turns and connections."""
        self._alarm.close()
        for timer in (self._books_timer, self._opens):
            if timer:
                timer.cancel()
        for connection in self._clients:
            connection.close()
        self._connections, self._clients = {}, {}

    # --- what clients do ----------------------------------------------------------------------------------------------

    def listens(self) -> None:
        """Note that a share's socket is there. The first rest counts from the last of the first sockets."""
        self._listens_since = self._loop.time()
        if not self._is_open:
            least, most = SETTLE
            self.manager.rest(microseconds() + _LONG)
            self._then(min(max(self.timing.grace, least), most) / 1e6, self._hear)

    def _then(self, delay: float, act: Callable[[], None]) -> None:
        if self._opens:
            self._opens.cancel()
        self._opens = self._loop.call_later(delay, act)

    def _hear(self) -> None:
        self._then(HEARD, self._open)

    def _open(self) -> None:
        self._is_open = True
        now = microseconds()
        self.manager.rest(now)
        self._act(self.manager.tick(now))

    def connected(self, connection: ShareConnection) -> None:
        """Add a process that connected to the socket of its share."""
        client, out = self.manager.join(connection.gate_socket.pod, microseconds())
        self._connections[client] = connection
        self._clients[connection] = client
        self._coordinator.connected(self.gpu, connection.gate_socket.pod, connection.peer)
        self._act(out)

    def received(self, connection: ShareConnection, messages: Sequence[FromClient]) -> None:
        """Handle the messages of a connection. An impossible message ends it."""
        client = self._clients.get(connection)
        if client is None:
            return
        now = microseconds()
        out: list[Action] = []
        reason = ""
        try:
            for message in messages:
                out += self.manager.receive(client, message, now)
        except Malformed as error:
            reason = f"what it sent cannot be: it {error}"
        self._act(out)
        if reason:
            connection.gate_socket.lost(connection, reason)

    def disconnected(self, connection: ShareConnection) -> None:
        """Give back what a closed connection had."""
        client = self._clients.pop(connection, None)
        if client is not None:
            del self._connections[client]
            self._coordinator.disconnected(self.gpu, connection.gate_socket.pod, connection.peer)
            self._act(self.manager.leave(client, microseconds()))

    def _act(self, outs: Iterable[Action]) -> None:
        """Send everything. A client that cannot be sent to is removed, and what follows from that is sent as well."""
        queue = deque(outs)
        while queue:
            match queue.popleft():
                case Send(client, message):
                    connection = self._connections.get(client)
                    if connection is not None and not connection.send(message):
                        self._close(client)
                        queue.extend(self.manager.leave(client, microseconds()))
                case Close(client):
                    self._close(client)
                case LeaseOverdue(pod, since, clients):
                    processes = tuple(
                        self._connections[client].peer for client in clients if client in self._connections
                    )
                    self._overdue(ShareOverdue(self.gpu, pod, since, processes))
        self._arm()
        if self._books_timer is None or self._idle:
            self._update_books_later(idle=False)
        self._coordinator.changed()

    def _close(self, client: ShareClient) -> None:
        connection = self._connections.pop(client, None)
        if connection is not None:
            del self._clients[connection]
            self._coordinator.disconnected(self.gpu, connection.gate_socket.pod, connection.peer)
            connection.close()

    # --- memory, as the driver reports it -----------------------------------------------------------------------------

    def reported(self) -> dict[ShareClient, int]:
        """Return the bytes of memory that each client has reported."""
        return {client: client.share.pool.size(client) for client in self._connections}

    def memory_used(self) -> dict[str, int]:
        """Return the bytes that each share's programs have; empty until earlier programs have connected again."""
        if self._loop.time() < self._listens_since + REPORTED:
            return {}
        return {pod: share.pool.used for pod, share in self.manager.shares.items()}

    def measured(
        self, pod: str, held: Mapping[ProcessId, int], context: int, reported: Mapping[ShareClient, int]
    ) -> int:
        """Record the bytes that the share's processes hold; return how many above its limit were never granted.

        ``context``: bytes that the contexts of one process may take. ``reported``: the clients' reports when the driver
        was asked; later clients are not measured yet. Raises `KeyError` if there is no such share.
        """
        by_client, rest = measured_memory.by_client(
            {
                client: ProcessId(connection.peer.pid, connection.peer.start)
                for client, connection in self._connections.items()
                if client.share.name == pod
            },
            held, context, reported,
        )  # fmt: skip
        pool = self.manager.shares[pod].pool
        before, out = pool.used, self.manager.measured(pod, by_client, rest)
        if pool.used != before:  # else the books of an idle GPU would be updated for nothing
            self._act(out)
        return pool.untold

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have the alarm ring in time. One that is set too early is left as it is, and set again when it rings."""
        wake = self.manager.wake
        if wake is not None and (self._rings is None or wake < self._rings):
            self._rings = wake
            self._alarm.set(wake - microseconds())

    def _ring(self) -> None:
        self._rings = None
        wake, now = self.manager.wake, microseconds()
        if wake is not None and wake <= now:
            self._act(self.manager.tick(now))
        else:
            self._arm()

    def _update_books_later(self, *, idle: bool) -> None:
        """Update the books after a period; rarely while no pod shares the GPU."""
        if self._books_timer is not None:
            self._books_timer.cancel()
        pause = max(FASTEST, self.timing.period / 1e6)
        self._idle = idle
        self._books_timer = self._loop.call_later(
            max(pause, self.timing.expiry / 4e6) if idle else pause, self._update_books
        )

    def _update_books(self) -> None:
        """Adjust the shares to their use and write the files that changed, once a period."""
        was_idle, self._idle, self._books_timer = self._idle, False, None
        now, holder = microseconds(), self.manager.holder
        effective = self._books.end_period(self.manager, now)
        if any(self.manager.shares[pod].effective != milli for pod, milli in effective.items()):
            self._act(self.manager.adjust(effective, now))
        still = {pod: self.file(pod, 0)[0].steady for pod in self.manager.shares}
        fresh = [pod for pod, file in still.items() if self._written.get(pod) != file]
        keep = [pod for pod, file in still.items() if share_file.is_due(file, now, *self._kept.get(pod, (None, 0)))]
        self._written = still
        self._kept = {pod: (file, now) if pod in keep else self._kept[pod] for pod, file in still.items()}
        closed = self._closed()
        if fresh or keep or closed:
            self._write(self, fresh, [*keep, *closed])
        if still:
            shown = not was_idle and not all(self.manager.shares[pod].exclusive for pod in fresh)
            busy = shown or (holder is not None and not holder.exclusive)
            self._update_books_later(idle=not busy)

    def _closed(self) -> list[str]:
        """Return the closed shares whose own copies are to be written or removed: one may have the GPU still."""
        owing, before = {pod: amount for pod, (amount, _) in self.debts().items()}, self._owing
        self._owing = owing
        more = [pod for pod, amount in owing.items() if amount > before.get(pod, 0)]
        return [*more, *(before.keys() - owing.keys() - self.manager.shares.keys())]
