"""Functions and cells in a worker that has a real GPU, while the notebook's own CUDA sees none.

The Python of the tests must have PyTorch with CUDA. With ``JUPYTER_GPU_TEST_FIGURES`` the file of that name gets a line
of JSON for each figure and for what a user is told.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_, environment, serve
from tests.worker.test_processes import gone

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(150),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="not run: needs PyTorch in this Python"),
]

TRAINING = """
def train(steps):
    import hashlib, torch
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16)
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, wanted = torch.randn(512, 256).cuda(), torch.randn(512, 16).cuda()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, loss, losses
def digest(model):
    import hashlib
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.detach().cpu().numpy().tobytes())
    return found.hexdigest()
def result(steps):
    model, _, losses = train(steps)
    return [digest(model), losses[0], losses[-1]]
"""
IMPORTS = f"""
from jupyter_gpu import gpu
import json, os, signal, time
{TRAINING}
def opens():
    import glob
    links = (os.readlink(one) for one in glob.glob('/proc/self/fd/*') if os.path.islink(one))
    return sorted({{one for one in links if one.startswith('/dev/nvidia')}})
def cuda_here():
    import torch
    try:
        torch.ones(1, device='cuda')
        return 'works'
    except Exception as error:
        return f'{{type(error).__name__}}: {{error}}'.splitlines()[0]
def looked():
    import ctypes
    lines = open('/proc/self/maps').read().splitlines()
    path = next(line.split()[-1] for line in lines if 'libcudart.so' in line)
    return ctypes.CDLL(path).cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))
def told(work):
    try:
        found = work()
        return f'{{type(found).__name__}} {{getattr(found, "device", "")}}'
    except Exception as error:
        return f'{{type(error).__name__}}: {{error}}'.splitlines()[0]
"""
STEPS = 200


def note(name: str, **what: object) -> None:
    """Write down what was measured, or what a user is told."""
    if path := os.environ.get("JUPYTER_GPU_TEST_FIGURES"):
        with Path(path).open("a") as file:
            print(json.dumps({"name": name, **what}), file=file, flush=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server on the real GPUs of this machine."""
    folder = tmp_path_factory.mktemp("server")
    env = {**environment(folder), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    with serve(folder, folder / "state", gpus=0, env=env) as running:
        yield running
        note("log", text=(folder / "log").read_text()[-3000:])


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook, whose CUDA runtime looks for GPUs while it has none: it never looks again."""
    with server.kernel() as running:
        running.run(IMPORTS)
        note("PyTorch in the notebook without a GPU", said=running.run("print(cuda_here())", timeout=120))
        note("the runtime's first look", code=running.run("print(looked())"))
        running.run("gpu.resize(1)")
        said = running.run("print(cuda_here())")
        note("PyTorch in the notebook with a GPU", said=said)
        assert said != "works"
        yield running


@pytest.fixture
def kernel(notebook: Kernel) -> Kernel:
    """Return that kernel; its GPU stays attached from test to test, and so does its worker."""
    notebook.run("gpu.resize(1)")
    return notebook


def answer(kernel: Kernel, code: str, timeout: float = 60) -> object:
    """Return the JSON that a cell prints in its last line."""
    return json.loads(kernel.run(code, timeout=timeout).splitlines()[-1])


@pytest.fixture(scope="module")
def alone() -> object:
    """Return what a program of its own computes on the same GPU."""
    code = f"import json\n{TRAINING}\nprint(json.dumps(result({STEPS})))"
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    note("a bare program that trains", seconds=time.monotonic() - began)
    return json.loads(ended.stdout)


def test_function_has_a_gpu_that_the_notebook_cannot_see(kernel: Kernel, server: Server, alone: object) -> None:
    """The notebook's CUDA looked before and saw none; a worker's sees it, and computes the same to the last bit."""
    began = time.monotonic()
    assert answer(kernel, f"print(json.dumps(gpu.run(result, {STEPS})))", 120) == alone
    note(
        "the first gpu.run, with the GPU's attachment, PyTorch's import and training", seconds=time.monotonic() - began
    )
    assert answer(kernel, f"print(json.dumps(gpu.run(result, {STEPS})))", 120) == alone
    files = answer(kernel, "print(json.dumps([opens(), gpu.run(opens)]))")
    note("device files of the notebook and of the worker", files=files)
    assert isinstance(files, list)
    assert "/dev/nvidia0" not in files[0]
    assert "/dev/nvidia0" in files[1]


def test_cell_leaves_a_model(kernel: Kernel, alone: object) -> None:
    """It stays with a handle; the next cell uses it; with -o it comes back, in host memory and the same to the bit."""
    kernel.run("gpu.resize(1)")
    kernel.run(f"%%gpu 1 --fresh\nmodel, loss, losses = train({STEPS})\nlast = losses[-1]", timeout=120)
    told = kernel.errors
    note("model without -o", said=told, here=kernel.run("print([n in globals() for n in ('model', 'loss')])"))
    assert "model stays in the worker" in told
    assert "loss stays in the worker" in told
    assert kernel.run("%%gpu 1 --fresh\nprint(digest(model), next(model.parameters()).device)") == f"{alone[0]} cuda:0"  # type: ignore[index]
    kernel.run("%%gpu 1 --fresh -o model,loss\nmodel.eval()")
    note("model with -o", said=kernel.errors)
    said = kernel.run("print(digest(model), next(model.parameters()).device, loss.device, loss.item() == last)")
    assert said == f"{alone[0]} cpu cpu True"  # type: ignore[index]
    code = "%%gpu 1 --fresh\nmodel.cuda()\nprint(digest(model), next(model.parameters()).device)"
    assert kernel.run(code) == f"{alone[0]} cuda:0"  # type: ignore[index]


CASES = {
    "tensor": "torch.arange(8, device='cuda')",
    "tensor with gradient": "torch.ones(8, device='cuda', requires_grad=True) * 2",
    "sparse tensor": "torch.eye(4, device='cuda').to_sparse()",
    "module": "torch.nn.Linear(4, 4).cuda()",
    "cupy": "__import__('cupy').arange(8)",
    "jax": "__import__('jax').numpy.arange(8)",
}


@pytest.mark.parametrize("name", CASES)
def test_result_in_the_memory_of_a_gpu(kernel: Kernel, name: str) -> None:
    """It comes as a copy in host memory, or is refused with a sentence; the worker goes on."""
    kernel.run(f"gpu.resize(1)\nimport torch\ndef make(): import torch; return {CASES[name]}")
    said = kernel.run("print(told(lambda: gpu.run(make)))", timeout=120)
    note(f"result: {name}", said=said)
    assert "cuda" not in said.lower() or said.startswith("CannotSend"), said
    assert kernel.run("print(gpu.run(len, [1, 2]))") == "2"


def test_argument_in_the_memory_of_a_gpu(server: Server) -> None:
    """A notebook with a GPU sends a tensor of it: what the user is told."""
    with server.kernel() as own:
        own.run(
            f"{IMPORTS}\ngpu.resize(1)\nimport torch\nt = torch.arange(8, device='cuda')\n"
            "def total(t): return int(t.sum())"
        )
        note("argument: tensor", said=own.run("print(told(lambda: gpu.run(total, t)))", timeout=120))
        assert own.run("print(gpu.run(total, t.cpu()))") == "28"


def test_errors_of_cuda(kernel: Kernel) -> None:
    """They are the notebook's own classes, with the traceback there; the same kernel goes on."""
    kernel.run(
        "gpu.resize(1)\nimport torch\ndef much(): import torch; torch.empty(1 << 45, device='cuda')\n"
        "def odd(): import torch; return torch.ones(2, 3, device='cuda') @ torch.ones(2, device='cuda')"
    )
    code = (
        "try: gpu.run({})\nexcept {} as error:"
        "\n print(json.dumps([type(error).__name__, str(error)[:200], 'In the worker' in error.__notes__[0]]))"
    )
    for name, kind in (("much", "torch.cuda.OutOfMemoryError"), ("odd", "RuntimeError")):
        found = answer(kernel, code.format(name, kind), 120)
        note(f"error: {name}", said=found)
        assert isinstance(found, list)
        assert found[2] is True


@pytest.mark.parametrize("kernels", ["short", "long"])
def test_interrupt(kernel: Kernel, tmp_path: Path, kernels: str) -> None:
    """Ctrl-C while its kernels run ends the function once the one that runs has ended, and the worker goes on."""
    mark = tmp_path / "runs"
    cycles = {"short": 2_000_000, "long": 6_000_000_000}[kernels]
    own = int(kernel.run("gpu.resize(1)\nprint(os.getpid())"))
    pid = int(kernel.run("print(gpu.run(os.getpid))"))
    kernel.client.execute(
        "def waits():\n import torch\n torch.ones(1, device='cuda')\n"
        f" open({str(mark)!r}, 'w').close()\n"
        f" while True: torch.cuda._sleep({cycles}); torch.cuda.synchronize()\ngpu.run(waits)"
    )
    await_(mark.exists)
    time.sleep(0.5)
    began = time.monotonic()
    os.kill(own, signal.SIGINT)
    assert kernel.client.get_shell_msg(timeout=60)["content"]["ename"] == "KeyboardInterrupt"
    note(f"interrupt, {kernels} kernels", seconds=time.monotonic() - began)
    kernel.run("pass")
    assert int(kernel.run("print(gpu.run(os.getpid))")) == pid


def test_worker_killed_in_a_kernel(kernel: Kernel, tmp_path: Path, alone: object) -> None:
    """The call fails with a plain error, and the next one trains as before."""
    mark = tmp_path / "runs"
    kernel.run("gpu.resize(1)")
    pid = int(kernel.run("print(gpu.run(os.getpid))"))
    kernel.client.execute(
        "def waits():\n import torch\n torch.ones(1, device='cuda')\n"
        f" open({str(mark)!r}, 'w').close()\n torch.cuda._sleep(20_000_000_000)\n torch.cuda.synchronize()\n"
        "gpu.run(waits)"
    )
    await_(mark.exists)
    time.sleep(0.5)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    said = kernel.client.get_shell_msg(timeout=60)["content"]
    note("worker killed in a kernel", seconds=time.monotonic() - began, said=said["evalue"])
    assert said["ename"] == "WorkerLost"
    await_(lambda: gone(pid))
    note("its process had ended", seconds=time.monotonic() - began)
    kernel.run("pass")
    assert answer(kernel, f"print(json.dumps(gpu.run(result, {STEPS})))", 120) == alone


def test_figures(kernel: Kernel, server: Server) -> None:
    """A worker's first use and later ones, and 1 GB of NumPy there and back, are written down."""
    first = "def first():\n import torch\n torch.ones(1, device='cuda').sum().item()\n"
    kernel.run(f"{first}import numpy\nbig = numpy.random.default_rng(1).integers(0, 255, 10**9, 'uint8')\n")
    kernel.run(
        "def nothing(): pass\ndef size(a): return a.nbytes\ndef make(): import numpy; return numpy.ones(10**9, 'uint8')"
    )
    kernel.run("def gpu_sum(a): import torch; return int(torch.from_numpy(a).cuda().sum(dtype=torch.int64).item())")
    kernel.run("gpu.resize(1)")
    code = "t = time.perf_counter(); gpu.run({}); print(json.dumps(time.perf_counter() - t))"
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", f"{first}first()"], check=True)
        bare = time.monotonic() - began
        kernel.run("gpu.release(timeout=30); gpu.resize(1)")
        note("cold: a worker's import of PyTorch and context", seconds=answer(kernel, code.format("first")), bare=bare)
    for what in ("nothing", "first"):
        many = (
            "ts = []\nfor _ in range(50):\n t = time.perf_counter()\n"
            f" gpu.run({what}); ts.append(time.perf_counter() - t)\n"
            "print(json.dumps(sorted(ts)))"
        )
        found = answer(kernel, many)
        assert isinstance(found, list)
        note(f"warm: {what}", p50=found[25], p95=found[47], longest=found[-1])
    for _ in range(3):
        note("1 GB there", seconds=answer(kernel, code.format("size, big"), 120))
        note("1 GB back", seconds=answer(kernel, code.format("make"), 120))
    total = answer(kernel, "t = time.perf_counter(); s = gpu.run(gpu_sum, big)\n"
                   "print(json.dumps([time.perf_counter() - t, s == int(big.sum(dtype='int64'))]))", 120)  # fmt: skip
    note("1 GB there and summed on the GPU", seconds=total)
    assert isinstance(total, list)
    assert total[1] is True
    cell = "%%gpu 1 --fresh\nt1 = time.time()"
    kernel.run("gpu.release(timeout=30); gpu.resize(1); import time")
    for _ in range(5):
        began = time.monotonic()
        kernel.run(cell)
        note("%%gpu --fresh, an empty cell", seconds=time.monotonic() - began)


def test_map_and_nothing_left(kernel: Kernel, server: Server) -> None:
    """Six trainings, one after another in the one GPU; then no process has the GPU open."""
    found = answer(kernel, "gpu.resize(1)\nprint(json.dumps(gpu.map(result, [50] * 6)))", 120)
    assert isinstance(found, list)
    assert all(one == found[0] for one in found)
    kernel.run("gpu.release(timeout=30)")
    await_(lambda: server.status()["phase"] == "Idle", 20)
    listed = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    assert not subprocess.run(listed, capture_output=True, text=True, check=True).stdout.strip()


def test_invalid_kernel_ends_its_process_alone(kernel: Kernel, alone: object) -> None:
    """An assertion in a kernel ruins the CUDA of that process; the user is told, and a new one trains."""
    kernel.run(
        "gpu.resize(1)\nimport torch\ndef bad():\n import torch\n a = torch.ones(4, device='cuda')\n"
        " i = torch.tensor([9], device='cuda')\n r = a[i]; torch.cuda.synchronize()\n return r.cpu()"
    )
    with pytest.raises(Failed) as failed:
        kernel.run("gpu.run(bad)", timeout=120)
    note("assertion in a kernel", said=str(failed.value)[:300])
    note("the next call", said=kernel.run("print(told(lambda: gpu.run(result, 5)))"))
    kernel.run("gpu.release(timeout=30)")
    assert answer(kernel, f"print(json.dumps(gpu.run(result, {STEPS})))", 120) == alone


def test_dask_with_arrays_of_cupy(kernel: Kernel) -> None:
    """`gpu.client()` has a worker with the GPU, whose results come back to a notebook that has none."""
    kernel.run("gpu.resize(1)\nimport time, numpy\nbegan = time.perf_counter()\nclient = gpu.client()", timeout=120)
    kernel.run(
        "def total(n):\n import cupy; return float(cupy.arange(n, dtype='float64').sum())\n"
        "first = client.submit(total, 1000).result(60)\nprint(first, time.perf_counter() - began)",
        timeout=120,
    )
    code = (
        "import dask.array as da\ndata = da.random.default_rng(1).random((4000, 4000), chunks=1000)\n"
        # Without `meta` Dask calls the function once here, to see what comes, and so starts CUDA in the notebook.
        "there = data.map_blocks(lambda block: __import__('cupy').asarray(block), meta=numpy.empty((0, 0)))\n"
        "sums = (there @ there.T).sum(axis=0).map_blocks(lambda block: block.get(), meta=numpy.empty(0)).compute()\n"
        "here = data.compute(scheduler='threads')\n"
        "same = bool(numpy.allclose(sums, (here @ here.T).sum(axis=0)))\n"
        "print(json.dumps([first, time.perf_counter() - began, same]))"
    )
    found = answer(kernel, code, 120)
    note("Dask with arrays of CuPy", said=found)
    assert isinstance(found, list)
    assert (found[0], found[2]) == (499500.0, True)
    kernel.run("client.close()")
    kernel.run("gpu.release(timeout=30)")
