"""On a real GPU: programs on the CUDA runtime, which no stand-in can serve, and NVIDIA's own tools, under the gate."""

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.sharing import front
from jupyter_gpu.common.rules import search_path
from tests.gate.standin.clients import python_of
from tests.shares.serve import Serving

from . import building
from .place import Program

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

TRAINING = """
import json, sys, time
import torch
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs, wanted = torch.randn(512, 256).cuda(), torch.randn(512, 16).cuda()
losses = []
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.inference_mode():
    answer = model(inputs).sum().item()
free, total = torch.cuda.mem_get_info()
print(json.dumps({"first": losses[0], "last": losses[-1], "answer": answer, "total": total}))
"""
GRAPH = """
import json
import torch
there = torch.zeros(1024, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    there += 1
side.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    there += 1
for _ in range(500):
    graph.replay()
torch.cuda.synchronize()
print(json.dumps(there.sum().item()))
"""
CUPY = """
import json
import cupy
square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
a = cupy.linspace(0, 1, 1 << 20, dtype=cupy.float32).reshape(1024, 1024)
for _ in range(200):
    a = square(a @ a.T / 1024 + 0.25) / 2
print(json.dumps({"answer": float(a.sum()), "total": cupy.cuda.runtime.memGetInfo()[1]}))
"""
JAX = """
import json
import jax
step = jax.jit(lambda a: jax.numpy.tanh(a @ a.T) / 32)
a = jax.random.normal(jax.random.key(1), (1024, 1024))
for _ in range(200):
    a = step(a)
print(json.dumps({"answer": float(a.sum()), "total": jax.local_devices()[0].memory_stats()["bytes_limit"]}))
"""
TRITON = """
import json
import torch
import triton
from triton import language as tl

@triton.jit
def add(there, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(there + at, tl.load(there + at) + 1)

there = torch.zeros(4096, device="cuda")
for _ in range(2000):
    add[(4,)](there, SIZE=1024)
compiled = torch.compile(lambda a: (a * 2 + 1).sum())
print(json.dumps({"answer": compiled(there).item(), "total": torch.cuda.mem_get_info()[1]}))
"""
TOO_MUCH = """
import json
import torch
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    print(json.dumps("more than its limit"))
except torch.cuda.OutOfMemoryError as error:
    del held
    print(json.dumps([str(error), torch.empty(1 << 30, dtype=torch.uint8, device="cuda").numel()]))
"""
HOG = """
import sys, time
import torch
def run(seconds):
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(8):
            torch.cuda._sleep(1_000_000)
        torch.cuda.synchronize()
        done += 8
    return done

run(0.1)
print("ready", flush=True)
sys.stdin.readline()
run(float(sys.argv[1]))  # what both saved until then is spent
print(run(float(sys.argv[2])))
"""
NUMBA = """
import numpy
from numba import config, cuda
config.CUDA_LOW_OCCUPANCY_WARNINGS = False

@cuda.jit
def add(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += 1

there = cuda.to_device(numpy.zeros(4096, dtype=numpy.int64))
for _ in range(20000):
    add[32, 128](there)
print(int(there.copy_to_host().sum()))
"""
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""As PyTorch asks for, where a result is to be the same each time."""


def torch() -> str:
    """Return a Python that has PyTorch with CUDA."""
    return os.environ["JUPYTER_GPU_TEST_TORCH"]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the local form."""
    driver = front.driver_of(os.environ)
    assert driver
    return building.build_gate(tmp_path_factory.mktemp("gate"), driver)


@pytest.fixture(scope="module")
def gpu() -> str:
    """Return the UUID of the first GPU."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"UUID: (GPU-[0-9a-f-]+)", listed)
    assert found
    return found[1]


@pytest.fixture
def server(tmp_path: Path, gpu: str) -> Iterator[Serving]:
    """Serve two halves of the GPU, one with 2 GiB of its memory."""
    with Serving(tmp_path) as serving:
        serving.set({gpu: {"one": (500, 2 << 30), "two": 500}})
        yield serving


class Bench:
    """Starts programs under the gate."""

    def __init__(self, gate: Path, gpu: str, server: Serving) -> None:
        self._gate, self._gpu, self._server = gate, gpu, server

    def environment(self, share: str) -> Mapping[str, str]:
        """Return the environment for a program of that share."""
        sockets = self._server.socket(self._gpu, share).parent
        path = search_path.joined(str(self._gate), os.environ.get("LD_LIBRARY_PATH"))
        gated = {"LD_LIBRARY_PATH": path, "JUPYTER_GPU_GATE": str(sockets), "CUDA_VISIBLE_DEVICES": self._gpu}
        return {**DETERMINISTIC, **gated}

    def start(self, python: str, program: str, share: str, *arguments: str) -> Program:
        """Start a program without waiting for it."""
        return Program([python, "-c", program, *arguments], self.environment(share))

    def used(self, share: str) -> int:
        """Return the microseconds for which a share had the GPU."""
        account = self._server.usage(self._gpu, share)["account"]
        return sum(account[name] for name in ("guaranteed", "borrowed", "idle", "overrun"))


@pytest.fixture
def bench(gate: Path, gpu: str, server: Serving) -> Bench:
    """Return a bench with two shares."""
    return Bench(gate, gpu, server)


@pytest.mark.torch
def test_training_is_bit_identical_under_the_gate(bench: Bench) -> None:
    """Loss and inference agree to the last bit, and PyTorch sees the share's limit as the GPU's memory."""
    alone = json.loads(Program([torch(), "-c", TRAINING, "300"], DETERMINISTIC).lines()[-1])
    shared = json.loads(bench.start(torch(), TRAINING, "one", "300").lines()[-1])
    assert shared["last"] < shared["first"]
    assert {**shared, "total": 0} == {**alone, "total": 0}
    assert shared["total"] == 2 << 30 < alone["total"]
    assert bench.used("one") > 0


@pytest.mark.torch
def test_two_processes_of_one_share_and_a_neighbour_end(bench: Bench) -> None:
    """All of them end, and both shares had the GPU."""
    running = [bench.start(torch(), TRAINING, share, "2000") for share in ("one", "one", "two")]
    for program in running:
        found = json.loads(program.lines()[-1])
        assert found["last"] < found["first"]
    assert bench.used("one") > 0
    assert bench.used("two") > 0


@pytest.mark.torch
def test_graph_replays_are_gated_and_counted(bench: Bench) -> None:
    """Each replay is gated and counts."""
    assert json.loads(bench.start(torch(), GRAPH, "two").lines()[-1]) == 501 * 1024
    assert bench.used("two") > 0


@pytest.mark.torch
@pytest.mark.parametrize(("module", "program"), [("cupy", CUPY), ("jax", JAX), ("triton", TRITON)])
def test_other_libraries_give_the_same_answers(bench: Bench, tmp_path: Path, module: str, program: str) -> None:
    """Their own compiled kernels agree with those without the gate, and each sees the limit as the GPU's memory."""
    there = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if subprocess.run([torch(), "-c", there]).returncode:
        pytest.skip(f"not run: needs {module} in the Python that JUPYTER_GPU_TEST_TORCH names")
    file = tmp_path / "program.py"
    file.write_text(program)  # Triton reads its kernels there
    alone, shared = (
        json.loads(Program([torch(), str(file)], env).lines()[-1]) for env in ({}, bench.environment("one"))
    )
    assert shared["answer"] == pytest.approx(alone["answer"], rel=1e-3), "libraries choose their kernels by measuring"
    assert shared["total"] <= 2 << 30 < alone["total"]
    assert bench.used("one") > 0


@pytest.mark.torch
def test_memory_has_a_limit(bench: Bench) -> None:
    """Beyond it PyTorch reports its usual error; existing memory keeps working."""
    said = json.loads(bench.start(torch(), TOO_MUCH, "one").lines()[-1])
    assert "out of memory" in said[0]
    assert said[1] == 1 << 30


@pytest.mark.torch
def test_shares_are_kept(bench: Bench, server: Serving, gpu: str) -> None:
    """A share three times as large runs three times as many kernels, as counted by the programs themselves."""
    server.set({gpu: {"one": 750, "two": 250}})
    running = [bench.start(torch(), HOG, share, "8", "15") for share in ("one", "two")]
    assert [program.line() for program in running] == ["ready"] * 2
    for program in running:
        program.tell("go")
    large, small = (int(program.lines()[-1]) for program in running)
    assert large / (large + small) == pytest.approx(0.75, abs=0.03)


@pytest.mark.torch
def test_training_continues_while_its_share_changes(bench: Bench, server: Serving, gpu: str) -> None:
    """A larger share, a whole GPU, a smaller one, and a killed arbiter give the same numbers to the last bit."""
    alone = json.loads(Program([torch(), "-c", TRAINING, "6000"], DETERMINISTIC).lines()[-1])
    program = bench.start(torch(), TRAINING, "two", "6000")
    changes = 0
    while program.process.poll() is None:
        for milli in (700, 1000, 250):
            server.set({gpu: {"two": milli}})
            time.sleep(0.3)
        server.kill()
        server.start()
        changes += 1
    assert json.loads(program.lines()[-1]) == alone
    assert changes > 3


@pytest.mark.torch
def test_shim_is_found(server: Serving, gpu: str, tmp_path: Path) -> None:
    """The form at the driver's path, as in pods, is found without any variable."""
    ctypes.CDLL("libcuda.so.1")
    (driver,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line}
    sockets = server.socket(gpu, "one").parent
    shim = tmp_path / "shim" / "libcuda.so.1"
    building.command(sys.executable, building.GATE / "build.py", "shim", shim, "--driver", driver, "--sockets", sockets)
    folders = os.pathsep.join(filter(None, (str(shim.parent), os.environ.get("LD_LIBRARY_PATH"))))
    alone = json.loads(Program([torch(), "-c", TRAINING, "300"], DETERMINISTIC).lines()[-1])
    shared = json.loads(
        Program([torch(), "-c", TRAINING, "300"], {**DETERMINISTIC, "LD_LIBRARY_PATH": folders}).lines()[-1]
    )
    assert {**shared, "total": 0} == {**alone, "total": 0}
    assert shared["total"] == 2 << 30
    assert server.usage(gpu, "one")["account"]["guaranteed"] > 0


def test_numba_counts_right(bench: Bench) -> None:
    """Unmodified Numba runs twenty thousand short kernels in two shares at once."""
    running = [bench.start(str(python_of("numba")), NUMBA, share) for share in ("one", "two")]
    assert [program.lines()[-1] for program in running] == [str(20_000 * 4096)] * 2
    assert bench.used("one") > 0
    assert bench.used("two") > 0


def test_nvidia_smi_is_unaffected(bench: Bench, gpu: str) -> None:
    """It uses no CUDA, so the gate is not involved and it waits for no lease."""
    listed = subprocess.run(
        ["nvidia-smi", "-L"], env={**os.environ, **bench.environment("one")}, capture_output=True, text=True, check=True
    )
    assert gpu in listed.stdout
    assert not listed.stderr
    assert bench.used("one") == 0
