"""Workers of Dask retire, in a scheduler of this process."""

from __future__ import annotations

import asyncio
from typing import Any

import dask as settings
import distributed

from jupyter_gpu.dask.process import SETTINGS
from jupyter_gpu.dask.retiring import retire

dask: Any = distributed  # it has no types
LOOPBACK: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tcp"}


class Stays:
    """As what is in the memory of a GPU, and has no copy elsewhere."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays on its GPU")


def test_worker_that_cannot_give_its_results_away_goes_on() -> None:
    """Dask alone would try without end. Without such a result the worker ends, and the others have what it had."""
    asyncio.run(asyncio.wait_for(_retire(), 60))


async def _retire() -> None:
    async with (
        dask.Scheduler(dashboard=False, port=0, **LOOPBACK) as scheduler,
        dask.Worker(scheduler.address, **LOOPBACK) as worker,
        dask.Worker(scheduler.address, **LOOPBACK),
        dask.Client(scheduler.address, asynchronous=True) as client,
    ):
        stays = client.submit(Stays, workers=[worker.address])
        moves = client.submit(bytes, 1000, workers=[worker.address])
        await dask.wait([stays, moves])
        assert await retire([worker.address], 0.2, scheduler) == []
        assert await client.submit(abs, -1, workers=[worker.address]) == 1
        stays.release()
        while stays.key in scheduler.tasks:
            await asyncio.sleep(0.01)
        assert await retire([worker.address], 30, scheduler) == [worker.address]
        assert await moves == bytes(1000)


def test_copies_stay_until_all_who_have_them_work() -> None:
    """One may be there so that another worker can end, and Dask would drop either of them."""
    with settings.config.set(SETTINGS):
        asyncio.run(asyncio.wait_for(_copies(), 60))


async def _copies() -> None:
    async with (
        dask.Scheduler(dashboard=False, port=0, **LOOPBACK) as scheduler,
        dask.Worker(scheduler.address, **LOOPBACK) as one,
        dask.Worker(scheduler.address, **LOOPBACK) as other,
        dask.Client(scheduler.address, asynchronous=True) as client,
    ):
        value = await client.scatter(b"x", workers=[one.address])
        assert await scheduler.gather_on_worker(other.address, {value.key: [one.address]}) == set()
        for address in (one.address, other.address):
            state = scheduler.workers[address]
            scheduler.handle_worker_status_change("paused", state, "test")
            scheduler.extensions["amm"].run_once()
            scheduler.handle_worker_status_change("running", state, "test")
            await asyncio.sleep(0.1)
            assert len(scheduler.tasks[value.key].who_has) == 2
        scheduler.extensions["amm"].run_once()
        while len(scheduler.tasks[value.key].who_has) == 2:
            await asyncio.sleep(0.01)
