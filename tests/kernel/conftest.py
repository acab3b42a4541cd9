"""Real kernels and real servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from .kernels import Kernel, StartKernel
from .servers import Server, await_

STAND_INS = Path(__file__).with_name("stand_ins")
"""Small packages with the names of GPU libraries, which behave as those do towards CUDA."""


@pytest.fixture
def give_back(server: Server) -> Iterator[None]:
    """Give all GPUs of the module's server back after a test."""
    yield
    server.gpus(0)
    await_(lambda: server.status()["phase"] == "Idle")


@pytest.fixture
def provisioned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have kernels of this process start through our provisioner, as the server extension arranges it."""
    KernelProvisionerFactory.clear_instance()
    factory = KernelProvisionerFactory.instance()
    group = "jupyter_client.kernel_provisioners"
    factory.provisioners["jupyter-gpu"] = EntryPoint(
        "jupyter-gpu", "jupyter_gpu.server.provisioner:GpuProvisioner", group
    )
    factory.default_provisioner_name = "jupyter-gpu"
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[StartKernel]:
    """Start a kernel with these variables in its environment."""
    running: list[Kernel] = []

    def start(name: str = "python3", **variables: str) -> Kernel:
        manager = KernelManager(kernel_name=name)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "JUPYTER_GPU"))}
        manager.start_kernel(
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join([str(STAND_INS), *filter(None, sys.path)]),
                "IPYTHONDIR": str(tmp_path / "ipython"),
                "JUPYTER_RUNTIME_DIR": str(tmp_path),
                "PYTHONWARNINGS": "default",
                **variables,
            }
        )
        client = manager.client()
        client.start_channels()
        kernel = Kernel(manager, client)
        running.append(kernel)
        client.wait_for_ready(timeout=60)
        return kernel

    yield start
    for kernel in running:
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)
        kernel.manager.cleanup_resources()
