"""Which kernels are prepared, and how."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu.provisioner import ARGUMENT, _has_us, runs_ipykernel, taken_up

from .conftest import StartKernel


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/python3 -m ipykernel_launcher -f x.json", True),
        ("python3.11 -Xfrozen_modules=off -m ipykernel_launcher -f x.json", True),
        ("python -m ipykernel -f x.json", True),
        (f"python -m ipykernel_launcher -f x.json {ARGUMENT}", False),
        ("python -m xpython -f x.json", False),
        ("python -m bash_kernel -m ipykernel_launcher", False),
        ("xpython -f x.json", False),
        ("R --slave -e IRkernel::main() --args x.json", False),
        ("conda run -n other python -m ipykernel_launcher -f x.json", False),
        ("python -m", False),
        ("", False),
    ],
)
def test_runs_ipykernel(command: str, expected: bool) -> None:
    """Only what certainly understands the argument gets it."""
    assert runs_ipykernel(command.split()) is expected


@pytest.mark.usefixtures("provisioned")
def test_kernel_is_prepared(start_kernel: StartKernel) -> None:
    """Variables are there before the first cell; none that the user has set is changed."""
    kernel = start_kernel(CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert kernel.run("import os; print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])") == "1"
    assert kernel.run("print(os.environ['CUDA_DEVICE_ORDER'])") == "FASTEST_FIRST"
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "True"
    assert (
        kernel.run("print([n for n in ('torch', 'numba', 'ipywidgets', 'tornado.httpclient') if n in sys.modules])")
        == "[]"
    )


def test_plain_kernel_is_not(start_kernel: StartKernel) -> None:
    """Without the provisioner nothing is added: the test above sees our doing."""
    kernel = start_kernel()
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "False"


@pytest.mark.usefixtures("provisioned")
def test_broken_guard_breaks_no_kernel(start_kernel: StartKernel, tmp_path: Path) -> None:
    """A kernel whose guard cannot be set up runs as if there were none."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\nm = types.ModuleType('jupyter_gpu.frameworks')\n"
        "m.install = lambda guard: 1 / 0\nsys.modules['jupyter_gpu.frameworks'] = m\n"
        "import jupyter_gpu; jupyter_gpu.frameworks = m\n"
    )
    kernel = start_kernel(PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    assert kernel.run("print(1 + 1)") == "2"


def test_other_environment_without_us(tmp_path: Path) -> None:
    """An interpreter that cannot import us does not get the argument; one that can, does."""
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    with_us = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert not asyncio.run(_has_us(str(other), {"PATH": "", "PYTHONHOME": "", "PYTHONPATH": str(tmp_path)}))
    assert asyncio.run(_has_us(str(other), with_us))
    assert asyncio.run(_has_us(sys.executable, {}))


def test_no_kernel_is_older_than_its_guard() -> None:
    """In a server that takes its GPUs up in the background, a kernel waits for that; a failure of it is no reason."""

    async def scene() -> list[str]:
        order: list[str] = []

        async def take_up() -> None:
            await asyncio.sleep(0.01)
            order.append("taken up")
            raise RuntimeError("no GPUs")

        starting = asyncio.create_task(take_up())
        server = SimpleNamespace(web_app=SimpleNamespace(settings={"jupyter_gpu_starting": starting}))
        await taken_up(server)
        order.append("kernel")
        await taken_up(server)
        await taken_up(None)
        assert isinstance(starting.exception(), RuntimeError)
        return order

    assert asyncio.run(scene()) == ["taken up", "kernel"]
