"""Several writers to the same pods at once, as fast as they can, until the scheduler ran into them."""

from __future__ import annotations

import asyncio
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from jupyter_gpu.kube import KubeError, credentials
from jupyter_gpu.kube.client import Kube
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import REQUESTED
from tests.cluster.testbed import until
from tests.cluster.whole.world import SECONDS, Product, World

WRITERS = 3
NOISE = "test.example/noise"
"""An annotation that no program reads."""
PORT = 8080
"""Port of the scheduler's metrics."""


def conflicting_writers(corner: World, chance: random.Random) -> None:
    """They know nothing of each other. Over when one of the scheduler's writes came too late because of them."""
    first: dict[str, float] = {}

    def grew() -> bool:
        now = conflicts(corner.product)
        return any(count > first.setdefault(process, count) for process, count in now.items())

    grew()
    with _writing(corner, chance):
        until(grew, SECONDS, "a conflict", every=0.3)


def conflicts(product: Product) -> dict[str, float]:
    """Count the writes of ``allocated`` that were refused because another was faster, by scheduler process."""
    found = {}
    for pod in product.component("scheduler"):
        status = pod["status"]
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):  # killed before, and not back yet
            with urllib.request.urlopen(f"http://{status.get('podIP', '')}:{PORT}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            writes = [line for line in lines if line.startswith("jupyter_gpu_scheduler_writes_total")]
            restarts = sum(each["restartCount"] for each in status.get("containerStatuses", ()))
            count = sum(float(line.rsplit(" ", 1)[1]) for line in writes if 'outcome="conflict"' in line)
            found[f"{pod['metadata']['name']} {restarts}"] = count
    return found


@contextmanager
def _writing(corner: World, chance: random.Random) -> Iterator[None]:
    ended = threading.Event()
    seed = chance.random()
    thread = threading.Thread(target=lambda: asyncio.run(_write(corner, random.Random(seed), ended)), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS)


async def _write(corner: World, chance: random.Random, ended: threading.Event) -> None:
    names = [pod.name for pod in corner.history.pods() if pod.requested]

    async def writer(kube: Kube) -> None:
        while not ended.is_set():
            name, wish = chance.choice(names), str(chance.randrange(3)) if chance.random() < 0.3 else ""
            body = {"metadata": {"annotations": {NOISE: str(chance.random()), **({REQUESTED: wish} if wish else {})}}}
            with suppress(KubeError), corner.asking(name, wish) if wish else nullcontext():
                await kube.patch(paths.pod(corner.namespace, name, "status"), body)
            await asyncio.sleep(chance.uniform(0, 0.02))

    async with Kube(credentials.load(corner.cluster.kubeconfig)) as kube:
        await asyncio.gather(*(writer(kube) for _ in range(WRITERS)))
