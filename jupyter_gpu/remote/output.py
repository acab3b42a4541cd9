"""Output of a worker's kernel where its call was made: in the cell of a notebook, or in a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from getpass import getpass
from typing import Any

from jupyter_gpu.remote.connection import Connection, Listener, Message


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
        return made if alone else replace(made, answer=None)

    def close(self) -> None:
        """Take back what stands for the kernel's widgets."""
        if self._relay is not None:
            self._relay.close()


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
