"""The first process of a worker: it starts the worker's kernels, and kills them from outside, which always works.

It makes the worker's key pair and listens for the notebook that may connect (`control` has the words). Its standard
input is a pipe from whoever started it: the end of that pipe ends the worker, also if that process was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import zmq

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import PYTHON
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Kill, Killed, Refused, Run, Serve, Serving, Start, Started, Word
from jupyter_gpu.worker import pinned


@dataclass
class Kernel:
    """One kernel of the worker."""

    process: subprocess.Popen[bytes]
    ended: int
    """Its pidfd, which can be read when it has ended."""
    report: IO[bytes]
    """The pipe from which `Started` is read."""
    errors: IO[bytes]
    """A file with all that it printed before it was ready."""
    started: Started | None = None
    waiting: list[bytes] = field(default_factory=list)
    """The clients that wait for `Started`."""

    def kill(self) -> None:
        """End it, and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close its descriptors."""
        os.close(self.ended)
        self.report.close()
        self.errors.close()

    def last_words(self) -> str:
        """Return the last line that it printed before it was ready, and how it ended."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 4096))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it printed nothing'} (status {self.process.returncode})"


class Supervisor:
    """The first process. ``leash`` is the descriptor whose end ends it."""

    def __init__(self, serve: Serve, leash: int) -> None:
        self._serve, self._leash = serve, leash
        self._public, self._secret = zmq.curve_keypair()
        self._context = zmq.Context()
        self._authenticator = pinned.authenticator(self._context, serve.allow)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        pinned.serve(self._socket, self._public, self._secret)
        self._socket.maxmsgsize = control.MAX_BYTES
        port = self._socket.bind_to_random_port(f"tcp://{serve.address}")
        self.serving = Serving(port, self._public.decode())
        self._kernels: dict[str, Kernel] = {}

    def run(self) -> None:
        """Serve until the leash ends, then end all kernels."""
        try:
            while self._turn():
                pass
        finally:
            for name in list(self._kernels):
                self._drop(name)
            self._authenticator.stop()
            self._context.destroy(linger=0)

    def _turn(self) -> bool:
        """Wait for one event and handle it; return whether to go on."""
        poller = zmq.Poller()
        jobs: dict[Any, Callable[[], None]] = {self._socket: self._answer_all}
        for name, kernel in self._kernels.items():
            jobs[kernel.ended] = lambda name=name: self._on_end(name)  # type: ignore[misc]
            if kernel.started is None:
                jobs[kernel.report.fileno()] = lambda name=name: self._on_report(name)  # type: ignore[misc]
        for source in (*jobs, self._leash):
            poller.register(source, zmq.POLLIN)
        events = dict(poller.poll())
        if self._leash in events and not os.read(self._leash, 4096):
            return False
        for source, job in jobs.items():
            if source in events:
                job()
        return True

    def _answer_all(self) -> None:
        while self._socket.poll(0):
            client, *parts = self._socket.recv_multipart()
            try:
                word = control.read(parts[0] if len(parts) == 1 else b"", Start, Kill)
            except strict.FieldError as error:
                self._send(client, Refused(str(error)))
                continue
            if isinstance(word, Kill):
                self._drop(word.kernel)
                self._send(client, Killed(word.kernel))
            elif isinstance(word, Start):
                self._start(client, word)

    def _start(self, client: bytes, start: Start) -> None:
        if (known := self._kernels.get(start.kernel)) is None:
            if why := control.refusal(start, PYTHON, len(self._kernels)):
                self._send(client, Refused(why))
                return
            known = self._kernels[start.kernel] = self._launch(start.folder)
        if known.started:
            self._send(client, known.started)
        else:
            known.waiting.append(client)

    def _launch(self, folder: str) -> Kernel:
        reading, writing = os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the kernel
        try:
            process = subprocess.Popen(  # noqa: S603 - this Python, and a number
                [sys.executable, "-P", "-m", "jupyter_gpu.worker.kernel_app", str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[writing],
                cwd=folder if Path(folder).is_dir() else None,
                env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},  # it ends when this process was killed
                start_new_session=True,
            )
        finally:
            os.close(writing)
        run = Run(
            self._serve.address,
            self._public.decode(),
            self._secret.decode(),
            self._serve.allow,
            secrets.token_hex(32),
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:  # it has ended: `_on_end` says why
            process.stdin.write(run.dump() + b"\n")
        return Kernel(process, os.pidfd_open(process.pid), open(reading, "rb"), errors)  # noqa: PTH123

    def _on_report(self, name: str) -> None:
        kernel = self._kernels[name]
        line = kernel.report.readline(control.MAX_BYTES)
        if not line:  # it ends
            kernel.process.wait()
            return
        kernel.started = control.read(line, Started)
        for client in kernel.waiting:
            self._send(client, kernel.started)
        kernel.waiting.clear()

    def _on_end(self, name: str) -> None:
        kernel = self._kernels.get(name)
        if kernel is None:  # killed in the same turn
            return
        kernel.process.wait()
        self._drop(name, gettext("The worker's kernel ended before it was ready: %1", kernel.last_words()))

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


def main() -> None:
    """Read `Serve` from the standard input, answer with `Serving`, and serve until the input ends."""
    leash = os.dup(0)
    with open(0, "rb", buffering=0, closefd=False) as line:
        serve = control.read(line.readline(control.MAX_BYTES), Serve)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(serve, leash)
    with open(1, "wb", closefd=False) as answer:
        answer.write(supervisor.serving.dump() + b"\n")
    supervisor.run()
