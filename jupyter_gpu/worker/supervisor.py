"""The first process of a worker: it starts the worker's kernels, and kills them from outside, which always works.

It makes the worker's key pair and listens for the notebook that may connect (`control` has the words). On one machine
its standard input is a pipe from whoever started it: the end of that pipe ends the worker, also if that process was
killed. In a worker pod, `node` has the other end of the pipe.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import zmq

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import PYTHON, versions
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import (
    Allow,
    Check,
    Checked,
    KernelOf,
    Kill,
    Killed,
    Load,
    Loads,
    Look,
    Refused,
    Run,
    Running,
    Serve,
    Serving,
    Start,
    Started,
    Tell,
    Word,
)
from jupyter_gpu.worker import endings, pinned
from jupyter_gpu.worker.endings import Endings
from jupyter_gpu.worker.kernels import Kernel
from jupyter_gpu.worker.loads import LoadReader
from jupyter_gpu.worker.standby import VARIABLE, Standby
from jupyter_gpu.worker.unreadable import Unreadable

REAP = 1_000
"""Milliseconds between two looks for processes whose parents have ended, as the first process of a container."""
SLOWLY = 5
"""Pace at which a kernel loads for which nobody waits, as of nice(1)."""
MAX_WAITING = 64
"""Messages, and clients, that wait at a time; those of one notebook are a few."""


class Supervisor:
    """The first process. ``leash`` is the descriptor by which `Allow` comes, and whose end ends it.

    ``port``: its port; those of its kernels follow. 0: any. ``patience``: seconds after which a kernel without a client
    interrupts what runs, and ends; 0: never, as one on the notebook's machine ends with the notebook. ``loads``: reads
    those of the worker's GPUs; None: nobody tells them. ``standby``: whether a kernel is started beforehand.
    """

    def __init__(
        self,
        serve: Serve,
        leash: int,
        port: int = 0,
        patience: tuple[int, int] = (0, 0),
        loads: LoadReader | None = None,
        standby: bool = False,
    ) -> None:
        self._address, self._allowed, self._leash, self._port = serve.address, serve.allow, leash, port
        self._patience = patience
        self._loads = loads
        self._orders = b""
        self._launched = 0
        self._keys = pinned.Keys(serve.allow)
        self._public, self._secret = zmq.curve_keypair()
        self._context = zmq.Context()
        self._authenticator = pinned.authenticator(self._context, self._keys)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        pinned.serve(self._socket, self._public, self._secret, ipv6=":" in serve.address)
        self._socket.maxmsgsize = control.MAX_BYTES
        self._socket.sndhwm = self._socket.rcvhwm = MAX_WAITING  # each message has one answer
        if port:
            self._socket.bind(f"tcp://{serve.address}:{port}")
        else:
            port = self._socket.bind_to_random_port(f"tcp://{serve.address}")
        self.serving = Serving(port, self._public.decode())
        self._kernels: dict[str, Kernel] = {}
        self._endings = Endings(endings.here())
        self._unreadable = Unreadable()
        self._standby = Standby(time.monotonic()) if standby else None

    def run(self) -> None:
        """Serve until the leash ends, then end all kernels. Runs in the main thread, to which signals are told."""
        try:
            with _woken_by_signals() as signals:
                while self._turn(signals):
                    pass
        finally:
            for name in list(self._kernels):
                self._drop(name)
            if self._standby is not None:
                self._standby.close()
            self._authenticator.stop()
            self._context.destroy(linger=0)

    def _turn(self, signals: int) -> bool:
        """Wait for one event and handle it; return whether to go on. ``signals``: can be read after a signal."""
        poller = zmq.Poller()
        jobs: dict[Any, Callable[[], None]] = {self._socket: self._answer_all, signals: lambda: _drain(signals)}
        if self._loads is not None:
            jobs[self._loads.ready] = self._on_loads
        for name, kernel in self._kernels.items():
            jobs[kernel.ended] = lambda name=name: self._on_end(name)  # type: ignore[misc]
            if kernel.started is None:
                jobs[kernel.report.fileno()] = lambda name=name: self._on_report(name)  # type: ignore[misc]
        if self._standby is not None and self._standby.kernel is not None:
            jobs[self._standby.kernel.ended] = self._on_standby_end
        for source in (*jobs, self._leash):
            poller.register(source, zmq.POLLIN)
        events = dict(poller.poll(self._patience_of_turn()))
        if self._leash in events and not self._read_orders():
            return False
        for source, job in jobs.items():
            if source in events:
                job()
        if os.getpid() == 1:
            self._reap()
        self._prepare()
        return True

    def _patience_of_turn(self) -> int | None:
        """Return the milliseconds until something is to be done, whatever comes; None: nothing is."""
        waits = [REAP] if os.getpid() == 1 else []
        if self._standby is not None and len(self._kernels) < control.MAX_KERNELS:
            wait = self._standby.wait(time.monotonic())
            waits += [] if wait is None else [int(1000 * wait) + 1]
        return min(waits, default=None)

    def _prepare(self) -> None:
        """Start a kernel beforehand, where that is due."""
        standby = self._standby
        if standby is not None and standby.wait(time.monotonic()) == 0 and len(self._kernels) < control.MAX_KERNELS:
            try:
                standby.kernel = self._launch(pace=SLOWLY)
            except OSError:
                standby.failed(time.monotonic())

    def _all(self) -> list[Kernel]:
        """Return all kernels, also the one that stands by."""
        waiting = self._standby.kernel if self._standby is not None else None
        return [*self._kernels.values(), *([waiting] if waiting is not None else [])]

    def _reap(self) -> None:
        """Wait for what ended after its parent had: it is a child of a container's first process."""
        own = {kernel.process.pid for kernel in self._all()}
        look = os.WEXITED | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while (one := os.waitid(os.P_ALL, 0, look | os.WNOWAIT)) and one.si_pid not in own:
                os.waitid(os.P_PID, one.si_pid, look)

    def _read_orders(self) -> bool:
        """Allow the keys that are named; return whether to go on: not after the end, or after what can't be read."""
        data = os.read(self._leash, 4096)
        *lines, self._orders = (self._orders + data).split(b"\n")
        try:
            for line in lines:
                self._allowed = control.read(line, Allow).keys
        except strict.FieldError:
            return False
        if lines:
            self._keys.allow(self._allowed)
            for kernel in self._all():
                kernel.allow(self._allowed)
        return bool(data) and len(self._orders) < control.MAX_BYTES

    def _answer_all(self) -> None:
        for _ in range(MAX_WAITING):  # then kernels and keys have their turn
            try:
                client, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if self._unreadable.ignores(client):
                continue
            try:
                word = control.read(parts[0] if len(parts) == 1 else b"", Start, Kill, Look, Load, Check, Tell)
            except strict.FieldError as error:
                self._unreadable.add(client)
                self._send(client, Refused(str(error)))
                continue
            if isinstance(word, Kill):
                self._drop(word.kernel)
                self._send(client, Killed(word.kernel))
            elif isinstance(word, Look):
                self._send(client, Running(self._owners()))
            elif isinstance(word, Load):
                self._ask_loads(client)
            elif isinstance(word, Check):
                self._send(client, Checked(PYTHON, versions.installed()))
            elif isinstance(word, Start):
                self._start(client, word)
            elif isinstance(word, Tell):
                self._send(client, self._endings.told(word.kernel, alive=word.kernel in self._kernels))

    def _owners(self) -> tuple[KernelOf, ...]:
        known = self._kernels.items()
        return tuple(KernelOf(name, kernel.owner) for name, kernel in known if kernel.owner is not None)

    def _ask_loads(self, client: bytes) -> None:
        if self._loads is None:
            self._send(client, Loads())
        else:
            self._loads.ask(client)

    def _on_loads(self) -> None:
        assert self._loads is not None
        for client, loads in self._loads.answers():
            self._send(client, loads)

    def _start(self, client: bytes, start: Start) -> None:
        if (known := self._kernels.get(start.kernel)) is None:
            if why := control.refusal(start, PYTHON, len(self._kernels)):
                self._send(client, Refused(why))
                return
            try:
                known = self._kernels[start.kernel] = self._taken() or self._launch()
            except OSError as error:
                self._send(client, Refused(gettext("The worker cannot start a kernel: %1", error.strerror or error)))
                return
            known.give(start.owner, start.folder)
        if known.started:
            self._send(client, known.started)
        elif client not in known.waiting and len(known.waiting) < MAX_WAITING:
            known.waiting.append(client)

    def _taken(self) -> Kernel | None:
        """Return the kernel that stands by, which then is another's; None: there is none."""
        return self._standby.take(time.monotonic()) if self._standby is not None else None

    def _launch(self, pace: int = 0) -> Kernel:
        """Start a kernel, with a pace as of nice(1). Raises `OSError`."""
        with contextlib.ExitStack() as undo:
            reading, writing = os.pipe()
            undo.callback(os.close, reading)
            try:
                errors = undo.enter_context(tempfile.TemporaryFile())
                process = self._run(writing, errors, pace)
            finally:
                os.close(writing)
            undo.callback(process.wait)
            undo.callback(process.kill)
            assert process.stdin is not None
            os.set_blocking(process.stdin.fileno(), False)
            ended = os.pidfd_open(process.pid)
            undo.pop_all()
        run = Run(
            self._address,
            self._public.decode(),
            self._secret.decode(),
            self._allowed,
            secrets.token_hex(32),
            self._next_ports(),
            self._port + 1 + control.CHANNELS * control.MAX_KERNELS if self._port else 0,
            *self._patience,
        )
        with contextlib.suppress(BrokenPipeError):  # it has ended: `_on_end` says why
            process.stdin.write(run.dump() + b"\n")
        return Kernel(process, ended, open(reading, "rb"), errors, run.port)  # noqa: PTH123

    def _next_ports(self) -> int:
        """Return the first port of a new kernel: of those that are free, the ones that were not used for longest."""
        if not self._port:
            return 0
        used = {kernel.port for kernel in self._all()}
        while True:
            port = self._port + 1 + control.CHANNELS * (self._launched % control.MAX_KERNELS)
            self._launched += 1
            if port not in used:
                return port

    def _run(self, writing: int, errors: IO[bytes], pace: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this Python, and numbers
            [sys.executable, "-P", "-m", "jupyter_gpu.worker.kernel_process", str(writing), str(pace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            bufsize=0,
            pass_fds=[writing],
            env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},  # it ends when this process was killed
            start_new_session=True,
        )

    def _on_report(self, name: str) -> None:
        kernel = self._kernels[name]
        line = kernel.report.readline(control.MAX_BYTES)
        if not line:  # it ends
            kernel.process.wait()
            return
        kernel.started = control.read(line, Started)
        if self._standby is not None:
            self._standby.worked()
        for client in kernel.waiting:
            self._send(client, kernel.started)
        kernel.waiting.clear()

    def _on_end(self, name: str) -> None:
        kernel = self._kernels.get(name)
        if kernel is None:  # killed in the same turn
            return
        self._endings.add(name, kernel.process.wait())
        if kernel.started is None and kernel.stood_by:
            self._replace(name)
        else:
            self._drop(name, _unready(kernel))

    def _replace(self, name: str) -> None:
        """Start another kernel in place of one that stood by and has run nothing: whoever took it need not know."""
        ended = self._kernels.pop(name)  # its ports are free
        why = _unready(ended)
        ended.kill()
        ended.close()
        try:
            other = self._launch()
        except OSError:
            for client in ended.waiting:
                self._send(client, Refused(why))
            return
        assert ended.owner is not None
        other.waiting = ended.waiting
        self._kernels[name] = other
        other.give(ended.owner, ended.folder)

    def _on_standby_end(self) -> None:
        assert self._standby is not None
        self._standby.on_end()
        self._endings.skip()

    def _drop(self, name: str, why: str = "The worker's kernel was ended.") -> None:
        """End a kernel, and say why to those that wait for it."""
        kernel = self._kernels.pop(name, None)
        if kernel is not None:
            kernel.kill()
            kernel.close()
            for client in kernel.waiting:
                self._send(client, Refused(why))

    def _send(self, client: bytes, word: Word) -> None:
        self._socket.send_multipart([client, word.dump()])


def _unready(kernel: Kernel) -> str:
    return gettext("The worker's kernel ended before it was ready: %1", kernel.last_words())


@contextlib.contextmanager
def _woken_by_signals() -> Iterator[int]:
    """Have each signal make a descriptor readable: one that comes just before a wait would else not end the wait."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def main() -> None:
    """Read `Serve` from the standard input, answer with `Serving`, and serve until the input ends."""
    leash = os.dup(0)
    with open(0, "rb", buffering=0, closefd=False) as line:
        serve = control.read(line.readline(control.MAX_BYTES), Serve)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(serve, leash, standby=os.environ.get(VARIABLE) == "1")
    with open(1, "wb", closefd=False) as answer:
        answer.write(supervisor.serving.dump() + b"\n")
    supervisor.run()


if __name__ == "__main__":
    main()
