"""The worker program of a pod: its key is said to the pod's node plugin, which also tells whose key it accepts.

The pod has no token of the cluster: all that it says and hears goes over the socket in its slot's directory. A thread
does that, and hands the key of the notebook to the first process (`supervisor`). While the node plugin is away the key
of before counts, and connections go on.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import IO

from jupyter_gpu.model import strict
from jupyter_gpu.model.service import Peer
from jupyter_gpu.remote.rules import control, pairing
from jupyter_gpu.remote.rules.control import Allow, Serve

from . import standby
from .loads import LoadReader
from .plugin_socket import VARIABLE
from .supervisor import Supervisor

MAX_FILES = 4096
"""Descriptors of a process, and so connections: what strangers open ends after the time for a handshake."""
FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
"""Seconds between attempts to reach the node plugin."""
PATIENCE = 5.0
"""Seconds until the key is said again, if the node plugin has not recorded it."""
ALONE = (60, 600)
"""Seconds after which a kernel without a client interrupts what runs, and ends: the network may be cut for a while."""
_ANSWER = 10.0
_log = logging.getLogger(__name__)


class NotTaken(Exception):
    """The error if the node plugin does not take the key, or hangs up; the text says why."""


class NodePlugin:
    """The way to the node plugin. ``orders``: the end of a pipe to the first process, for `Allow`."""

    def __init__(self, path: Path, own: Peer, orders: int) -> None:
        self._path, self._own, self._orders = path, own, orders
        self._allowed = ""
        self._heard = False

    def run(self) -> None:
        """Say the key and follow the state of the pod, for ever. If that fails, the worker ends, and begins anew."""
        try:
            self._go_on()
        finally:
            os.close(self._orders)

    def _go_on(self) -> None:
        pause, said = FIRST_PAUSE, ""
        while True:
            self._heard = False
            try:
                self._converse()
            except (OSError, NotTaken, strict.FieldError) as error:
                if self._heard:
                    pause = FIRST_PAUSE
                if str(error) != said:
                    _log.warning("The GPU program of this node does not answer as it should: %s.", error)
                said = str(error)
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    def _converse(self) -> None:
        """Say the key, then follow. Raises `OSError`, `NotTaken` or `FieldError`; then it has to be said again."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER)
            connection.connect(str(self._path))
            with connection.makefile("rb") as lines:
                connection.sendall(strict.dumps({"put": "peer", **self._own.to_json()}).encode() + b"\n")
                if why := pairing.read_taken(_line(lines)):
                    raise NotTaken(why)
                connection.sendall(b'{"get": "pod"}\n')
                until = time.monotonic() + PATIENCE
                while True:
                    annotations = pairing.read_annotations(_line(lines))
                    self._heard = True
                    if annotations is not None:
                        self._allow(pairing.accepted(annotations))
                    if annotations is not None and pairing.recorded(annotations) == self._own:
                        connection.settimeout(None)  # its end tells that the node plugin ended
                        until = time.monotonic() + PATIENCE
                    else:
                        connection.settimeout(max(0.01, until - time.monotonic()))

    def _allow(self, key: str) -> None:
        if key != self._allowed:
            os.write(self._orders, Allow((key,) if key else ()).dump() + b"\n")
            self._allowed = key
            _log.info("The notebook may connect." if key else "Nobody may connect.")


def _line(lines: IO[bytes]) -> bytes:
    line = lines.readline(pairing.MAX_LINE + 1)
    if not line:
        raise NotTaken("it hung up")
    return line


def everywhere() -> str:
    """Return the address that stands for all addresses of this pod: of IPv4 if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it looks for a route
        except OSError:
            return "[::]"
    return "0.0.0.0"  # noqa: S104 - a stranger is refused by its key


def main(port: int = control.PORT, alone: tuple[int, int] = ALONE) -> None:
    """Serve the notebook whose worker this pod is, until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    path = Path(os.environ.get(VARIABLE, ""))
    if not path.is_absolute():
        sys.exit(f"{VARIABLE} is not set: this program runs in a worker pod, which has a slot for GPUs.")
    try:
        beforehand = standby.wanted(os.environ)
    except strict.FieldError as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if most == resource.RLIM_INFINITY else min(MAX_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    reading, writing = os.pipe()
    supervisor = Supervisor(Serve(everywhere(), ()), reading, port, alone, LoadReader(path), beforehand)
    node = NodePlugin(path, Peer(supervisor.serving.key, supervisor.serving.port), writing)
    threading.Thread(target=node.run, name="node", daemon=True).start()
    supervisor.run()
