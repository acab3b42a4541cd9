"""Messages of a worker's kernel, shown in the notebook as if its own kernel had sent them.

Output goes on as it is, with the notebook's cell as its parent. Widgets that code there made have a proxy here, by
which the clicks of the page go there. While a call of another thread uses the worker's kernel, they wait in a thread of
their own, so that cells of the notebook go on.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from jupyter_gpu.remote.connection import Busy, Connection, Listener, Message
from jupyter_gpu.remote.errors import WorkerLost

KEPT_BACK = frozenset(["error", "execute_input", "iopub_welcome", "shutdown_reply", "status"])
"""Messages about the worker's kernel itself; an error becomes an exception of the notebook's cell."""


class Relay:
    """The way of messages from a connection to the front ends of a notebook's kernel (ipykernel's)."""

    def __init__(self, kernel: Any, connection: Connection) -> None:
        self._kernel, self._connection = kernel, connection
        self._comms: dict[str, CommProxy] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        """Messages of the page, while there is a thread that sends them; the first is being sent."""
        self._queue = threading.Lock()

    def listener(self) -> Listener:
        """Return what a request is made with whose output is shown here."""
        can_ask = getattr(self._kernel, "_allow_stdin", False)  # of the cell that runs
        return Listener(self.show, self._ask if can_ask else None, lambda text: print(text, file=sys.stderr))

    def show(self, message: Message) -> None:
        """Show a message of the iopub channel."""
        kind, content = message["header"]["msg_type"], message["content"]
        if kind in KEPT_BACK:
            return
        if kind == "execute_result":
            content = {**content, "execution_count": self._kernel.shell.displayhook.prompt_count}
        elif kind in ("comm_open", "comm_close"):
            self._follow(kind, str(content["comm_id"]))
        sys.stdout.flush()  # what was printed here before comes before it
        sys.stderr.flush()
        self._kernel.session.send(
            self._kernel.iopub_socket,
            kind,
            content,
            parent=self._kernel.get_parent("shell"),
            ident=f"kernel.{self._kernel.ident}.{kind}".encode(),
            buffers=message["buffers"],
            metadata=message["metadata"],
        )

    def close(self) -> None:
        """Take back the proxies: the worker's widgets no longer react."""
        for proxy in list(self._comms.values()):
            self._kernel.comm_manager.unregister_comm(proxy)
        self._comms.clear()

    def _ask(self, prompt: str, password: bool) -> str:
        answer = self._kernel.getpass(prompt) if password else self._kernel.raw_input(prompt)
        return str(answer)

    def _follow(self, kind: str, comm_id: str) -> None:
        if kind == "comm_close":
            if (proxy := self._comms.pop(comm_id, None)) is not None:
                self._kernel.comm_manager.unregister_comm(proxy)
            return
        proxy = self._comms[comm_id] = CommProxy(comm_id, self._forward)
        self._kernel.comm_manager.register_comm(proxy)

    def _forward(self, kind: str, message: Message) -> None:
        """Send a message of the page to the worker; what it answers is shown below the widget's cell as ever."""
        if kind == "comm_close":
            self._comms.pop(str(message["content"]["comm_id"]), None)
        with self._queue:
            if not self._waiting:
                try:
                    self._send(kind, message, wait=False)
                    return
                except Busy:
                    threading.Thread(target=self._send_waiting, name="jupyter-gpu-clicks", daemon=True).start()
            context = contextvars.copy_context()  # it has the message as parent of what is shown
            self._waiting.append(lambda: context.run(self._send, kind, message, wait=True))

    def _send_waiting(self) -> None:
        """Send what waits, in its order."""
        while True:
            with self._queue:
                job = self._waiting[0]
            job()
            with self._queue:
                self._waiting.popleft()
                if not self._waiting:
                    return

    def _send(self, kind: str, message: Message, *, wait: bool) -> None:
        try:
            self._connection.request(
                kind, message["content"], self.listener(), buffers=message["buffers"], replies=False, wait=wait
            )
        except WorkerLost:
            self.close()


class CommProxy:
    """The stand-in, in the notebook's kernel, for a comm of the worker's."""

    def __init__(self, comm_id: str, forward: Callable[[str, Message], None]) -> None:
        self.comm_id = comm_id
        self._forward = forward

    def handle_msg(self, message: Message) -> None:
        """Forward a message of the page."""
        self._forward("comm_msg", message)

    def handle_close(self, message: Message) -> None:
        """Forward that the page has closed it."""
        self._forward("comm_close", message)
