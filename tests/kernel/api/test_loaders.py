"""Workers of the libraries that people load data with: named as this kernel's own, and what is advised ends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel import pytorch
from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_, serve

KEEP = """
from jupyter_gpu import gpu, simulate
def keep(number=0):
    import os
    from jupyter_gpu import simulate
    simulate.kept = simulate.hold()
    simulate.kept.__enter__()
    return os.getpid()
gpu.resize(1)
"""
"""A task that ends and leaves its worker with the GPU open, as CUDA does."""
FUTURES = "from concurrent.futures import ProcessPoolExecutor as P\nimport multiprocessing as mp\n"
LIBRARIES = {
    "joblib": (
        "from joblib import Parallel, delayed\n"
        "pids = set(Parallel(n_jobs=2)(delayed(keep)(i) for i in range(2)))",  # one worker, if the other starts late
        "a joblib (loky) worker",
    ),
    "dask": (
        "from distributed import Client, LocalCluster\n"
        "cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
        "client = Client(cluster)\npids = list(client.run(keep).values())",
        "a Dask or multiprocessing worker",
    ),
    "a pool": (
        "import multiprocessing as mp\npool = mp.get_context('fork').Pool(2)\n"
        "pids = list(set(pool.map(keep, range(2), chunksize=1)))",
        "a multiprocessing worker",
    ),
    "an executor that forks": (
        f"{FUTURES}executor = P(1, mp_context=mp.get_context('fork'))\npids = [executor.submit(keep).result()]",
        "a multiprocessing worker",
    ),
    "a fork server": (
        "import multiprocessing as mp\npool = mp.get_context('forkserver').Pool(1)\n"
        "pool.apply(exec, ('from jupyter_gpu import simulate as s; s.kept = s.hold(); s.kept.__enter__()',))\n"
        "pids = [one.pid for one in pool._pool]",
        "a multiprocessing worker",
    ),
}
DATALOADER = """
from torch.utils.data import DataLoader
class Numbers(list):
    def __getitem__(self, index):
        keep()
        return super().__getitem__(index)
loader = DataLoader(Numbers(range(4)), num_workers=2, persistent_workers=True)
it = iter(loader)
print([int(one) for one in it])
pids = [worker.pid for worker in it._workers]
"""
ENDS = {
    "joblib": "from joblib.externals.loky import get_reusable_executor; "
    "get_reusable_executor().shutdown(kill_workers=True)",
    "dask": "client.close() and cluster.close()",
    "a pool": "pool.terminate()",
    "an executor that forks": "executor.shutdown()",
    "a fork server": "pool.terminate()",
}
"""The error's advice, word for word."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, folder / "state", "--GpuExtension.enforcement=soft") as running:
        yield running


@pytest.fixture
def kernel(server: Server) -> Iterator[Kernel]:
    """Return a kernel with a GPU and a task that keeps it open."""
    with server.kernel() as running:
        running.run(KEEP)
        yield running


def users(server: Server) -> list[int]:
    """Return the processes that have a GPU open now."""
    server.rest("GET", "jupyter-gpu/api/v1/sample")
    return sorted(user["pid"] for gpu in server.status()["gpus"] for user in gpu["users"])


def check_advice(kernel: Kernel, server: Server, kind: str, ends: str) -> None:
    """The error names the workers of a kernel and says how they end; after that the GPU is given back."""
    pids = sorted(map(int, kernel.run("print(*pids)").split()))
    await_(lambda: pids == users(server), 20)
    with pytest.raises(Failed, match="Draining: Still open: ") as caught:
        kernel.run("gpu.release()", timeout=30)
    for pid in pids:
        assert f"{kind} (process {pid})" in caught.value.text
    assert ends in caught.value.text
    kernel.run(ends.replace(" and ", "; "))
    assert kernel.run("print(gpu.wait(timeout=30).attached)") == "0"


@pytest.mark.parametrize("library", LIBRARIES)
def test_workers_are_named_and_end_as_advised(kernel: Kernel, server: Server, library: str) -> None:
    """The error names them at once by process number; after its advice is followed, the GPU is given back."""
    start, kind = LIBRARIES[library]
    kernel.run(start)
    check_advice(kernel, server, kind, ENDS[library])


@pytest.mark.pytorch
def test_dataloader_workers_are_named_and_end_as_advised(tmp_path: Path) -> None:
    """The DataLoader is PyTorch's own, of the same version of Python."""
    with pytorch.notebook(tmp_path) as (server, kernel):
        kernel.run(KEEP)
        assert kernel.run(DATALOADER) == "[0, 1, 2, 3]"
        check_advice(kernel, server, "a DataLoader worker", "del loader, it")
