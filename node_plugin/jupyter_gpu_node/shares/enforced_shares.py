"""The shares of a node, served and enforced. One machine and the cluster say which shares there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules

from .enforcement.enforcer import Enforcer, PenaltyCallbacks
from .scans.node_processes import NodeProcesses
from .scans.usage_by_process import UsageReader
from .server.arbiter_server import ArbiterServer, PlacedShare
from .server.gpu_server import ShareOverdue
from .server.store import ShareStore


class EnforcedShares:
    """The shares of a node: the arbiter's server, and the enforcer that it reports to.

    ``path``: the file of the enforcer. ``rules`` returns the rules of a GPU. See `Enforcer` for the others.
    """

    def __init__(
        self,
        store: ShareStore,
        path: Path,
        processes: NodeProcesses,
        callbacks: PenaltyCallbacks,
        rules: Callable[[str], GpuRules],
        reader: UsageReader | None = None,
        *,
        pause: float = 1.0,
    ) -> None:
        self.server = ArbiterServer(
            store, processes.check, rules=rules, overdue=self._overdue, servers=processes.servers
        )
        self.enforcer = Enforcer(
            self.server,
            path,
            processes,
            callbacks,
            penalties=lambda gpu: rules(gpu).penalties,
            reader=reader,
            pause=pause,
        )
        self._started = False

    async def start(self) -> None:
        """Continue the processes that an earlier enforcer stopped, and begin."""
        await self.enforcer.start()
        self._started = True

    async def serve(self, wanted: Mapping[str, Mapping[str, PlacedShare]]) -> None:
        """Serve these shares from now on, by GPU and pod; raises as `ArbiterServer.set` does."""
        await self.server.set(wanted)

    async def enforce(self, shares: Mapping[str, Collection[str]]) -> None:
        """Enforce the turns of these shares from now on, by GPU. On return, processes of all others run again."""
        await self.enforcer.set(shares)

    async def memory_used(self, gpu: str) -> Mapping[str, int]:
        """Return the bytes that each share's programs have of that GPU now, by pod, as they or the driver say.

        Empty while programs that an earlier server served may not have connected again.
        """
        await self.enforcer.compare_memory(gpu)
        gpu_server = self.server.gpu_server(gpu)
        return gpu_server.memory_used() if gpu_server else {}

    async def close(self) -> None:
        """End: stopped processes run again, and what banks hold is written down."""
        if self._started:
            await self.enforcer.close()
        await self.server.close()

    def _overdue(self, overdue: ShareOverdue) -> None:
        self.enforcer.late(overdue)
