"""The parent of Dask workers in the pod of a worker, in a kernel there that the notebook started for it.

The workers end with the kernel, as it has the other end of their pipes; the kernel ends with the program that it is
for. Beside them is the gateway (`gateway`), in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from dataclasses import replace
from typing import Any

from jupyter_gpu.dask.child import Child
from jupyter_gpu.dask.gateway import WorkerGateway
from jupyter_gpu.dask.rules.words import Attend, Attending, Await, Drop, Living, Work
from jupyter_gpu.remote.rules.control import Run, Word, read

PATIENCE = 10.0
"""Seconds that the gateway may take to start."""


class Attendant:
    """The gateway and the workers of one kernel."""

    def __init__(self, first: Attend, run: Run) -> None:
        self._children: dict[str, Child] = {}
        self._gateway = WorkerGateway(base64.b64decode(first.certificate), first.place)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="jupyter-gpu-dask", daemon=True).start()
        self.attending = Attending(asyncio.run_coroutine_threadsafe(self._serve(run), self._loop).result(PATIENCE))

    async def _serve(self, run: Run) -> int:
        await self._gateway.start()
        return await self._gateway.serve(run.address.strip("[]"), run.dask)

    def answer(self, word: Work | Await | Drop) -> Word:
        """Do what a word says; return the answer. Raises `WorkerLost`."""
        if isinstance(word, Await):
            child = self._children[word.name]
            child.wait()
            return child.ready
        if isinstance(word, Work):
            self._children[word.name] = Child(replace(word, gateway=self._gateway.port))
        for name in word.names if isinstance(word, Drop) else ():
            if (ended := self._children.pop(name, None)) is not None:
                ended.end()
        self._children = {name: child for name, child in self._children.items() if child.lives}
        return Living(tuple(self._children))


_known: list[Attendant] = []
"""The one of this kernel."""


def take(text: str, run: Any) -> str:
    """Do what the text of a word says; return that of the answer. ``run`` is what the kernel was started with."""
    word = read(text.encode(), Attend, Work, Await, Drop)
    if isinstance(word, Attend):
        _known[:] = [Attendant(word, run)]
        return _known[0].attending.dump().decode()
    assert isinstance(word, Work | Await | Drop)
    return _known[0].answer(word).dump().decode()
