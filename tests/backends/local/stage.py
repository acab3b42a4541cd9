"""Actors from the test's side: started, told what to do, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.gpus.simulated import SimulatedGpus

PATIENCE = 60.0
"""Seconds after which something that should happen is a failure; machines are slow at times."""


class Remote:
    """An actor, or a kernel of one."""

    def __init__(self, channel: socket.socket, pid: int = 0) -> None:
        channel.settimeout(PATIENCE)
        self._channel = channel
        self._lines = channel.makefile("rb")
        self.pid = pid
        self.uid = ""

    def tell(self, do: str, **arguments: Any) -> None:
        """Without waiting for the answer."""
        self._channel.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")

    def answer(self) -> Any:
        """Return the answer to the oldest open message. Raises RuntimeError with the actor's own error."""
        line = self._lines.readline()
        if not line:
            raise EOFError("The actor is dead.")
        body = json.loads(line)
        if "error" in body:
            raise RuntimeError(f"{body['error']}: {body['message']}")
        return body["value"]

    def ask(self, do: str, **arguments: Any) -> Any:
        """Tell it and wait."""
        self.tell(do, **arguments)
        return self.answer()

    def kill(self) -> None:
        """Kill it, as the out-of-memory killer would, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            gone = os.pidfd_open(self.pid)
            signal.pidfd_send_signal(gone, signal.SIGKILL)
            assert select.select([gone], [], [], PATIENCE)[0], f"process {self.pid} does not end"
            os.close(gone)

    def end(self) -> None:
        """End it in any state."""
        if self.pid:
            self.kill()
        self._lines.close()
        self._channel.close()


class Nursery:
    """A process that starts actors; see :func:`.actor.nursery`."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._orders.settimeout(PATIENCE)
        with theirs:
            command = [sys.executable, "-m", "tests.backends.local.actor", "nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def actor(self) -> Remote:
        """A new process."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [b"x"], [theirs.fileno()])
        return Remote(ours, int(self._orders.recv(10, socket.MSG_WAITALL)))

    def close(self) -> None:
        """No more."""
        self._orders.close()
        self._process.wait(PATIENCE)


class Stage:
    """A machine with simulated GPUs of its own: actors that share one state directory."""

    def __init__(self, nursery: Nursery, state: Path, gpus: int = 3) -> None:
        self.state = state
        self.gpus = gpus
        self.actors: list[Remote] = []
        self._nursery = nursery
        self._uids: set[str] = set()

    @property
    def paths(self) -> list[str]:
        """Device nodes of the GPUs, by index."""
        return [gpu.path for gpu in self.inventory()]

    def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs themselves."""
        return SimulatedGpus(self.state / "simulated", self.gpus).inventory()

    @property
    def uuids(self) -> list[str]:
        """The same GPUs by name."""
        return [gpu.uuid for gpu in self.inventory()]

    def actor(self) -> Remote:
        """A process that belongs to no pod."""
        self.actors.append(self._nursery.actor())
        return self.actors[-1]

    def server(self, actor: Remote | None = None, **options: Any) -> Remote:
        """A process with a backend that has found its GPUs."""
        server = actor or self.actor()
        self.start(server, **options)
        return server

    def start(self, server: Remote, **options: Any) -> dict[str, Any]:
        """The backend of an actor."""
        view: dict[str, Any] = server.ask(
            "start", **{"state_dir": str(self.state), "simulated_gpus": self.gpus, **options}
        )
        server.uid = view["instance"]
        self._uids.add(server.uid)
        return view

    def know(self, uid: str) -> None:
        """A pod whose records lie elsewhere: its group is removed at the end, too."""
        self._uids.add(uid)

    def kernel(self, server: Remote) -> Remote:
        """A child of a server; it outlives it."""
        ours, theirs = socket.socketpair()
        # The child gets the descriptor by passing it on: it was not there when the server was started.
        kernel = Remote(ours)
        with theirs:
            number = _pass(server, theirs, self.state.parent)
        kernel.pid = server.ask("spawn", channel=number)
        self.actors.append(kernel)
        assert kernel.ask("pid") == kernel.pid
        return kernel

    def arbiters(self) -> list[int]:
        """Pids of the arbiters of this machine, and of those that begin."""
        return arbiters(self.state)

    def end(self) -> None:
        """No process, no control group is left."""
        for actor in self.actors:
            actor.end()
        end_arbiters(self.state)
        self._uids.update(path.stem for path in (self.state / "pods").glob("*.json"))
        for group in self.groups():
            wait_for(partial(cgroup.remove, group), "its group to be empty")

    def groups(self) -> list[Path]:
        """Control groups of the pods that were started here."""
        mounted = cgroup.mounts().unified
        parent = mounted.directory(cgroup.membership()[""]) if mounted else Path("/nowhere")
        return [group for uid in self._uids if (group := parent / cgroup.group_name(uid)).exists()]


def _pass(server: Remote, given: socket.socket, folder: Path) -> int:
    """Give a server a descriptor; its number there."""
    place = folder / f"fd-{os.urandom(4).hex()}"
    server.ask("receive", path=str(place), at=str(place))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as carrier:
        carrier.connect(str(place))
        socket.send_fds(carrier, [b"x"], [given.fileno()])
        carrier.recv(1)
    place.unlink()
    number: int = server.ask("number", path=str(place))
    return number


def arbiters(state: Path) -> list[int]:
    """Pids of the arbiters of a state directory, and of those that begin."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"jupyter_gpu.backends.local.sharing" in words and os.fsencode(state) in words:
                    found.append(int(entry.name))
    return found


def end_arbiters(state: Path) -> None:
    """Sooner than they would by themselves; no server starts another one."""
    for pid in arbiters(state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not arbiters(state), "the end of the arbiters")


def wait_for(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first true value of ``condition``; fails with ``what`` after a while."""
    deadline = time.monotonic() + patience
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"waited {patience:g} s for {what}"
        time.sleep(0.005)


def states(view: dict[str, Any]) -> Sequence[tuple[int, str]]:
    """Index and state of each GPU of a view."""
    return [(gpu["index"], gpu["state"]) for gpu in view["gpus"]]
