"""The program that `benchmarks.dask_workers` runs in a kernel. It is sent as text."""

import json
import subprocess
import sys
import time
from typing import Any

import distributed

from jupyter_gpu import gpu

dask: Any = distributed  # it has no types
_SIZE, _PARTS = 10_000_000, 10
_SECONDS = 60
_REST = 4.0
"""Seconds between two changes: by then a process stands by again, and takes no time from what is measured."""


def measure(rounds: int) -> None:
    """Print the milliseconds of all rounds but the first."""
    gpu.resize(1)
    found: dict[str, list[float]] = {"grow": [], "bare": [], "retire": []}
    with (
        gpu.client() as client,
        dask.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        dask.Client(cluster, set_as_default=False) as other,
    ):
        client.submit(int).result(_SECONDS)
        for _ in range(rounds + 1):
            time.sleep(_REST)
            found["grow"].append(_grow(client))
            time.sleep(_REST)
            found["bare"].append(_bare(other, cluster.scheduler_address))
            found["retire"].append(_retire(client))
        client.shutdown()
    print(json.dumps({name: samples[1:] for name, samples in found.items()}))


def _grow(client: Any) -> float:
    """Return the time from the wish for another GPU to the result of a task there: the other worker is busy."""
    go = dask.Event(f"go-{time.monotonic_ns()}", client=client)
    busy = client.submit(lambda name: dask.Event(name).wait(), go.name, pure=False)
    while not any(client.processing().values()):
        time.sleep(0.01)
    began = time.perf_counter()
    gpu.resize(2)
    client.submit(int, pure=False).result(_SECONDS)
    spent = time.perf_counter() - began
    go.set()
    busy.result(_SECONDS)
    return spent * 1000


def _bare(client: Any, address: str) -> float:
    """Return the time from the start of a worker to the result of its first task."""
    options = ["--no-nanny", "--no-dashboard", "--nthreads=1", "--host=127.0.0.1"]
    began = time.perf_counter()
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        client.submit(int, pure=False).result(_SECONDS)
        spent = time.perf_counter() - began
        process.terminate()
    while _workers(client):
        time.sleep(0.01)
    return spent * 1000


def _retire(client: Any) -> float:
    """Return the time until one of two workers, with 100 MB each, has moved them and ended."""
    parts = [
        client.scatter(bytes([number]) * _SIZE, workers=[worker], hash=False)
        for worker in _workers(client)
        for number in range(_PARTS)
    ]
    began = time.perf_counter()
    gpu.resize(1)
    while len(_workers(client)) > 1:
        time.sleep(0.005)
    spent = time.perf_counter() - began
    assert [len(part.result(_SECONDS)) for part in parts[::_PARTS]] == [_SIZE] * 2, "results were lost"
    return spent * 1000


def _workers(client: Any) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])
