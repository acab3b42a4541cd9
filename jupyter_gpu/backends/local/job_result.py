"""The result of one job of the worker thread, for the event loop."""

from __future__ import annotations

import socket
from typing import NamedTuple

from jupyter_gpu.model.view import View
from jupyter_gpu_node.processes.rules.process_id import ProcessId


class JobResult(NamedTuple):
    """The result of a job, for the event loop."""

    view: View
    socket: socket.socket | None
    """Socket on which other servers notify this pod."""
    due: float | None
    """Time of the next reconcile, on the clock of `time.monotonic`; ``None``: only when something happens."""
    watch: frozenset[ProcessId]
    """Processes whose end is a reason to reconcile."""
