"""A server and its enforcer, for tests: in this process, or in one of their own that can be killed.

`python -m tests.shares.enforcing FOLDER SHARES`: serves these shares (JSON) until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.processes.signals import identify
from jupyter_gpu_node.shares.enforced_shares import EnforcedShares
from jupyter_gpu_node.shares.enforcement.enforcer import PenaltyCallbacks
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.scans.node_processes import NodeProcesses
from jupyter_gpu_node.shares.scans.usage_by_process import MemoryByPid, TimeByPid
from jupyter_gpu_node.shares.server.arbiter_server import PlacedShare
from jupyter_gpu_node.shares.server.peer import beside_us
from jupyter_gpu_node.shares.server.store import ShareStore
from tests.gate.standin.board import Board

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds after which a test has failed."""
TWO = {"a": 500, "b": 500}
"""Two shares of half a GPU each."""
SPIN = "print('has it', flush=True)\nwhile True: pass"
HOG = """
import sys
from pathlib import Path
from tests.shares.client import Client
with Client(Path(sys.argv[1])) as client:
    client.grant()
    print("has it", flush=True)
    while True:
        message = client.poll(0.01)  # reads what it is sent, and keeps what it has
"""
HOG_BUSY = HOG.replace("message = client.poll(0.01)", "pass")
"""One that does not notice that its server has gone."""
POLITE = """
import sys, os
from pathlib import Path
from tests.shares.client import Program
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
Program(Path(sys.argv[1]), log, 5000, 1000).run(600)
"""
ESCAPER = """
import time
from tests.gate.standin.driver import call, kernel, launch, start
start()
work = kernel("work_us5000")
launch(work)
print("has it", flush=True)
while True:
    launch(work)
    launch(work)
    call("cuCtxSynchronize")
"""


class Boards:
    """Reads the boards of simulated GPUs."""

    note = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked = 0
        """Number of requests for memory."""
        self.hidden = False
        """Whether the driver does not tell memory, as in WSL 2."""

    async def memory(self, gpu: str) -> MemoryByPid | None:
        """Return the memory of each process that has the GPU open."""
        self.asked += 1
        try:
            board = await asyncio.to_thread(Board, self._folder, gpu)
        except OSError:
            return {}
        try:
            return dict.fromkeys(board.live()) if self.hidden else board.live()
        finally:
            board.close()

    async def read(self, gpu: str, begin: int, end: int) -> TimeByPid | None:
        """Return the use by the log of the work, which is exact."""
        return await asyncio.to_thread(self._read, gpu, begin, end)

    async def close(self) -> None:
        pass

    def _read(self, gpu: str, begin: int, end: int) -> TimeByPid | None:
        try:
            board = Board(self._folder, gpu)
        except OSError:  # not used yet
            return {}
        found: dict[int, int] = {}
        for work in board.log():
            if (part := min(work.end, end) - max(work.start, begin)) > 0:
                found[work.pid] = found.get(work.pid, 0) + part
        board.close()
        return found


def owner(pid: int) -> str | None:
    """Return the pod of a process, by its environment."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode().partition("=")
            if name == "JUPYTER_GPU_STANDIN_OWNER":
                return value
    return None


class EnforcingServer:
    """Both, in this process. Shares that were taken away are in `taken`, those that were stopped in `told`."""

    def __init__(
        self, folder: Path, *, spare: Callable[[], Iterable[ProcessId]] = lambda: (), file: Path | None = None,
        penalties: Mapping[str, int] | None = None, opens: Callable[[int], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.taken: list[tuple[str, str, str]] = []
        self.told: list[tuple[str, str, str]] = []
        self.watched = 0
        self.seen: list[str] = []
        self.boards = Boards(folder / "boards")
        timing = Timing(grace=400_000)  # a polite program on a busy machine is slow, and must not be taken for a hog
        rules = GpuRules(timing, None, Penalties(**({"grace": 100_000} | dict(penalties or {}))))
        self.enforced = EnforcedShares(
            ShareStore(folder / "state"),
            file or folder / "violations.json",
            NodeProcesses(beside_us, owner, spare, opens),
            PenaltyCallbacks(lambda *what: self.taken.append(what), self._tell),
            lambda _: rules,
            self.boards,
            pause=0.2,
        )
        self.enforcer, self.server = self.enforced.enforcer, self.enforced.server

    async def __aenter__(self) -> Self:
        await self.enforced.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.enforced.close()

    def _tell(self, *what: str) -> None:
        """Note the state of `watched` here, as the stop may last for a moment only."""
        self.told.append((what[0], what[1], what[2]))
        end = time.monotonic() + PATIENCE
        while self.watched and state(self.watched) != "T" and time.monotonic() < end:
            pass
        if self.watched:
            self.seen.append(state(self.watched))

    async def set(self, shares: Mapping[str, Mapping[str, int | tuple[int, int]]]) -> None:
        """Set the shares by GPU and pod: milli, or milli and limit of memory."""
        await self.enforced.serve(
            {
                gpu: {pod: PlacedShare(_terms(one), self.folder / pod) for pod, one in of.items()}
                for gpu, of in shares.items()
            }
        )
        await self.enforced.enforce({gpu: list(of) for gpu, of in shares.items()})

    def socket(self, gpu: str, pod: str) -> Path:
        """Return the path of that share's socket."""
        return self.folder / pod / "shares" / f"{gpu}.sock"


def _terms(one: int | tuple[int, int]) -> Terms:
    return Terms(one) if isinstance(one, int) else Terms(*one)


class Running:
    """Python programs; all are killed at the end."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._all:
            self.kill(one)

    def start(self, program: str, *arguments: Any, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program."""
        command = [sys.executable, "-c", program, *map(str, arguments)]
        self._all.append(subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return self._all[-1]

    def kill(self, one: subprocess.Popen[str]) -> None:
        """Kill it by SIGKILL, which ends stopped ones too."""
        one.kill()
        one.wait(PATIENCE)
        if one.stdout:
            one.stdout.close()


def state(pid: int) -> str:
    """Return the state that the kernel shows: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def children(pid: int) -> list[int]:
    """Return the children of all its threads, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def process(pid: int) -> ProcessId:
    """Return the identity of a process, which must be there."""
    found = identify(pid)
    assert found is not None
    return found


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds, for a minute at most."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.003)


@asynccontextmanager
async def killable(folder: Path, shares: Mapping[str, Mapping[str, int]]) -> AsyncIterator[subprocess.Popen[str]]:
    """Run an `EnforcingServer` in a process of its own, which leads its session; it is killed at the end."""
    command = [sys.executable, "-m", "tests.shares.enforcing", str(folder), json.dumps(shares)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}"}
    one = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert await line(one) == "ready\n"
        yield one
    finally:
        one.kill()
        one.wait(PATIENCE)
        assert one.stdout
        one.stdout.close()


async def line(one: subprocess.Popen[str]) -> str:
    """Return the next line of a program."""
    assert one.stdout
    return await asyncio.wait_for(asyncio.to_thread(one.stdout.readline), PATIENCE)


async def _main(folder: Path, shares: Mapping[str, Mapping[str, int]]) -> None:
    async with EnforcingServer(folder, penalties={"grace": 1_000_000}) as world:  # time enough to be killed meanwhile
        await world.set(shares)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), json.loads(sys.argv[2])))
