"""The end of Dask workers whose results can be moved to others, and of no worker whose results cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from distributed import Status
from distributed.active_memory_manager import ReduceReplicas, RetireWorker

PATIENCE = 2.0
"""Seconds for one try. Dask itself tries without end, and other changes of the workers wait meanwhile."""


class ReduceCopies(ReduceReplicas):
    """Dask's policy that drops copies of results, but for those of which one is on a worker that takes no tasks.

    Dask drops the one where more memory is used, be it where results were gathered so that another worker may end.
    """

    def run(self) -> Generator[Any, Any, None]:
        """Yield what to drop."""
        for suggestion in super().run():
            if all(state.status == Status.running for state in suggestion.ts.who_has or ()):
                yield suggestion


async def retire(addresses: Sequence[str], patience: float, dask_scheduler: Any) -> list[str]:
    """Retire workers, in the scheduler; return those that have ended. The others have the state again that they had.

    What was moved meanwhile is not moved again when it is tried once more.
    """
    trying = asyncio.create_task(dask_scheduler.retire_workers(list(addresses), close_workers=True))
    await asyncio.wait([trying], timeout=patience)
    policies = dask_scheduler.extensions["amm"].policies
    for policy in [one for one in policies if isinstance(one, RetireWorker) and one.address in addresses]:
        policy.no_recipients = True  # as if there were no worker that could take them: Dask gives up
        policies.remove(policy)
    return list(await trying)
