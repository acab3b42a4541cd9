"""Connections from a notebook to its worker: the channels of one kernel, which the first process started.

CurveZMQ on all of them, with keys that both ends know before. There is no event loop: a plain poller works in a cell,
in a thread and below a running loop. A request ends with its reply, with `WorkerLost`, and with nothing else: Ctrl-C
becomes a message, as KeyboardInterrupt between receiving and handling would lose one.
"""

from __future__ import annotations

import logging
import mmap
import select
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import zmq
from jupyter_client.session import Session

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.quantity import format_bytes
from jupyter_gpu.remote import PYTHON, certificates, codec
from jupyter_gpu.remote.bulk import BulkClient, Receiving, Sending, Transfer, TransferBroken, is_large, total_bytes
from jupyter_gpu.remote.codec import Chunk
from jupyter_gpu.remote.errors import CannotSend, WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import MONITORED, PATIENCE, Answer, WorkerAddress, ask, had_no_memory, lost
from jupyter_gpu.remote.rules.control import Kill, Start, Started, Word
from jupyter_gpu.remote.sources import Source

log = logging.getLogger(__name__)

Message = dict[str, Any]

TICK = 50
"""Milliseconds between two looks whether there was an interrupt: a signal may wake another thread."""
AGAIN = 1.0
"""Seconds until output is subscribed to again, if there was no welcome."""
LAST_INTERRUPT = 3
"""The interrupt that ends the kernel."""


class Interrupts:
    """The number of interrupts of a request: by Ctrl-C in the main thread, or by another thread that calls `add`."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = signal.SIG_DFL

    def add(self, *_: object) -> None:
        """Count one."""
        self.count += 1

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take Ctrl-C meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = signal.signal(signal.SIGINT, self.add)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._before)

    def asking(self, question: Callable[[], str]) -> str | None:
        """Return the answer to a question of the user, which Ctrl-C ends as ever; it counts, and None is returned."""
        if threading.current_thread() is not threading.main_thread():
            return question()
        try:
            signal.signal(signal.SIGINT, self._before)
            return question()
        except KeyboardInterrupt:
            self.add()
            return None
        finally:
            signal.signal(signal.SIGINT, self.add)


@dataclass(frozen=True)
class Listener:
    """The handling of messages that arrive during a request."""

    output: Callable[[Message], None] = lambda _: None
    """With one of the iopub channel: output, displays, messages of widgets."""
    answer: Callable[[str, bool], str] | None = None
    """With a question of ``input()``, and whether it is for a password; None: there is nobody to ask."""
    say: Callable[[str], None] = lambda _: None
    """With a sentence for the user."""
    progress: Callable[[Transfer], None] = lambda _: None
    """Again and again while a large message is sent or received."""


@dataclass(frozen=True)
class Watched:
    """The names of a cell that the kernel watches while it runs it."""

    assigns: Collection[str]
    deletes: Collection[str]
    needed: Collection[str]
    """The names that it has for the cell."""
    forget: Collection[str]
    """The names that it deletes before."""
    count: int
    """The number of the notebook's cell."""


class Busy(Exception):
    """The error of a request that would have to wait for another one, and was not to."""


class Connection:
    """The channels of one kernel in a worker, for one request at a time."""

    def __init__(
        self,
        address: WorkerAddress,
        kernel: str,
        folder: str,
        before: Connection | None = None,
        shipped: Callable[[int], None] = lambda _: None,
        ask: Callable[[WorkerAddress, Word, float], Answer] = ask,
    ) -> None:
        """Raises `WorkerRefused` and `WorkerLost`. ``ask``: asks the first process.

        ``before``: a connection to a kernel of this name that was lost. What runs there from it is interrupted.
        ``shipped`` is called with the bytes of values that each request moved, there and back.
        """
        self.address, self.kernel, self._shipped, self._ask = address, kernel, shipped, ask
        started = ask(address, Start(kernel, folder, PYTHON, owner()), PATIENCE)
        assert isinstance(started, Started)
        self._started = started
        self.latest = ""
        """Id of the latest request."""
        self._session = Session(key=started.key.encode())
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._interrupts = Interrupts()
        self._bulk = BulkClient()
        self.sticky: int | None = None
        """The code of an error with which CUDA ended for the kernel's process."""
        self.lost = False
        """Whether the connection has ended."""
        try:
            identity = self._session.bsession
            self._shell = address.unconnected(self._context, zmq.DEALER, identity)
            self._monitor = self._shell.get_monitor_socket(MONITORED)
            address.connect(self._shell, started.shell)
            self._stdin = address.socket(self._context, zmq.DEALER, started.stdin, identity)
            self._control = address.socket(self._context, zmq.DEALER, started.control)
            self._iopub = address.socket(self._context, zmq.SUB, started.iopub)
            self._poller = zmq.Poller()
            for socket in (self._shell, self._monitor, self._stdin, self._control, self._iopub):
                self._poller.register(socket, zmq.POLLIN)
            self._greet()
            if before is not None and self.continues(before):
                self._session.send(self._control, "interrupt_request", {"of": before.latest})
        except BaseException:
            self.close()
            raise

    def continues(self, before: Connection) -> bool:
        """Tell whether it leads to the same process as a connection before: each kernel has a key of its own."""
        return self._started.key == before._started.key

    def _greet(self) -> None:
        """Wait for the welcome of the iopub channel: what is published before it would be lost.

        A kernel may not notice a subscription that arrives while it publishes something. It hears of the next one.
        """
        begin = time.monotonic()
        until, again = begin + PATIENCE, begin + AGAIN
        while (now := time.monotonic()) < until:
            if now >= again:
                self._iopub.unsubscribe(b"")
                self._iopub.subscribe(b"")
                again = now + AGAIN
            events = dict(self._poller.poll(TICK))
            self._check(events)
            while self._iopub in events and (message := self._receive(self._iopub)) is not None:
                if message["header"]["msg_type"] == "iopub_welcome":
                    return
        raise lost(self.address, None)

    def close(self) -> None:
        """Close the channels; the kernel goes on."""
        self.lost = True
        self._bulk.close()
        self._context.destroy(linger=0)

    def kill(self, patience: float = PATIENCE) -> None:
        """Have the first process end the kernel, whatever it does."""
        self._ask(self.address, Kill(self.kernel), patience)

    def end(self, patience: float) -> None:
        """End the kernel and the connection; a request that runs, in another thread, ends with `WorkerLost`."""
        with suppress(WorkerLost, WorkerRefused):  # the first process has ended, and the kernel with it
            self.kill(patience)
        self.leave()

    def leave(self) -> None:
        """Close the channels as soon as no request runs."""
        with self._lock:  # sockets are of one thread at a time
            self.close()

    def lives(self) -> bool:
        """Tell whether the kernel still is there, as far as is known between two requests."""
        if self._lock.acquire(blocking=False):  # else a request runs, which will know
            try:
                if not self.lost and self._monitor in dict(self._poller.poll(0)):
                    self.close()
            finally:
                self._lock.release()
        return not self.lost

    def interrupt(self) -> None:
        """Interrupt the request that runs in another thread."""
        self._interrupts.add()

    def push(self, chunks: Sequence[Chunk], listener: Listener | None = None) -> dict[str, str]:
        """Bind values there; return why some could not be. Raises `CannotSend` if none could be sent."""
        header, parts = codec.frames(chunks)
        with self._bulk.lock:
            large = is_large(parts)
            by_tls = large and (self._bulk.is_open or self._open_bulk())
            if large and not by_tls:
                self._check_room(parts)
            sending = Sending(parts) if by_tls else None
            content = {"chunks": header, "bulk": by_tls}
            reply = self.request("gpu_push", content, listener, buffers=() if by_tls else parts, transfer=sending)
        return dict(self._moved(reply, sending)["content"]["failed"])

    def pull(
        self,
        names: Sequence[str],
        listener: Listener | None = None,
        *,
        limit: int | None = None,
        host_copies: bool = False,
    ) -> tuple[list[Chunk], dict[str, str], list[str]]:
        """Return values, why others cannot be sent, and the names of those above the limit of bytes.

        Raises `CannotSend` if none could be received.
        """
        asked = {"names": list(names), "limit": limit, "host_copies": host_copies}
        with self._bulk.lock:
            reply, parts = self._pulled({**asked, "connect": self._bulk.usable}, listener)
            if reply["content"].get("connect"):  # they are large, and there is no connection for them yet
                self._open_bulk()
                reply, parts = self._pulled({**asked, "connect": False}, listener)
        content = reply["content"]
        return codec.read_frames(content["chunks"], parts), content["failed"], content["large"]

    def _pulled(self, asked: Mapping[str, Any], listener: Listener | None) -> tuple[Message, Sequence[Any]]:
        receiving = Receiving() if self._bulk.is_open else None
        asked = {**asked, "bulk": receiving is not None}
        reply = self._moved(self.request("gpu_pull", asked, listener, transfer=receiving), receiving)
        return reply, receiving.parts if receiving is not None and reply["content"]["bulk"] else reply["buffers"]

    def _open_bulk(self) -> bool:
        """Open the connection for large objects; False where that is not possible, and they go as others do."""
        if self._bulk.usable:
            own = certificates.make()
            try:
                answer = _done(self.request("gpu_bulk", {"certificate": own.text}))["content"]
                port = strict.required(answer, "port", strict.integer(1, 65535))
                peer = strict.required(answer, "certificate", certificates.read_certificate)
                self._bulk.connect(self.address.address, port, own, peer)
            except (WorkerRefused, strict.FieldError, OSError) as error:
                log.info("Large objects go to the worker on %s without TLS: %s", self.address.where, error)
                self._bulk.usable = False
        return self._bulk.is_open

    def _check_room(self, parts: Sequence[Any]) -> None:
        """Raise `CannotSend` if the kernel could not have the memory: ZeroMQ would end the connection, or the process.

        It is asked for address space alone: limits of the process count, those of a control group when it is used.
        """
        size = total_bytes(parts)
        most = size + max(total_bytes([part]) for part in parts)  # one part is there twice while it is decrypted
        room = f"__import__('mmap').mmap(-1, {most}, {mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}).close()"
        found = self.run("", expressions={"room": room})["content"].get("user_expressions", {})
        if found.get("room", {}).get("ename") in (OSError.__name__, MemoryError.__name__):
            raise CannotSend(
                gettext("The worker on %1 has not enough memory for %2.", self.address.where, format_bytes(size))
            )

    def _moved(self, reply: Message, transfer: Transfer | None) -> Message:
        """Return the reply to a message that a transfer belonged to; raises what went wrong there."""
        content = reply["content"]
        broken = content.get("ename") == TransferBroken.__name__
        if transfer is not None and (transfer.error or broken) and content.get("ename") != "KeyboardInterrupt":
            why = content["evalue"] if broken else transfer.error
            raise CannotSend(
                gettext("The connection for large objects to the worker on %1 broke: %2.", self.address.where, why)
            )
        return _done(reply)

    def begin(self, path: Sequence[str] = (), visible: Mapping[str, str] | None = None) -> dict[str, str]:
        """Have a new kernel import from some folders and see some GPUs; return the versions of its packages.

        ``visible``: variables (`common.rules.visible`). Without them it goes on with those that it has. The
        versions are those of packages that are compared.
        """
        content = {"path": list(path), "visible": None if visible is None else dict(visible)}
        return dict(_done(self.request("gpu_begin", content))["content"]["versions"])

    def reload(self, sources: Iterable[Source]) -> None:
        """Have modules loaded again that are loaded there."""
        _done(self.request("gpu_sources", {"sources": [asdict(source) for source in sources]}))

    def outcome(self, outputs: Iterable[str]) -> Message:
        """Return what the last cell did that was watched; names of ``outputs`` are not measured."""
        return dict(_done(self.request("gpu_outcome", {"outputs": sorted(outputs)}))["content"])

    def run(
        self,
        code: str,
        listener: Listener | None = None,
        *,
        expressions: Mapping[str, str] | None = None,
        watch: Watched | None = None,
    ) -> Message:
        """Run code there; return the reply, whose status may be ``error``.

        If it is not, the reply has what ``expressions`` are afterwards, as they are displayed. ``watch``: what to look
        at meanwhile, for `outcome`.
        """
        stdin = listener is not None and listener.answer is not None
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": stdin, "stop_on_error": False}
        content |= {"user_expressions": dict(expressions or {})}
        if watch is not None:
            content["watch"] = {
                "assigns": sorted(watch.assigns),
                "deletes": sorted(watch.deletes),
                "needed": sorted(watch.needed),
                "forget": sorted(watch.forget),
                "count": watch.count,
            }
        return self.request("execute_request", content, listener)

    def request(
        self,
        kind: str,
        content: Mapping[str, Any],
        listener: Listener | None = None,
        *,
        buffers: Sequence[Any] = (),
        replies: bool = True,
        transfer: Transfer | None = None,
        wait: bool = True,
    ) -> Message:
        """Send a request; return its reply when the kernel is idle again. Raises `WorkerLost`.

        The reply is empty for a message that has none, such as one of a widget. ``transfer`` moves by TLS meanwhile.
        Without ``wait``, `Busy` is raised while another request runs.
        """
        with self._turn_of(wait):
            if self.lost:
                raise WorkerLost(gettext("The connection to the worker on %1 has ended.", self.address.where))
            self._interrupts = interrupts = Interrupts()
            with interrupts.taken():
                try:
                    message = self._session.msg(kind, dict(content))
                    self.latest = message["header"]["msg_id"]
                    self._session.send(self._shell, message, buffers=list(buffers))
                    pending = _Request(message["header"]["msg_id"], listener or Listener(), not replies, transfer)
                    with self._moving(transfer):
                        while not pending.done:
                            self._turn(pending, interrupts)
                except WorkerLost as error:
                    self.close()
                    raise self._explained(error) from None
                except BaseException:
                    self.close()
                    raise
            told = strict.optional(pending.reply.get("content", {}), "sticky", strict.integer(1, 9999))
            self.sticky = self.sticky or told
            by_tls = transfer.moved if transfer is not None else 0
            self._shipped(total_bytes(buffers) + by_tls + total_bytes(pending.reply.get("buffers", ())))
            return pending.reply

    def _explained(self, error: WorkerLost) -> WorkerLost:
        """Return the error of a lost kernel with what the first process knows about its end."""
        if not had_no_memory(self.address, self.kernel):
            return error
        return WorkerLost(
            gettext("The worker on %1 has no memory left, so the system ended this kernel there, with its variables.",
                    self.address.where)
        )  # fmt: skip

    @contextmanager
    def _turn_of(self, wait: bool) -> Iterator[None]:
        """Have the channels for one request."""
        if not self._lock.acquire(blocking=wait):
            raise Busy
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _moving(self, transfer: Transfer | None) -> Iterator[None]:
        """Have the poller look after a transfer; one that stopped in its middle ends its connection."""
        socket = self._bulk.socket
        if transfer is None or socket is None:
            yield
            return
        self._poller.register(socket, zmq.POLLOUT if transfer.wants == select.POLLOUT else zmq.POLLIN)
        try:
            yield
        finally:
            with suppress(KeyError):  # it broke
                self._poller.unregister(socket)
            if transfer.stopped:
                self._bulk.close()

    def _move(self, pending: _Request, events: Mapping[Any, int]) -> None:
        socket, transfer = self._bulk.socket, pending.transfer
        if transfer is None or socket is None or socket.fileno() not in events:
            return
        transfer.step(socket)
        pending.listener.progress(transfer)
        if transfer.complete or transfer.error:
            self._poller.unregister(socket)

    def _turn(self, pending: _Request, interrupts: Interrupts) -> None:
        events = dict(self._poller.poll(TICK))
        self._move(pending, events)
        ended = self._monitor in events  # then the last words may be in any channel
        for socket in (self._iopub, self._shell, self._stdin, self._control):
            while (ended or socket in events) and (message := self._receive(socket)) is not None:
                if socket is self._iopub:
                    if message["parent_header"].get("session") == self._session.session:  # not of another connection
                        pending.published(message)
                elif socket is self._shell:
                    pending.replied(message)
                elif socket is self._stdin:
                    self._answer(pending.listener, message, interrupts)
        if not pending.done:
            self._check(events)
        while pending.interrupts < interrupts.count and not pending.done:
            self._interrupt(pending)

    def _interrupt(self, pending: _Request) -> None:
        pending.interrupts += 1
        if pending.interrupts < LAST_INTERRUPT:
            self._session.send(self._control, "interrupt_request", {"of": pending.id})
        if pending.interrupts == LAST_INTERRUPT - 1:
            pending.listener.say(
                gettext("The worker has not stopped yet: it may be in a call that cannot be interrupted. "
                        "Interrupt once more to end the worker; its variables are lost then.")
            )  # fmt: skip
        elif pending.interrupts == LAST_INTERRUPT:
            self.kill()

    def _answer(self, listener: Listener, message: Message, interrupts: Interrupts) -> None:
        asked, answer = message["content"], listener.answer
        if message["header"]["msg_type"] != "input_request" or answer is None:
            return
        value = interrupts.asking(lambda: answer(str(asked.get("prompt", "")), bool(asked.get("password"))))
        if value is not None:
            self._session.send(self._stdin, "input_reply", {"value": value}, parent=message["header"])

    def _receive(self, socket: zmq.Socket[Any]) -> Message | None:
        """Return the next message of a channel; None if there is none."""
        _, message = self._session.recv(socket, copy=False)
        return message

    def _check(self, events: Mapping[Any, int]) -> None:
        if self._monitor in events:
            raise lost(self.address, self._monitor)


class _Request:
    """A request that runs."""

    def __init__(self, identity: str, listener: Listener, replied: bool, transfer: Transfer | None) -> None:
        self.id, self.listener, self.transfer = identity, listener, transfer
        self.reply: Message = {}
        self.interrupts = 0
        self._replied, self._idle = replied, False

    @property
    def done(self) -> bool:
        """Whether its reply and all of its output have arrived, and what came with it."""
        return self._replied and self._idle and not self._receives

    @property
    def _receives(self) -> bool:
        transfer = self.transfer
        awaited = isinstance(transfer, Receiving) and self.reply["content"].get("bulk", False)
        return transfer is not None and awaited and not (transfer.complete or transfer.error)

    def published(self, message: Message) -> None:
        """Handle a message of the iopub channel; that of an earlier request, such as one of a thread, is shown, too."""
        if message["header"]["msg_type"] != "status":
            self.listener.output(message)
        elif message["content"]["execution_state"] == "idle" and message["parent_header"].get("msg_id") == self.id:
            self._idle = True

    def replied(self, message: Message) -> None:
        """Handle a reply."""
        if message["parent_header"].get("msg_id") == self.id:
            self.reply, self._replied = message, True


def _done(reply: Message) -> Message:
    """Return a reply of ours; raises what went wrong there."""
    content = reply["content"]
    if content.get("status") == "ok":
        return reply
    if content.get("ename") == "KeyboardInterrupt":
        raise KeyboardInterrupt
    raise WorkerRefused(gettext("The worker could not do that: %1: %2", content.get("ename"), content.get("evalue")))
