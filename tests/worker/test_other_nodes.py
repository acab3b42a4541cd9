"""Cells and calls on GPUs of another node: a notebook's server and its worker's pod, both real, on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.kernels import Kernel
from tests.kernel.servers import await_
from tests.worker.two_pods import TwoPods, two_pods

pytestmark = pytest.mark.root

IMPORTS = """
from jupyter_gpu import gpu
import os, signal, time
def place():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getppid(), os.getpid()
"""
FIRST, SECOND = "GPU-0100", "GPU-0101"


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPods]:
    """Run both pods for the module."""
    with two_pods(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def notebook(pods: TwoPods) -> Iterator[Kernel]:
    """Start the kernel of a notebook."""
    assert pods.server is not None
    with pods.server.kernel() as running:
        running.run(IMPORTS)
        yield running


@pytest.fixture
def kernel(notebook: Kernel, pods: TwoPods) -> Iterator[Kernel]:
    """Return the same kernel, with no GPU before and after."""
    yield notebook
    notebook.run("gpu.release(timeout=30)")
    pods.own, pods.other = 1, 2
    await_(lambda: not pods.kernels)


def test_call_on_another_node(kernel: Kernel, pods: TwoPods) -> None:
    """It has a set of GPUs there, of which nothing stays held."""
    assert pods.pod is not None
    seen, parent, _ = eval(kernel.run("print(gpu.run(place, gpus=2))"))
    assert seen == f"{FIRST},{SECOND}"
    assert parent == pods.pod.process.pid
    await_(lambda: not pods.kernels)
    assert kernel.run("print(gpu.status().attached)") == "0"
