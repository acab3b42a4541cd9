"""Dask workers on GPUs of another node: a notebook's server and its worker's pod, both real, on this machine."""

from __future__ import annotations

import os
import signal
import time
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.remote.rules import control
from tests.dask.test_client import IMPORTS, listening
from tests.kernel.builders import gpu
from tests.kernel.kernels import Kernel
from tests.kernel.servers import await_
from tests.worker.test_processes import gone
from tests.worker.two_pods import TwoPods, two_pods

pytestmark = pytest.mark.root

MORE = """
def place(_=0):
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getppid(), os.getpid()
def places():
    return sorted(client.run(place).values())
def scattered(size):
    names = client.scheduler_info(n_workers=-1)["workers"]
    return [client.scatter(bytes([n]) * size, direct=True, hash=False, workers=[w]) for n, w in enumerate(names)]
"""
HOLDS_UP = 15.0
"""Less than the seconds for which a node may not answer until it is lost."""
FIRST, SECOND = gpu(100).uuid, gpu(101).uuid


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPods]:
    """Run both pods for the module."""
    with two_pods(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(pods: TwoPods) -> Iterator[Kernel]:
    """Start the kernel of a notebook, with a client and all GPUs."""
    assert pods.server is not None
    with pods.server.kernel() as running:
        running.run(IMPORTS + MORE)
        running.run("gpu.resize(3); until(3)")
        yield running


def shipped(pods: TwoPods) -> int:
    """Return the bytes that the server shows of the worker."""
    assert pods.server is not None
    (worker,) = pods.server.status()["workers"]
    return int(worker.get("shipped") or 0)


def rows(kernel: Kernel) -> dict[str, tuple[int, int]]:
    """Return parent and pid of each worker, by the GPU that it sees."""
    return {seen: (parent, pid) for seen, parent, pid in literal_eval(kernel.run("print(places())"))}


def test_workers_of_both_nodes(kernel: Kernel, pods: TwoPods) -> None:
    """Each GPU has one; those there are children of one kernel of the worker's pod, and tasks run on all of them."""
    known = rows(kernel)
    assert set(known) == {gpu(0).uuid, FIRST, SECOND}
    (parent,) = pods.kernels
    assert [known[uuid][0] for uuid in (FIRST, SECOND)] == [parent, parent]
    assert known[gpu(0).uuid][0] == int(kernel.run("print(os.getpid())"))
    kernel.run("def slow(n): time.sleep(.2); return os.getpid()")
    assert set(literal_eval(kernel.run("print(client.gather(client.map(slow, range(12), pure=False)))"))) == {
        pid for _, pid in known.values()
    }


def test_values_of_other_workers(kernel: Kernel, pods: TwoPods) -> None:
    """They go from each worker to each other one: from here there, back, between two of one node; cards count them."""
    kernel.run("values = scattered(5_000_000); names = list(client.scheduler_info(n_workers=-1)['workers'])")
    code = "client.gather([client.submit(lambda *all: [v[:1] for v in all], *values, workers=[n]) for n in names])"
    assert literal_eval(kernel.run(f"print({code})")) == 3 * [[b"\x00", b"\x01", b"\x02"]]
    kernel.run("del values")
    await_(lambda: shipped(pods) > 15_000_000)  # the notebook's value there, two of it here


def test_only_the_gateway_is_reached(kernel: Kernel, pods: TwoPods) -> None:
    """All processes of Dask listen on their own node alone; the pod has one port more, which is this kernel's."""
    (parent,) = pods.kernels
    inside = [where for _, pid in rows(kernel).values() for where in listening(pid)]
    assert {where.partition(":")[0] for where in inside} == {"0100007F"}
    assert pods.pod is not None
    first = pods.pod.port + 2 + control.CHANNELS * control.MAX_KERNELS
    ports = {int(where.partition(":")[2], 16) for where in listening(parent) if where.startswith("00000000")}
    assert len(ports & set(range(first, first + control.MAX_KERNELS))) == 1


def test_shrink_moves_what_the_node_has(kernel: Kernel, pods: TwoPods) -> None:
    """Its workers retire, also scattered values come here, and the GPUs there are closed; then they are back."""
    kernel.run("values = scattered(1_000_000); gpu.resize(1, timeout=60)")
    assert kernel.run("print(until(1), [v.result()[:1] for v in values])") == ("1 [b'\\x00', b'\\x01', b'\\x02']")
    await_(lambda: not pods.kernels)
    kernel.run("gpu.resize(3); until(3); del values")


def test_node_that_gives_back_some_of_its_gpus(kernel: Kernel) -> None:
    """It is not known before they are closed which ones leave: all workers there retire, and one starts anew."""
    kernel.run("until(3); values = scattered(1_000); gpu.resize(2, timeout=60)")
    assert kernel.run("print(until(2), len([v.result() for v in values]))") == "2 3"
    assert set(rows(kernel)) == {gpu(0).uuid, FIRST}
    kernel.run("gpu.resize(3); until(3); del values")


def test_lost_worker(kernel: Kernel, pods: TwoPods, tmp_path: Path) -> None:
    """Tasks of one that is killed are done again, and of a whole kernel there, too; others take the place."""
    kernel.run("until(3)")
    before = rows(kernel)
    begun = tmp_path / "begun"
    kernel.run(
        f"def task(n): open({str(begun)!r} + str(n), 'w').close(); time.sleep(.5); return n\n"
        "futures = client.map(task, range(9), pure=False)"
    )
    await_(lambda: Path(f"{begun}2").exists())
    os.kill(before[FIRST][1], signal.SIGKILL)
    assert kernel.run("print(client.gather(futures) == list(range(9)), until(3))") == "True 3"
    (parent,) = pods.kernels
    assert parent == before[FIRST][0]
    os.kill(parent, signal.SIGKILL)
    await_(lambda: gone(before[SECOND][1]))
    await_(lambda: pods.kernels != [parent] and len(pods.kernels) == 1)
    assert kernel.run("print(until(3), client.submit(lambda: 7, pure=False).result())") == "3 7"


def test_node_that_does_not_answer(kernel: Kernel, pods: TwoPods) -> None:
    """It holds up no other one: a GPU that is added here has a worker meanwhile."""
    kernel.run("until(3)")
    frozen = [*pods.kernels, *(pid for seen, (_, pid) in rows(kernel).items() if seen != gpu(0).uuid)]
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)  # it is asked, and does not answer
        pods.own = 2
        begin = time.monotonic()
        kernel.run("gpu.resize(4); known = client.scheduler_info(n_workers=-1)['workers']; until(4)")
        assert time.monotonic() - begin < HOLDS_UP
        kernel.run("new = client.scheduler_info(n_workers=-1)['workers'].keys() - known.keys()")
        code = "client.submit(os.getenv, 'CUDA_VISIBLE_DEVICES', workers=list(new), pure=False).result()"
        assert kernel.run(f"print({code})") == gpu(1).uuid
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        pods.own = 1
    kernel.run("gpu.resize(3, timeout=60); until(3)")


def test_killed_gateway(kernel: Kernel, pods: TwoPods) -> None:
    """It ends with the scheduler, whose process it is in: tasks fail, nothing is left, and the next client has all."""
    kernel.run("until(3)")
    before = rows(kernel)
    kernel.run("future = client.submit(time.sleep, 60, pure=False)")
    os.kill(int(kernel.run("print(client.run_on_scheduler(os.getpid))")), signal.SIGKILL)
    code = "try: future.result(timeout=50)\nexcept BaseException as error: print(type(error).__name__)"
    assert "Cancelled" in kernel.run(code)
    await_(lambda: all(gone(pid) for _, pid in before.values()) and before[FIRST][0] not in pods.kernels)
    kernel.run("client = gpu.client(); until(3)")
    assert rows(kernel).keys() == before.keys()


def test_end_of_the_program(kernel: Kernel, pods: TwoPods) -> None:
    """All processes there end with the notebook's kernel, also if that is killed."""
    there = rows(kernel)[FIRST]
    os.kill(int(kernel.run("print(os.getpid())")), signal.SIGKILL)
    await_(lambda: gone(there[0]) and gone(there[1]) and not pods.kernels, 20)
