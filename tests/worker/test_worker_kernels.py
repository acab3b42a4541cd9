"""The kernels that notebooks have in a worker end with their processes, also if these are killed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jupyter_gpu.backends.kubernetes.pod_workers import KnownWorkers
from jupyter_gpu.kernel import blocks
from jupyter_gpu.model.annotations import SERVICE, encode
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.service import Peer, Relation, Service, WorkerPart
from jupyter_gpu.model.view import GpuLoad, Mode, Sample, View
from jupyter_gpu.remote import PYTHON
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.first_process import ask, read_ways
from jupyter_gpu.remote.rules.control import Look, Running, Start
from jupyter_gpu.server.reservation_owners import ProcessOwners
from jupyter_gpu.server.worker_kernels import WorkerKernels
from jupyter_gpu_node.processes.proc import process_start_time
from tests.worker.pods import WorkerPod, plugin, worker_pod


@pytest.fixture(scope="module")
def pod() -> Iterator[WorkerPod]:
    """A worker's program for the module."""
    with plugin() as own, worker_pod(own) as made:
        yield made


@asynccontextmanager
async def served(pod: WorkerPod) -> AsyncIterator[WorkerKernels]:
    """Those of a server that just started, of a notebook's pod with this worker; its key is recorded at once."""

    async def put(peer: Peer) -> None:
        await asyncio.to_thread(pod.plugin.pair, dict(peer.keys)["w1"])

    known = KnownWorkers(put)
    kernels = WorkerKernels(known, ProcessOwners(SimpleNamespace(list_kernel_ids=list), None))
    part = WorkerPart("w1", "node2", 1000, Relation.SWITCH, "p", "u", "127.0.0.1", pod.port, pod.plugin.said[-1].key)
    known.see({"metadata": {"annotations": {SERVICE: encode(Service(1, (part,)))}}})
    try:
        await until(lambda: kernels._keys.ways()["workers"])
        yield kernels
    finally:
        await kernels.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


async def started(kernels: WorkerKernels, pid: int) -> ReservationOwner:
    """Have a process ask for a kernel in the worker, as a notebook does; it need not be ready."""
    owner = blocks.owner()._replace(pid=pid, started=process_start_time(pid) or 0)
    ways = read_ways(await kernels.ways(owner))

    def start() -> bool:
        with suppress(WorkerLost):
            ask(ways["w1"], Start(str(pid), "/", PYTHON, owner), 0.3)
        return str(pid) in running(kernels)

    await until(start)
    return owner


def running(kernels: WorkerKernels) -> set[str]:
    """Return the kernels of the worker, by the processes that they are for."""
    (way,) = read_ways(kernels._keys.ways()).values()
    with suppress(WorkerLost):
        answer = ask(way, Look(), 5)
        assert isinstance(answer, Running)
        return {kernel for kernel, _ in answer.kernels}
    return set()


async def test_kernels_end_with_their_processes(pod: WorkerPod) -> None:
    """The kernels of a killed one end, also while no server runs; those of others stay."""
    one, two, three = (subprocess.Popen(["sleep", "600"]) for _ in range(3))
    try:
        async with served(pod) as kernels:
            for process in (one, two, three):
                await started(kernels, process.pid)
            one.kill()
            await until(lambda: running(kernels) == {str(two.pid), str(three.pid)})
        two.kill()
        two.wait()
        async with served(pod) as kernels:
            await until(lambda: running(kernels) == {str(three.pid)})
            gone = blocks.owner()._replace(pid=two.pid)
            with pytest.raises(InvalidRequest, match="has ended"):
                await kernels.ways(gone)
            three.kill()
            three.wait()
            await until(lambda: not running(kernels) and not kernels._unasked())
    finally:
        for process in (one, two, three):
            process.kill()
            process.wait()


async def test_last_ends_are_seen(pod: WorkerPod) -> None:
    """A server that ends its notebooks as it ends leaves no kernel of theirs behind."""
    with subprocess.Popen(["sleep", "600"]) as process:
        async with served(pod) as kernels:
            await started(kernels, process.pid)
            process.kill()
            process.wait()
            await asyncio.sleep(0)
            await kernels.stop()
            await until(lambda: not running(kernels))


WORKER = PodWorker("w1", "node2", Relation.SWITCH, Stage.READY, 1000, (GpuShare("GPU-9", 1000),))
VIEW = View("i", 1, Mode.ENFORCED, False, "kubernetes", 2000, 2000, (0, 1000), workers=(WORKER,))


async def test_figures(pod: WorkerPod) -> None:
    """A worker is asked while somebody looks, and once for all who do; what processes shipped is added up."""
    pod.plugin.loads = {"GPU-9": {"utilisation": 40.0, "memory": 7}, "GPU-0": {"utilisation": 1.0, "memory": 7}}
    news: list[None] = []
    async with served(pod) as kernels:
        figures = kernels.figures
        figures.changed = lambda: news.append(None)
        async with asyncio.timeout(30):
            while kernels._unasked():
                await asyncio.sleep(0.05)
        asked = pod.plugin.samples
        async with asyncio.timeout(30):
            while not (found := figures.sampled(Sample(1.0, {}), VIEW)).loads:
                await asyncio.sleep(0.02)
        assert found.loads == {"GPU-9": GpuLoad(40.0, 7)}
        round_trip = figures.added(VIEW).workers[0].round_trip
        assert round_trip is not None
        assert 0 < round_trip < 3_000_000
        assert pod.plugin.samples == asked + 1
        assert news
        news.clear()
        await kernels.shipped(blocks.owner(), {"w1": 5, "w2": 7})
        await kernels.shipped(blocks.owner(), {"w1": 5})
        assert figures.added(VIEW).workers[0].shipped == 5
        assert len(news) == 1
        with pytest.raises(InvalidRequest, match="has ended"):
            await kernels.shipped(blocks.owner()._replace(started=1), {"w1": 5})


async def test_worker_that_does_not_answer_has_no_figures(pod: WorkerPod) -> None:
    """Nobody is shown a time of before; a node plugin that is away takes only the loads."""
    async with served(pod) as kernels:
        figures = kernels.figures
        (address,) = kernels._addresses().values()
        await until(lambda: not kernels._unasked())
        pod.plugin.stop()
        try:
            await figures._ask("w1", address)
            assert figures.added(VIEW).workers[0].round_trip is not None
            assert not figures.sampled(Sample(1.0, {}), VIEW).loads
        finally:
            pod.plugin.start()
        await figures._ask("w1", replace(address, key=address.public))
        assert figures.added(VIEW).workers[0].round_trip is None
