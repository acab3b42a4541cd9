"""Output of a worker's kernel where its call was made: in the cell of a notebook, or in a terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from getpass import getpass
from typing import Any

from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.bulk import Sending, Transfer
from jupyter_gpu.remote.connection import Connection, Listener, Message

PATIENCE, EACH = 1.0, 0.2
"""Seconds that a transfer takes before a line about it is written, and between two such lines."""


class Shown:
    """The output of one kernel of a worker."""

    def __init__(self, connection: Connection) -> None:
        self._relay: Any = None
        if (kernel := _kernel()) is not None:
            from jupyter_gpu.remote.relay import Relay

            self._relay = Relay(kernel, connection)

    def listener(self, *, alone: bool) -> Listener:
        """Return what a call is made with; one that is not ``alone`` cannot ask the user with ``input()``."""
        made: Listener = self._relay.listener() if self._relay is not None else Listener(show, _ask, _say)
        return replace(made, answer=made.answer if alone else None, progress=Progress())

    def close(self) -> None:
        """Take back what stands for the kernel's widgets."""
        if self._relay is not None:
            self._relay.close()


class Progress:
    """A line about a large object on its way, where it takes long."""

    def __init__(self) -> None:
        self._of: Transfer | None = None
        self._since = self._next = 0.0
        self._written = 0

    def __call__(self, transfer: Transfer) -> None:
        """Write how much has been moved; nothing while that was done a moment ago."""
        now = time.monotonic()
        if transfer is not self._of:
            self._of, self._since, self._next, self._written = transfer, now, now + PATIENCE, 0
        ends = transfer.complete or bool(transfer.error)
        if not (self._written if ends else now >= self._next):
            return
        self._next = now + EACH
        line = "" if transfer.error else sentence(transfer, now - self._since)
        sys.stderr.write("\r" + line.ljust(self._written) + ("\n" if ends else ""))
        sys.stderr.flush()
        self._written = len(line)


def sentence(transfer: Transfer, seconds: float) -> str:
    """Return how much of a large object has been moved, in MB."""
    done, total, rate = (round(bytes_ / 1e6) for bytes_ in (transfer.moved, transfer.total, transfer.moved / seconds))
    if isinstance(transfer, Sending):
        return gettext("Sent %1 of %2 MB, %3 MB/s", done, total, rate)
    return gettext("Received %1 of %2 MB, %3 MB/s", done, total, rate)


def show(message: Message) -> None:
    """Show a message as text: streams where they belong, displays as far as they have text."""
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()
    elif kind in ("display_data", "execute_result") and "text/plain" in content["data"]:
        print(content["data"]["text/plain"], flush=True)


def _ask(prompt: str, password: bool) -> str:
    return getpass(prompt) if password else input(prompt)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _kernel() -> Any:
    """Return the kernel of ipykernel that this process is; None for others."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)
