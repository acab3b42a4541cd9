"""Unmodified programs run on the stand-in driver."""

from pathlib import Path

import pytest

from tests.gate.standin.board import busy
from tests.gate.standin.clients import BINDINGS, python_of
from tests.gate.standin.conftest import Machine

pytestmark = pytest.mark.timeout(900)  # the first run installs them

CALLS = """
device = of(driver.cuDeviceGet(0))
context = of(driver.cuDevicePrimaryCtxRetain(device))
of(driver.cuCtxSetCurrent(context))
work = of(driver.cuModuleGetFunction(of(driver.cuModuleLoadData(b"image")), b"work_us2000"))
stream = of(driver.cuStreamCreate(0))
memory = of(driver.cuMemAlloc(1 << 20))
of(driver.cuMemcpyHtoD(memory, b"there and back", 14))
back = bytearray(14)
of(driver.cuMemcpyDtoH(back, memory, 14))
print(back.decode(), of(driver.cuMemGetInfo())[0])
of(driver.cuLaunchKernel(work, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0))
configuration = driver.CUlaunchConfig()
for dimension in "XYZ":
    setattr(configuration, f"gridDim{dimension}", 1)
    setattr(configuration, f"blockDim{dimension}", 1)
configuration.hStream = stream
of(driver.cuLaunchKernelEx(configuration, work, 0, 0))
of(driver.cuLaunchCooperativeKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, 0))
of(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
of(driver.cuLaunchKernel(work, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0))
graph = of(driver.cuGraphInstantiate(of(driver.cuStreamEndCapture(stream)), 0))
of(driver.cuGraphLaunch(graph, stream))
print(driver.cuStreamQuery(stream)[0].value)
of(driver.cuStreamSynchronize(stream))
print(driver.cuStreamQuery(stream)[0].value)
"""


@pytest.mark.parametrize("name", ["bindings12", "bindings13"])
def test_cuda_bindings_runs(machine: Machine, name: str) -> None:
    """Memory, three kinds of launches and a captured graph work through cuGetProcAddress alone."""
    out = machine.run(BINDINGS + CALLS.replace("us2000", "us500000"), python_of(name))
    assert out.splitlines() == [f"there and back {63 << 20}", "600", "0"]
    assert busy(machine.board().log()) == 4 * 500_000


NUMBA = """
import numpy
from numba import config, cuda

config.CUDA_LOW_OCCUPANCY_WARNINGS = False

@cuda.jit
def add_us2000(a, b):
    i = cuda.grid(1)
    if i < a.size:
        b[i] = a[i] + 1

@cuda.jit
def plain(a):
    a[cuda.grid(1)] = 0

there = cuda.to_device(numpy.arange(100.0))
back = cuda.device_array_like(there)
stream, event = cuda.stream(), cuda.event()
for _ in range(5):
    add_us2000[4, 32](there, back)
    plain[4, 32, stream](there)
event.record(stream)
event.synchronize()
cuda.synchronize()
print((there.copy_to_host() == numpy.arange(100.0)).all(), cuda.current_context().get_memory_info().total >> 20)
"""


def test_numba_runs(machine: Machine) -> None:
    """Kernels that its compiler made take the time that their names or the settings say."""
    assert machine.run(NUMBA, python_of("numba"), US="500") == "True 64\n"
    assert sorted(work.end - work.start for work in machine.board().log()) == [500] * 5 + [2000] * 5


PYCUDA = """
import numpy
import pycuda.driver as driver
from pycuda import gpuarray

driver.init()
context = driver.Device(0).make_context()
work = driver.module_from_buffer(b"image").get_function("work_us1000")
numbers = numpy.arange(10, dtype=numpy.float32)
memory = driver.mem_alloc(numbers.nbytes)
driver.memcpy_htod(memory, numbers)
back = numpy.empty_like(numbers)
driver.memcpy_dtoh(back, memory)
print((back == numbers).all(), (gpuarray.to_gpu(numbers).get() == numbers).all())
before, after = driver.Event(), driver.Event()
before.record()
work(memory, numpy.int32(3), block=(32, 1, 1), grid=(1, 1))
work.prepare("P").prepared_async_call((1, 1), (32, 1, 1), driver.Stream(), memory)
work._param_set_size(8)
work._set_block_shape(1, 1, 1)
work._launch_grid(1, 1)
work._launch()
after.record()
after.synchronize()
print(after.time_since(before) >= 4)
del memory
context.pop()
"""


def test_pycuda_runs(machine: Machine) -> None:
    """It links its symbols, and launches by functions that no other program uses."""
    assert machine.run(PYCUDA, python_of("pycuda")).split() == ["True"] * 3
    assert [work.end - work.start for work in machine.board().log()] == [1000] * 4


def test_two_programs_of_different_makers_share_a_board(machine: Machine) -> None:
    """Each sees the whole GPU after the other has ended, and both are on one board."""
    machine.run(BINDINGS + CALLS, python_of("bindings13"), OWNER="bindings")
    machine.run(NUMBA, python_of("numba"), OWNER="numba")
    board = machine.board()
    assert {work.owner for work in board.log()} == {"bindings", "numba"}
    assert board.sums().overlaps == 0


def test_environment_is_created_once() -> None:
    """The second time it is there already, in a folder that git ignores."""
    python: Path = python_of("bindings13")
    made = (python.parents[1] / "complete").stat().st_mtime_ns
    assert python_of("bindings13") == python
    assert (python.parents[1] / "complete").stat().st_mtime_ns == made
    assert python.parents[2].name == "clients"
