"""Real kernels and real servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

STAND_INS = Path(__file__).with_name("stand_ins")
"""Small packages with the names of GPU libraries, which behave as those do towards CUDA."""


class Failed(Exception):
    """An error in a cell."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Kernel:
    """A running kernel and what it printed."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client
        self.errors = ""
        self.results: list[dict[str, Any]] = []

    def run(self, code: str, timeout: float = 60) -> str:
        """Return the cell's standard output; `errors` has the other stream, `results` its rich output."""
        texts = {"stdout": "", "stderr": ""}
        self.results = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                texts[content["name"]] += content["text"]
            elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
                self.results.append(content["data"])

        reply = self.client.execute_interactive(code, timeout=timeout, output_hook=hear)["content"]
        self.errors = texts["stderr"]
        if reply["status"] == "error":
            raise Failed(reply["ename"], reply["evalue"])
        return texts["stdout"].strip()


StartKernel = Callable[..., Kernel]


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
