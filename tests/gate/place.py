"""One simulated GPU, and programs that use it through the gate."""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from .building import Built
from .standin.board import Board, Sums, Work
from .stub import LONG, Stub

GPU = "GPU-00000000-0000-0000-0000-000000000001"
MIB = 2**20


class Program:
    """A process with pipes."""

    started: ClassVar[list["Program"]] = []
    """Those that this test has started; none is left to a later one when it fails."""

    def __init__(self, arguments: list[str], env: Mapping[str, str]) -> None:
        self.started.append(self)
        self.process = subprocess.Popen(
            arguments, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        """Return the next line that it prints; empty at its end."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def lines(self) -> list[str]:
        """Wait for its successful end and return the remaining lines."""
        out, err = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, (self.process.returncode, out, err)
        return out.split("\n")[:-1]

    def tell(self, text: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    @property
    def states(self) -> set[str]:
        """The states of its threads; R runs, or waits for nothing but a processor."""
        stats = (path.read_text() for path in Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(ValueError):  # its pipes are closed: it was waited for
            self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Place:
    """A folder with the board of the GPU and the sockets."""

    def __init__(self, built: Built, folder: Path, form: str = "local", memory: int = 1024) -> None:
        self.built, self.folder, self.form = built, folder, form
        self.memory = memory
        (folder / "boards").mkdir()
        self.sockets = folder / "s"
        self.sockets.mkdir()

    @property
    def socket(self) -> Path:
        """Return the path of the socket on which the server of the share listens."""
        return self.sockets / f"{GPU}.sock"

    @property
    def board(self) -> Path:
        """Return the path of the GPU's board, which exists once a program has used the GPU."""
        return self.folder / "boards" / f"{GPU}.board"

    def stub(self) -> Stub:
        """Start a server whose messages the test sends."""
        return Stub(self.socket)

    def env(self, owner: str = "one", sockets: Path | None = None) -> dict[str, str]:
        """Return the environment for a program of a share."""
        own = {
            "JUPYTER_GPU_STANDIN": str(self.folder / "boards"),
            "JUPYTER_GPU_STANDIN_GPUS": f"{GPU}:{self.memory}",
            "JUPYTER_GPU_STANDIN_OWNER": owner,
        }
        if self.form == "shim":
            self.built.sockets.unlink(missing_ok=True)
            self.built.sockets.symlink_to(sockets or self.sockets)
            return own | {"LD_LIBRARY_PATH": str(self.built.shim)}
        gate = {"LD_LIBRARY_PATH": str(self.built.gate), "JUPYTER_GPU_GATE": str(sockets or self.sockets)}
        return own | gate

    def run(self, *arguments: str, owner: str = "one", sockets: Path | None = None, **env: str) -> Program:
        """Start the test program: its way to the driver, then its commands."""
        name = "linked" if arguments[0] == "link" else "client"
        program = str(self.built.program(name))
        return Program([program, *arguments], self.env(owner, sockets) | env)

    def sums(self) -> Sums:
        """Return the sums of what the GPU has done so far."""
        return Board(self.folder / "boards", GPU).sums()

    def launches(self) -> int:
        """Return the number of launches; 0 before the first program."""
        return self.sums().launches if self.board.exists() else 0

    def log(self, since: int = 0) -> list[Work]:
        """Return the launches from number `since` on."""
        return Board(self.folder / "boards", GPU).log(since)
