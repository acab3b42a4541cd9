"""The kernels that notebooks have in a worker end with their processes, also if these are killed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import pytest

from jupyter_gpu.backends.kubernetes.pod_workers import KnownWorkers
from jupyter_gpu.kernel import blocks
from jupyter_gpu.model.annotations import SERVICE, encode
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.service import Peer, Relation, Service, WorkerPart
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
            await until(lambda: kernels._keys.ways()["workers"])
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
            await until(lambda: kernels._keys.ways()["workers"])
            await started(kernels, process.pid)
            process.kill()
            process.wait()
            await asyncio.sleep(0)
            await kernels.stop()
            await until(lambda: not running(kernels))
