"""A party of the floor, in a pod like the product's: watches one annotation of a pod and writes another, no more.

It ends with its input.

    python3 hop.py NAMESPACE POD answer HEARD WRITTEN      each new value of one is written to the other at once
    python3 hop.py NAMESPACE POD hear HEARD                when each was heard
    python3 hop.py NAMESPACE POD ask HEARD WRITTEN TURNS   asks, waits for the answer, rests, asks again

Times are seconds of CLOCK_MONOTONIC, which all pods of a machine share. The first line of output says that the watch
has begun.
"""

import asyncio
import gc
import os
import sys
import time

from jupyter_gpu.kube import Kube, ObjectChange, Reflector, Selection, credentials
from jupyter_gpu.kube.rules import objects, paths

REST = 0.1
"""Seconds between two turns, as between two of the product's."""


class Party:
    """The watch and the writes that all parties share."""

    def __init__(self, kube: Kube, namespace: str, pod: str, heard: str) -> None:
        self._kube = kube
        self._path = paths.pod(namespace, pod, "status")
        self._heard = heard
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self.words: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        self.answers = ""
        self.watch = Reflector(
            kube, Selection(paths.pods(namespace), fields=f"metadata.name={pod}"), on_change=self._hear
        )

    def _hear(self, change: ObjectChange) -> None:
        text = objects.annotation(change.object, self._heard)
        if not text or text in self._known:
            return
        self._known.add(text)
        if not self.watch.synced.is_set():
            return  # what an earlier turn left
        if self.answers:
            self._tasks.add(asyncio.create_task(self.write(self.answers, text)))
        self.words.put_nowait((time.monotonic(), text))

    async def write(self, key: str, text: str) -> object:
        """Write an annotation by one PATCH."""
        return await self._kube.patch(self._path, {"metadata": {"annotations": {key: text}}})


async def main(namespace: str, pod: str, role: str, heard: str, written: str = "", turns: str = "0") -> None:
    """Run until the input ends, or all turns are over."""
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: os.read(0, 4096) or os._exit(0))
    async with Kube(credentials.load()) as kube, asyncio.TaskGroup() as tasks:
        party = Party(kube, namespace, pod, heard)
        party.answers = written if role == "answer" else ""
        following = tasks.create_task(party.watch.run())
        await party.watch.synced.wait()
        await asyncio.sleep(0.5)  # the watch follows the list now
        gc.freeze()  # as the product's processes do: a collection over all imported modules takes longer than a hop
        print("ready", flush=True)
        for number in range(int(turns)):
            await asyncio.sleep(REST)
            word = f"{time.monotonic_ns()}-{number}"
            began = time.monotonic()
            writing = asyncio.create_task(party.write(written, word))
            while (await party.words.get())[1] != word:
                pass
            await writing
            print(began, word, flush=True)
        while role != "ask":
            print(*await party.words.get(), flush=True)
        following.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
