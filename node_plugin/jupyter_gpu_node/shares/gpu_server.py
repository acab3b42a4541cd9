"""One GPU of the server: its desk, the connections of its clients, and its timers. It never waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules import measured_memory, share_file
from jupyter_gpu_node.shares.rules.protocol import FromClient, Malformed
from jupyter_gpu_node.shares.rules.share_file import ShareFile
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter, Rule
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.books import Books, Usage
from jupyter_gpu_node.shares.rules.turns.elastic import Left
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.lease_manager import Client, Close, Desk, Late, Out, Send, Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

from .alarm import Alarm
from .multi_gpu import Together
from .peer import Peer
from .share_socket import Line

FASTEST = 0.1
"""Seconds between two looks at the books, if a period is shorter."""
SETTLE = (200_000, 1_000_000)
"""Microseconds for which a GPU rests at first, least and most: a share that had it by the previous server is draining,
or has the whole of it and goes on, at most for half of the least without having connected (``gate/lease.c``: ALONE)."""


HEARD = 0.02
"""Seconds in which all that came before the end of the rest is heard, also if this process stood still meanwhile."""
_LONG = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Overdue:
    """A share was asked for its GPU at ``since`` (by the clock of the server) and has not given it back in time."""

    gpu: str
    pod: str
    since: int
    processes: tuple[Peer, ...]


class Station:
    """The turns of one GPU, with its clients, books and files.

    ``write``: called with the pods that are to see a new file, and with those whose own copy is to be written.
    ``overdue``: called when a share does not give the GPU back.
    """

    def __init__(
        self,
        gpu: str,
        timing: Timing,
        rules: Elastic | None,
        arbiter: Callable[[Timing, int], Arbiter],
        clock: Callable[[], int],
        write: Callable[[Station, Collection[str], Collection[str]], None],
        overdue: Callable[[Overdue], None],
        together: Together,
    ) -> None:
        now = clock()
        self.gpu = gpu
        self.timing = timing
        self.desk = Desk(arbiter(timing, now), now)
        self._books = Books(rules, now)
        self._opens: asyncio.TimerHandle | None = None
        """Timer for the moment when the GPU may be given out."""
        self._rested = False
        self._clock = clock
        self._write = write
        self._overdue = overdue
        self._together = together
        self._lines: dict[Client, Line] = {}
        self._clients: dict[Line, Client] = {}
        self._written: dict[str, ShareFile] = {}
        self._kept: dict[str, tuple[ShareFile, int]] = {}
        """The own copies, and when they were written."""
        self._owing: dict[str, int] = {}
        """Debts of closed shares by their own copies."""
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._ring)
        self._rings: int | None = None
        """Time that the alarm is set for."""
        self._looker: asyncio.TimerHandle | None = None
        self._rests = False

    @property
    def processes(self) -> Mapping[Client, Line]:
        """The connected processes."""
        return self._lines

    def usage(self, pod: str) -> Usage:
        """Return the figures of one share; `KeyError` if there is none."""
        return self._books.usage(self.desk, pod, self._clock())

    def share(self, pod: str) -> ShareUse:
        """Return what one share's user sees of it; `KeyError` if there is none."""
        return self._books.share(self.desk, self.gpu, pod, self._clock())

    def file(self, pod: str, wall: int) -> tuple[ShareFile, tuple[Deposit, ...], int]:
        """Return the contents of the share's file, its deposits, and the present time by their clock."""
        now = self._clock()
        return self._books.file(self.desk, self.gpu, pod, now, wall), self.desk.deposits(pod), now

    def debts(self) -> dict[str, tuple[int, int]]:
        """Return, by pod, what closed shares owe, if it is worth a file, and what they earned."""
        now = self._clock()
        return {
            pod: (debt.left(now), debt.milli)
            for pod, debt in self.desk.closed(now).items()
            if debt.left(now) > share_file.SMALL
        }

    def set(
        self,
        terms: Mapping[str, Terms],
        deposits: Mapping[str, Iterable[Deposit]],
        left: Mapping[str, Left],
        owes: Mapping[str, int],
    ) -> None:
        """Set the shares from now on. ``left``: the state of new ones when an earlier server ended, and ``owes``."""
        self._books.reset()
        now = self._clock()
        orders = self.desk.set(terms, now, deposits, owes)
        if effective := self._books.resume(self.desk, left):
            orders += self.desk.adjust(effective, now)
        self._act(orders)

    def obey(self, rule: Rule) -> None:
        """Apply the rule that programs on several GPUs impose on the order here."""
        self._act(self.desk.obey(rule, self._clock()))

    def forget_written(self, pods: Iterable[str]) -> None:
        """Write their files again, although nothing changed."""
        for pod in pods:
            self._written.pop(pod, None)
            self._kept.pop(pod, None)

    def stop(self) -> None:
        """End all turns and connections."""
        self._alarm.close()
        for timer in (self._looker, self._opens):
            if timer:
                timer.cancel()
        for line in self._clients:
            line.close()
        self._lines, self._clients = {}, {}

    # --- what clients do ----------------------------------------------------------------------------------------------

    def listens(self) -> None:
        """Note that a share's socket is there. The first rest counts from the last of the first sockets."""
        if not self._rested:
            least, most = SETTLE
            self.desk.rest(self._clock() + _LONG)
            self._then(min(max(self.timing.grace, least), most) / 1e6, self._hear)

    def _then(self, delay: float, act: Callable[[], None]) -> None:
        if self._opens:
            self._opens.cancel()
        self._opens = self._loop.call_later(delay, act)

    def _hear(self) -> None:
        self._then(HEARD, self._open)

    def _open(self) -> None:
        self._rested = True
        now = self._clock()
        self.desk.rest(now)
        self._act(self.desk.tick(now))

    def came(self, line: Line) -> None:
        """Add a process that connected to the share of that door."""
        client, out = self.desk.join(line.door.pod, self._clock())
        self._lines[client] = line
        self._clients[line] = client
        self._together.came(self.gpu, line.door.pod, line.peer)
        self._act(out)

    def received(self, line: Line, messages: Sequence[FromClient]) -> None:
        """Handle the messages of a connection. An impossible message ends it."""
        client = self._clients.get(line)
        if client is None:
            return
        now = self._clock()
        out: list[Out] = []
        reason = ""
        try:
            for message in messages:
                out += self.desk.receive(client, message, now)
        except Malformed as error:
            reason = f"what it sent cannot be: it {error}"
        self._act(out)
        if reason:
            line.door.lost(line, reason)

    def left(self, line: Line) -> None:
        """Give back what a closed connection had."""
        client = self._clients.pop(line, None)
        if client is not None:
            del self._lines[client]
            self._together.left(self.gpu, line.door.pod, line.peer)
            self._act(self.desk.leave(client, self._clock()))

    def _act(self, outs: Iterable[Out]) -> None:
        """Send everything. A client that can't be sent to leaves, and what follows from that is sent as well."""
        queue = deque(outs)
        while queue:
            match queue.popleft():
                case Send(client, message):
                    line = self._lines.get(client)
                    if line is not None and not line.send(message):
                        self._close(client)
                        queue.extend(self.desk.leave(client, self._clock()))
                case Close(client):
                    self._close(client)
                case Late(pod, since, clients):
                    processes = tuple(self._lines[client].peer for client in clients if client in self._lines)
                    self._overdue(Overdue(self.gpu, pod, since, processes))
        self._arm()
        if self._looker is None or self._rests:
            self._look_later(rests=False)
        self._together.changed()

    def _close(self, client: Client) -> None:
        line = self._lines.pop(client, None)
        if line is not None:
            del self._clients[line]
            self._together.left(self.gpu, line.door.pod, line.peer)
            line.close()

    # --- memory, as the driver says it --------------------------------------------------------------------------------

    def told(self) -> dict[Client, int]:
        """Return the bytes of memory that each client has told."""
        return {client: client.share.pool.size(client) for client in self._lines}

    def measured(self, pod: str, held: Mapping[ProcessId, int], context: int, told: Mapping[Client, int]) -> int:
        """Take the bytes that the processes of that share hold, and return how many above its limit nobody was granted.

        ``context``: bytes that the contexts of one process may take. ``told``: as it was when the driver was asked;
        who came later is not measured yet. Raises `KeyError` if there is no such share.
        """
        by_client, rest = measured_memory.by_client(
            {
                client: ProcessId(line.peer.pid, line.peer.start)
                for client, line in self._lines.items()
                if client.share.name == pod
            },
            held, context, told,
        )  # fmt: skip
        pool = self.desk.shares[pod].pool
        before, out = pool.used, self.desk.measured(pod, by_client, rest)
        if pool.used != before:  # else the books of a GPU at rest would be looked at for nothing
            self._act(out)
        return pool.untold

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have the alarm ring in time. One that rings too early is left as it is: it looks again."""
        wake = self.desk.wake
        if wake is not None and (self._rings is None or wake < self._rings):
            self._rings = wake
            self._alarm.set(wake - self._clock())

    def _ring(self) -> None:
        self._rings = None
        wake, now = self.desk.wake, self._clock()
        if wake is not None and wake <= now:
            self._act(self.desk.tick(now))
        else:
            self._arm()

    def _look_later(self, *, rests: bool) -> None:
        """Look at the books after a period; at rest, when no pod shares the GPU now, only now and then."""
        if self._looker is not None:
            self._looker.cancel()
        pause = max(FASTEST, self.timing.period / 1e6)
        self._rests = rests
        self._looker = self._loop.call_later(max(pause, self.timing.expiry / 4e6) if rests else pause, self._look)

    def _look(self) -> None:
        """Adjust shares to their use, once a period, and have written what is new."""
        rested, self._rests, self._looker = self._rests, False, None
        now, holder = self._clock(), self.desk.holder
        effective = self._books.look(self.desk, now)
        if any(self.desk.shares[pod].effective != milli for pod, milli in effective.items()):
            self._act(self.desk.adjust(effective, now))
        still = {pod: self.file(pod, 0)[0].steady for pod in self.desk.shares}
        fresh = [pod for pod, file in still.items() if self._written.get(pod) != file]
        keep = [pod for pod, file in still.items() if share_file.is_due(file, now, *self._kept.get(pod, (None, 0)))]
        self._written = still
        self._kept = {pod: (file, now) if pod in keep else self._kept[pod] for pod, file in still.items()}
        closed = self._closed()
        if fresh or keep or closed:
            self._write(self, fresh, [*keep, *closed])
        if still:
            news = not rested and not all(self.desk.shares[pod].exclusive for pod in fresh)
            busy = news or (holder is not None and not holder.exclusive)
            self._look_later(rests=not busy)

    def _closed(self) -> list[str]:
        """Return the closed shares whose own copies are to be written or removed: one may have the GPU still."""
        owing, before = {pod: amount for pod, (amount, _) in self.debts().items()}, self._owing
        self._owing = owing
        more = [pod for pod, amount in owing.items() if amount > before.get(pod, 0)]
        return [*more, *(before.keys() - owing.keys() - self.desk.shares.keys())]
