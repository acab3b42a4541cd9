"""The process that keeps the results of Dask while no GPU is attached, made when it is needed.

It is a Dask worker without a GPU that takes no tasks. What the last workers have is gathered there before they end. As
soon as there is a worker again, the results move on to it, and the process ends: libraries on Dask may expect that all
workers take tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any

import distributed

from jupyter_gpu.dask import memory
from jupyter_gpu.dask.child import Child
from jupyter_gpu.dask.rules.keeping import batch, immovable, refusal
from jupyter_gpu.dask.rules.words import Keep
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.errors import WorkerLost

PATIENCE, PAUSE = 10.0, 0.02
"""Seconds within which results come back that were about to move on, and between two looks."""

ENDS = 1
"""How often it may end while it takes results: then another one tries again."""


class Keeper:
    """The process, if there is one. ``own`` is a client of ours, ``word`` the first word to it."""

    def __init__(self, own: Any, word: Keep) -> None:
        self._own, self._word = own, word
        self._child: Child | None = None
        self._immovable: set[Hashable] = set()
        """Results that could not be moved: it is not tried again by itself."""

    def take(self, workers: Sequence[str], *, again: bool = False) -> str:
        """Gather the results that only some workers have; return why that cannot be, or an empty text."""
        if again:
            self._immovable.clear()
        lost = 0
        while True:
            sizes, actors = self._own.run_on_scheduler(_found_only_at, list(workers))
            if (why := refusal(sizes, actors, memory.free())) or not sizes:
                return why
            if stuck := [key for key in sizes if key in self._immovable]:
                return immovable(stuck)
            try:
                left = self._own.run_on_scheduler(_gather, self._address(), batch(sizes))
            except WorkerLost as error:
                return str(error)
            if self._child is not None and self._child.lives:
                self._immovable.update(left)
            elif (lost := lost + 1) > ENDS:
                return gettext("The process that keeps results of Dask without a GPU ended.")

    def look(self, *, working: bool) -> None:
        """End it if nothing is there alone; have its results move on if some worker works."""
        if self._child is None:
            return
        if not self._child.lives:
            self.end(0)
        elif self._own.run_on_scheduler(_is_done, self._child.address, working):
            self.end()

    def end(self, grace: float = 5.0) -> None:
        """End it."""
        if self._child is not None:
            child, self._child = self._child, None
            child.end(grace)

    def forget(self) -> None:
        """Leave it to the program that this one was forked from."""
        if self._child is not None:
            self._child.forget()

    def _address(self) -> str:
        """Return its address, once it can take results. Raises `WorkerLost`."""
        child = self._child
        if child is not None and not (child.lives and self._own.run_on_scheduler(_call_back, child.address)):
            self.end(0)
        if self._child is None:
            child = Child(self._word)
            child.wait()
            self._child = child
        return self._child.address


def _found_only_at(workers: Sequence[str], dask_scheduler: Any) -> tuple[dict[Hashable, int], int]:
    """Return the sizes of results that nobody else has, and how many actors there are."""
    states = {dask_scheduler.workers[worker] for worker in workers if worker in dask_scheduler.workers}
    results = {task for state in states for task in state.has_what if not task.actor and task.who_has <= states}
    return {task.key: task.get_nbytes() for task in results}, sum(len(state.actors) for state in states)


async def _gather(address: str, keys: Sequence[Hashable], dask_scheduler: Any) -> list[Hashable]:
    """Copy results; return those that could not be copied, though they are still there."""
    known = {key: task for key in keys if (task := dask_scheduler.tasks.get(key)) is not None and task.who_has}
    who_has = {key: [state.address for state in task.who_has] for key, task in known.items()}
    failed = await dask_scheduler.gather_on_worker(address, who_has)
    return [key for key in failed if known[key].who_has]


async def _call_back(address: str, dask_scheduler: Any) -> bool:
    """Stop a move of its results to workers that take none any more; tell whether it is there. Raises TimeoutError."""
    for _ in range(int(PATIENCE / PAUSE)):
        state = dask_scheduler.workers.get(address)
        if state is None or state.status == distributed.Status.paused:
            return state is not None
        dask_scheduler.extensions["amm"].run_once()
        await asyncio.sleep(PAUSE)
    raise TimeoutError


async def _is_done(address: str, working: bool, dask_scheduler: Any) -> bool:
    """Tell whether nothing is there alone; else have it move on, if some worker works."""
    state = dask_scheduler.workers.get(address)
    if state is None or not any(len(task.who_has) == 1 for task in state.has_what):
        return True
    if working and state.status == distributed.Status.paused:
        moving = asyncio.create_task(dask_scheduler.retire_workers([address], close_workers=True))
        _moving.add(moving)
        moving.add_done_callback(_moving.discard)
    return False


_moving: set[asyncio.Task[Any]] = set()
"""Tasks that run in the scheduler, so that they are not forgotten."""
