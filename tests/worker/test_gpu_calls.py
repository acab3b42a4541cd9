"""`gpu.run` and its kin in real kernels and programs of a real server, with simulated GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_, serve_soft

IMPORTS = """
from jupyter_gpu import gpu, simulate
import asyncio, os, time, threading
class Cuda:
    "A library that looks for GPUs once."
    found = None
    @classmethod
    def devices(cls):
        if cls.found is None:
            cls.held = simulate.hold()
            cls.found = [device.uuid for device in cls.held.__enter__()]
        return cls.found
def seen():
    return len(Cuda.devices())
def pid():
    return os.getpid()
def used():
    return pid(), seen()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook."""
    with server.kernel() as running:
        running.run(IMPORTS)
        yield running


@pytest.fixture
def kernel(notebook: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel for each test, with no GPU before and after."""
    notebook.run(IMPORTS)
    yield notebook
    server.rest("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    await_(lambda: server.status()["phase"] == "Idle", 20)


def test_function_sees_gpus_that_came_after_cuda_started(server: Server) -> None:
    """The notebook's own CUDA sees one, the function two; afterwards nothing drains, and the notebook has its one."""
    with server.kernel() as own:
        own.run(IMPORTS)
        own.run("gpu.resize(1)")
        assert own.run("print(seen())") == "1"
        assert own.run("print(gpu.run(seen, gpus=2), seen())") == "2 1"
        assert own.run("print(gpu.status().attached)") == "1"
        assert server.status()["amounts"]["draining"] == 0
    server.gpus(0)


def test_nothing_stays_held(kernel: Kernel, server: Server) -> None:
    """A call takes what it needs, and gives it back at its end."""
    assert kernel.run("print(gpu.run(used, gpus=2)[1])") == "2"
    await_(lambda: server.status()["phase"] == "Idle", 10)


def test_process_is_kept_while_the_gpus_are_the_same(kernel: Kernel, server: Server) -> None:
    """The next call is served by it; another number of GPUs, by another one."""
    kernel.run("gpu.resize(2)")
    first = kernel.run("print(gpu.run(pid))")
    assert kernel.run("print(gpu.run(pid))") == first
    assert kernel.run("with gpu.at_least(2): print(gpu.run(pid, gpus=2))") == first
    kernel.run("gpu.resize(3)")
    assert kernel.run("print(*gpu.run(used))").split()[1] == "3"
    assert kernel.run("gpu.resize(1); print(*gpu.run(used))").split()[1] == "1"
    assert first not in kernel.run("print(gpu.run(pid))")


@pytest.mark.parametrize(
    "shrink",
    [
        lambda kernel, _: kernel.run("gpu.resize(1, timeout=30)"),
        lambda kernel, _: kernel.run("gpu.release(timeout=30)"),
        lambda kernel, _: kernel.run("await gpu.aresize(0, timeout=30)"),
        lambda _, server: server.gpus(1),
        lambda _, server: server.gpus(0),
    ],
    ids=["resize", "release", "aresize", "slider", "slider to nothing"],
)
def test_resting_process_makes_no_gpu_drain(kernel: Kernel, server: Server, shrink: object) -> None:
    """It has the GPUs open, and ends before they are given back, whoever does that."""
    kernel.run("gpu.resize(2)")
    assert kernel.run("print(gpu.run(used)[1])") == "2"
    shrink(kernel, server)  # type: ignore[operator]
    await_(lambda: server.status()["phase"] in ("Idle", "Attached", "Ready"), 10)
    assert server.status()["amounts"]["draining"] == 0
