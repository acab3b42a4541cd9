"""A machine with simulated GPUs that compute: servers on one state directory, and real programs of their pods.

The programs go through the gate of this installation, as kernels do, and run on the stand-in driver, whose boards tell
who used a GPU when.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpu.backends.local.sharing import files, trust
from tests.backends.local.stage import Nursery, Remote, Stage, wait_for
from tests.gate.standin.board import Board, Sums, busy

MIB = 2**20
MEMORY = 1024
"""MiB of each simulated GPU."""


@dataclass
class Program:
    """One that a server started."""

    server: Remote
    pid: int
    out: Path

    @property
    def said(self) -> list[str]:
        """All lines so far."""
        return self.out.read_text().split("\n")[:-1]

    def ended(self) -> bool:
        """Whether it has; its status is in `status` then."""
        return self.status is not None

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs."""
        status: int | None = self.server.ask("returned", pid=self.pid)
        return status

    def lines(self) -> list[str]:
        """All lines, when it has ended well."""
        wait_for(self.ended, "the end of a program")
        assert self.status == 0, (self.status, self.out.read_text())
        return self.said

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Machine(Stage):
    """With one GPU, unless it is said otherwise."""

    def __init__(self, nursery: Nursery, state: Path, built: Path, gpus: int = 1) -> None:
        super().__init__(nursery, state, gpus)
        self.built = built
        self.boards = state.parent / "boards"
        self.boards.mkdir()
        self.boards.chmod(0o1777)
        self._programs: list[Program] = []

    @property
    def driver(self) -> dict[str, str]:
        """Return the variables by which a program finds the stand-in driver and the GPUs."""
        return {
            "LD_LIBRARY_PATH": str(self.built),
            "JUPYTER_GPU_STANDIN": str(self.boards),
            "JUPYTER_GPU_STANDIN_GPUS": ",".join(f"{uuid}:{MEMORY}" for uuid in self.uuids),
        }

    def run(self, server: Remote, *commands: str, **env: str) -> Program:
        """The test program, as a child of the server: see `tests/gate/clients/client.c`."""
        return self.start_program(server, [str(self.built / "client"), "dlsym", *commands], **env)

    def start_program(self, server: Remote, command: list[str], **env: str) -> Program:
        """Any program, as a child of the server."""
        out = self.state.parent / f"out-{len(self._programs)}"
        more = {**self.driver, "JUPYTER_GPU_STANDIN_OWNER": server.uid, **env}
        program = Program(server, server.ask("run", command=command, out=str(out), env=more), out)
        self._programs.append(program)
        return program

    def end(self) -> None:
        """No program, no server, no arbiter is left."""
        for program in self._programs:
            program.send(signal.SIGKILL)
        self._programs.clear()
        super().end()

    # -- what is to be seen -------------------------------------------------------------------------------------------

    def arbiter(self, but: int = 0) -> int:
        """The pid of the one that serves, another one than ``but``."""

        def serves() -> int | None:
            found = [pid for pid in self.arbiters() if pid != but]
            return found[0] if len(found) == 1 and trust.arbiter_user(self.state) is not None else None

        pid: int = wait_for(serves, "an arbiter")
        return pid

    def log(self, user: int | None = None) -> str:
        """Return the log of that user's arbiters."""
        return (files.home(self.state, user) / files.LOG).read_text()

    def socket(self, server: Remote, gpu: int = 0) -> Path:
        """Return the socket of a share, as its programs find it."""
        return files.gate(self.state, server.uid) / f"{self.uuids[gpu]}.sock"

    def served(self, server: Remote, gpu: int = 0) -> Path:
        """The socket, as soon as it is there."""
        path = self.socket(server, gpu)
        wait_for(path.exists, f"the socket of {server.uid}")
        return path

    def board(self, gpu: int = 0) -> Board:
        """Return the board of a GPU, as soon as a program used it."""
        path = self.boards / f"{self.uuids[gpu]}.board"
        wait_for(path.exists, "the board of the GPU")
        return Board(self.boards, self.uuids[gpu])

    def sums(self, gpu: int = 0) -> Sums:
        """Return what it did so far; nothing before its first program."""
        if not (self.boards / f"{self.uuids[gpu]}.board").exists():
            return Sums(0, 0, 0)
        return self.board(gpu).sums()

    def more(self, launches: int, gpu: int = 0) -> None:
        """Wait until it has done so many more."""
        goal = self.sums(gpu).launches + launches
        wait_for(lambda: self.sums(gpu).launches >= goal, f"{launches} launches")

    def part(self, owner: Remote, of: tuple[Remote, ...], since: int, gpu: int = 0) -> float:
        """Return the part that one server did of the work of several, from a time on."""
        log = self.board(gpu).log()
        return busy(log, owner.uid, since) / max(1, sum(busy(log, one.uid, since) for one in of))

    def conditions(self, server: Remote) -> dict[str, str]:
        """Return the conditions of its view: message by type."""
        return {one["type"]: one["message"] for one in server.ask("view")["conditions"]}

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for it."""
        return wait_for(condition, what)
