"""The preparation of kernels."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu.common.attached import Hint
from jupyter_gpu.server import provisioner
from jupyter_gpu.server.provisioner import has_jupyter_gpu, wait_until_started
from jupyter_gpu.server.rules.launching import read
from tests.kernel.kernels import StartKernel


@pytest.mark.usefixtures("provisioned")
def test_kernel_is_prepared(start_kernel: StartKernel) -> None:
    """Variables are set before the first cell; none that the user has set is changed."""
    kernel = start_kernel(CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert kernel.run("import os; print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])") == "1"
    assert kernel.run("print(os.environ['CUDA_DEVICE_ORDER'])") == "FASTEST_FIRST"
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "True"
    assert (
        kernel.run("print([n for n in ('torch', 'numba', 'ipywidgets', 'tornado.httpclient') if n in sys.modules])")
        == "[]"
    )
    heavy = "('jupyter_gpu.remote', 'jupyter_gpu.worker', 'cloudpickle')"
    assert kernel.run(f"print([n for n in sys.modules if n.startswith({heavy})])") == "[]"


def test_plain_kernel_is_not_prepared(start_kernel: StartKernel) -> None:
    """Without the provisioner nothing is added, so the test above sees its effect."""
    kernel = start_kernel()
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "False"


@pytest.mark.usefixtures("provisioned")
def test_broken_guard_breaks_no_kernel(start_kernel: StartKernel, tmp_path: Path) -> None:
    """A kernel whose guard cannot be set up runs as if there were none."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\nm = types.ModuleType('jupyter_gpu.kernel.cuda.frameworks')\n"
        "m.install = lambda guard: 1 / 0\nsys.modules['jupyter_gpu.kernel.cuda.frameworks'] = m\n"
        "import jupyter_gpu; jupyter_gpu.kernel.cuda.frameworks = m\n"
    )
    kernel = start_kernel(PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    assert kernel.run("print(1 + 1)") == "2"


def test_argument_needs_jupyter_gpu_in_the_interpreter(tmp_path: Path) -> None:
    """An interpreter that cannot import jupyter_gpu does not get the argument; one that can, does."""
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    with_us = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def has(python: str, env: dict[str, str]) -> bool:
        launch = read([python, "-m", "ipykernel_launcher"])
        assert launch
        return asyncio.run(has_jupyter_gpu(launch, env))

    assert not has(str(other), {"PATH": "", "PYTHONHOME": "", "PYTHONPATH": str(tmp_path)})
    assert has(str(other), with_us)
    assert has(sys.executable, {})


def test_unanswered_question_counts_as_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended with all that it started, and not asked again at each start."""
    monkeypatch.setattr(provisioner, "_PROBE_SECONDS", 0.5)
    monkeypatch.setattr(provisioner, "_SLOW", 0.1)
    marks = tmp_path / "marks"
    script = tmp_path / "conda"
    script.write_text(f"#!/bin/sh\necho >> {marks}\nsleep 1000\n")
    script.chmod(0o755)
    launch = read([str(script), "run", "python", "-m", "ipykernel_launcher"])
    assert launch
    env = {"PATH": os.environ["PATH"]}
    assert [asyncio.run(has_jupyter_gpu(launch, env)) for _ in range(2)] == [False, False]
    assert marks.read_text() == "\n"


def _specs(folder: Path) -> dict[str, list[str]]:
    tail = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    python = folder / "python3.14t"
    python.symlink_to(sys.executable)
    for name, drop in (("conda", 3), ("uv", 1)):
        (folder / name).write_text(f'#!/bin/sh\nshift {drop}\nexec "$@"\n')
        (folder / name).chmod(0o755)
    (folder / "nb_conda_kernels").mkdir()
    (folder / "nb_conda_kernels" / "__init__.py").touch()
    (folder / "nb_conda_kernels" / "runner.py").write_text("import os, sys; os.execv(sys.argv[3], sys.argv[3:])")
    return {
        "conda": [str(folder / "conda"), "run", "-n", "x", sys.executable, *tail],
        "uv": [str(folder / "uv"), "run", sys.executable, *tail],
        "env": ["/usr/bin/env", "A=b", sys.executable, *tail],
        "bash": ["bash", "-c", f"true && exec {sys.executable} -m ipykernel_launcher -f {{connection_file}}; echo"],
        "nb_conda_kernels": [
            *(sys.executable, "-m", "nb_conda_kernels.runner", "/conda", "/conda/envs/x"), sys.executable, *tail
        ],
        "free-threaded": [str(python), *tail],
    }  # fmt: skip


@pytest.mark.parametrize("way", ["conda", "uv", "env", "bash", "nb_conda_kernels", "free-threaded"])
@pytest.mark.usefixtures("provisioned")
def test_guard_is_loaded_however_python_is_started(
    start_kernel: StartKernel, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real kernels start from kernel specs that choose their Python."""
    folder = tmp_path / "data" / "kernels" / "chosen"
    folder.mkdir(parents=True)
    spec = {"argv": _specs(tmp_path)[way], "display_name": way, "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    kernel = start_kernel("chosen", PYTHONPATH=path)
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "True"


@pytest.mark.parametrize("of_project", [True, False], ids=["of a project", "of this environment"])
@pytest.mark.usefixtures("provisioned")
def test_guard_is_loaded_with_uv(
    start_kernel: StartKernel, tmp_path: Path, of_project: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv run` starts a project with and without its own environment; nothing is downloaded."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed in this environment: the extra [test] has it")
    project, cache = tmp_path / "project", {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1"}
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.10"\n')
    if of_project:
        made = ["venv", "-q", "--python", sys.executable, str(project / ".venv")]
        subprocess.run([uv, *made], env=os.environ | cache, check=True, timeout=60)
        words, prefix = ["--project", str(project), "--no-sync"], str(project / ".venv")
    else:
        words, prefix = ["--no-project", "--python", sys.executable], sys.prefix
    folder = tmp_path / "data" / "kernels" / "uv"
    folder.mkdir(parents=True)
    argv = [str(uv), "run", *words, "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "uv", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    kernel = start_kernel("uv", **cache)
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules, sys.prefix)") == f"True {prefix}"


@pytest.mark.usefixtures("provisioned")
def test_unguarded_kernel_is_logged_with_the_reason(
    start_kernel: StartKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Importing the package then sets the guard up, once, if the server provides what is attached."""
    folder = tmp_path / "data" / "kernels" / "chosen"
    folder.mkdir(parents=True)
    script = tmp_path / "kernel.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ipykernel_launcher "$@"\n')
    script.chmod(0o755)
    spec = {"argv": [str(script), "-f", "{connection_file}"], "display_name": "x", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    attached = tmp_path / "attached"
    attached.write_text(Hint("a", 1, False).to_text())
    with caplog.at_level(logging.INFO):
        kernel = start_kernel("chosen", JUPYTER_GPU_ATTACHED=str(attached))
    assert "it is not known how its command starts ipykernel" in caplog.text
    assert kernel.run("import sys; print('jupyter_gpu.startup' in sys.modules)") == "False"
    seen = "import torch\ntry: torch.zeros(1, device='cuda')\nexcept Exception as e: print(type(e).__name__)"
    assert (
        kernel.run(f"import jupyter_gpu, jupyter_gpu.startup as s; s.install(); s.install()\n{seen}") == "NoGpuAttached"
    )
    finders = "sum(type(f).__module__ == 'jupyter_gpu.kernel.cuda.frameworks' for f in sys.meta_path)"
    assert (
        kernel.run(f"import sys; print({finders}, len(get_ipython().events.callbacks['pre_run_cell']))").split()[0]
        == "1"
    )


def test_kernel_waits_for_the_server_to_start() -> None:
    """In a server that starts in the background, a kernel waits for that; a failure of it does not stop the kernel."""

    async def scene() -> list[str]:
        order: list[str] = []

        async def take_up() -> None:
            await asyncio.sleep(0.01)
            order.append("taken up")
            raise RuntimeError("no GPUs")

        starting = asyncio.create_task(take_up())
        server = SimpleNamespace(web_app=SimpleNamespace(settings={"jupyter_gpu_starting": starting}))
        await wait_until_started(server)
        order.append("kernel")
        await wait_until_started(server)
        await wait_until_started(None)
        assert isinstance(starting.exception(), RuntimeError)
        return order

    assert asyncio.run(scene()) == ["taken up", "kernel"]
