"""An arbiter's server in a process of its own, for tests and figures.

`with Serving(folder) as server: server.set({"GPU-1": {"pod": 500}})` starts it; the socket of that share is then
`server.socket("GPU-1", "pod")`. By hand: `python -m tests.shares.serve STATE`, a JSON command on each line of input.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.server import gate_socket
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer, PlacedShare
from jupyter_gpu_node.shares.server.gpu_server import ShareOverdue
from jupyter_gpu_node.shares.server.peer import Check, Peer, beside_us
from jupyter_gpu_node.shares.server.store import ShareStore

ROOT = Path(__file__).parents[2]


class Serving:
    """A server process. `timing`: settings that differ from the usual ones.

    `refuse`: pids that are in no pod; `files`: how many it may open; `order`: "fifo" or "quota" instead of our own;
    `unlimited`: it hears as much as is sent.
    """

    def __init__(
        self,
        folder: Path,
        *,
        elastic: bool = False,
        refuse: tuple[int, ...] = (),
        files: int = 0,
        order: str = "",
        unlimited: bool = False,
        **timing: int,
    ) -> None:
        self.folder = folder
        self._options = json.dumps(
            {
                "timing": timing,
                "elastic": elastic,
                "refuse": refuse,
                "files": files,
                "order": order,
                "unlimited": unlimited,
            }
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Also again, after the process ended."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.shares.serve", str(self.folder / "state"), self._options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """With SIGKILL: no handler runs."""
        self.process.kill()
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def set(self, shares: Mapping[str, Mapping[str, int | tuple[int, int]]], **folders: str) -> None:
        """By GPU and pod: milli, or milli and limit of memory. ``folders``: of pods that have not one of their name."""
        self.call(set=shares, folder=str(self.folder), folders=folders)

    def usage(self, gpu: str, pod: str) -> dict[str, Any]:
        """Return the usage as a dictionary; the account is in `account`."""
        found: dict[str, Any] = self.call(usage=[gpu, pod])
        return found

    def overdue(self) -> list[dict[str, Any]]:
        """All so far."""
        found: list[dict[str, Any]] = self.call(overdue=True)
        return found

    def members(self) -> list[dict[str, Any]]:
        """Return the connected processes."""
        found: list[dict[str, Any]] = self.call(members=True)
        return found

    def close(self) -> None:
        """End it in order."""
        self.call(close=True)
        self._end()

    def socket(self, gpu: str, pod: str) -> Path:
        """Return the path of that share's socket."""
        return self.folder / pod / "shares" / f"{gpu}.sock"

    def file(self, gpu: str, pod: str) -> Path:
        """Return the path of that share's file as the pod sees it."""
        return self.socket(gpu, pod).with_suffix(".json")

    @property
    def log(self) -> str:
        """Return its log over all starts."""
        return (self.folder / "server.log").read_text()

    def call(self, **command: Any) -> Any:
        """One command; raises RuntimeError where it failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the server ended:\n{self.log}"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]


def _placed(command: Mapping[str, Any]) -> dict[str, dict[str, PlacedShare]]:
    folder = Path(command["folder"])

    def terms(one: int | list[int]) -> Terms:
        return Terms(one) if isinstance(one, int) else Terms(*one)

    return {
        gpu: {pod: PlacedShare(terms(one), folder / command["folders"].get(pod, pod)) for pod, one in shares.items()}
        for gpu, shares in command["set"].items()
    }


def _check(refuse: list[int]) -> Check:
    def check(peer: Peer, pod: str) -> str:
        return f"process {peer.pid} is not of pod {pod}" if peer.pid in refuse else beside_us(peer, pod)

    return check


def _ordering(order: str) -> Callable[[Timing], TurnOrdering]:
    if not order:
        return TurnOrdering
    from benchmarks import sharing  # what it is compared with lies there

    chosen: Callable[[Timing], TurnOrdering] = {"fifo": sharing.Fifo, "quota": sharing.LeastServed}[order]
    return chosen


async def _main(state: Path, options: Mapping[str, Any]) -> None:
    late: list[ShareOverdue] = []
    parent = os.getppid()  # stands for the Jupyter server: what a test starts are programs of their own
    parents = [ProcessId(parent, proc.process_start_time(parent) or 0)]
    server = ArbiterServer(
        ShareStore(state),
        _check(options.get("refuse", [])),
        rules=lambda _: GpuRules(Timing(**options.get("timing", {})), Elastic() if options.get("elastic") else None),
        overdue=late.append,
        servers=lambda: parents,
        order=_ordering(options.get("order", "")),
    )
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        answer: Any = None
        try:
            if "set" in command:
                await server.set(_placed(command))
            elif "usage" in command:
                answer = dataclasses.asdict(server.usage(*command["usage"]))
            elif "overdue" in command:
                answer = [dataclasses.asdict(one) for one in late]
            elif "members" in command:
                answer = [dataclasses.asdict(one) for one in server.connected()]
            elif "holder" in command:
                answer = server.holder(command["holder"])
            elif "close" in command:
                await server.close()
        except (ValueError, KeyError, OSError) as error:
            print(json.dumps({"error": repr(error)}), flush=True)
            continue
        print(json.dumps({"answer": answer}), flush=True)
        if "close" in command:
            return


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(message)s")
    given = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    if given.get("unlimited"):
        gate_socket.MESSAGES = sys.maxsize
    if given.get("files"):
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (given["files"], given["files"]))
    asyncio.run(_main(Path(sys.argv[1]), given))
