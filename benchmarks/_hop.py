"""One party of the floor, a process of its own as in reality: hears of one annotation of a pod, no more.

    python -m benchmarks._hop KUBECONFIG NAMESPACE POD HEARD [ANSWER]

With ANSWER each new value is written to that annotation at once; without, when it was heard (CLOCK_MONOTONIC, seconds)
is printed with it. The first line of output says that the watch follows.
"""

import asyncio
import gc
import sys
import time
from pathlib import Path

from jupyter_gpu.kube import Change, Kube, Reflector, credentials, objects, paths


async def main(kubeconfig: str, namespace: str, pod: str, heard: str, answer: str = "") -> None:
    """Until it is killed."""
    async with Kube(credentials.load(Path(kubeconfig))) as kube, asyncio.TaskGroup() as tasks:
        known: set[str] = set()

        def hear(change: Change) -> None:
            text = objects.annotation(change.object, heard)
            if not text or text in known:
                return
            known.add(text)
            if not watch.synced.is_set():
                return  # what an earlier turn left
            if answer:
                body = {"metadata": {"annotations": {answer: text}}}
                tasks.create_task(kube.patch(paths.pod(namespace, pod, "status"), body))
            else:
                print(time.monotonic(), text, flush=True)

        watch = Reflector(kube, paths.pods(namespace), fields=f"metadata.name={pod}", on_change=hear)
        tasks.create_task(watch.run())
        await watch.synced.wait()
        await asyncio.sleep(0.5)  # the watch follows the list now
        gc.freeze()  # as our processes do: a search among all that was imported takes longer than a hop
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
