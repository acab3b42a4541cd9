"""Unmodified programs allocate in their own ways, and get no more than their share."""

import pytest

from .place import MIB, Place, Program
from .standin.clients import python_of

pytestmark = pytest.mark.timeout(900)  # the first run installs them

BINDINGS = """
from cuda.bindings import driver

def of(result):
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values

def left():
    return of(driver.cuMemGetInfo())[0] >> 20

MIB = 1 << 20
of(driver.cuInit(0))
of(driver.cuCtxSetCurrent(of(driver.cuDevicePrimaryCtxRetain(0))))
heap, threshold = driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
print(driver.cuCtxSetLimit(heap, 73 * MIB)[0].value, left())
of(driver.cuCtxSetLimit(heap, 24 * MIB))
print(left())
image = b".version 8.0\\n.visible .global .align 4 .b8 big[%d];\\n"
module = of(driver.cuModuleLoadData(image % (16 * MIB)))
print(driver.cuModuleLoadData(image % (40 * MIB))[0].value, left())
pool = of(driver.cuDeviceGetMemPool(0))
of(driver.cuMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(2**64 - 1)))
stream = of(driver.cuStreamCreate(1))
of(driver.cuMemFreeAsync(of(driver.cuMemAllocAsync(8 * MIB, stream)), stream))
of(driver.cuStreamSynchronize(stream))
print(left())
graph, params = of(driver.cuGraphCreate(0)), driver.CUDA_MEM_ALLOC_NODE_PARAMS()
params.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
params.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
params.poolProps.location.id = 0
params.bytesize = 8 * MIB
node = of(driver.cuGraphAddMemAllocNode(graph, None, 0, params))
of(driver.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))
of(driver.cuGraphLaunch(of(driver.cuGraphInstantiate(graph, 0)), stream))
print(left())
of(driver.cuDeviceGraphMemTrim(0))
of(driver.cuMemPoolTrimTo(pool, 0))
of(driver.cuModuleUnload(module))
print(left())
"""

NUMBA = """
import numpy
from numba import config, cuda

config.CUDA_LOW_OCCUPANCY_WARNINGS = False

@cuda.jit
def fill(a):
    a[cuda.grid(1)] = 1

large = cuda.managed_array(100 << 20, dtype=numpy.uint8)
fill[4, 32](large)
cuda.synchronize()
print(cuda.current_context().get_memory_info().free >> 20)
"""

PYCUDA = """
import pycuda.driver as driver

driver.init()
context = driver.Device(0).make_context()
context.set_limit(driver.limit.PRINTF_FIFO_SIZE, 17 << 20)
print(driver.mem_get_info()[0] >> 20)
try:
    context.set_limit(driver.limit.PRINTF_FIFO_SIZE, 66 << 20)
except driver.MemoryError:
    print("refused")
kept = driver.module_from_buffer(b".version 8.0\\n.global .align 4 .b8 big[%d];\\n" % (16 << 20))
print(driver.mem_get_info()[0] >> 20)
context.pop()
"""


def _output(place: Place, client: str, text: str) -> list[str]:
    with place.stub() as stub, Program([str(python_of(client)), "-c", text], place.env()) as program:
        connection = stub.accept()
        connection.limit = 64 * MIB
        connection.serve()
        return program.lines()


@pytest.mark.parametrize("client", ["bindings12", "bindings13"])
def test_cuda_bindings_stays_within_its_share(place: Place, client: str) -> None:
    """Heaps, variables, kept pools and graphs count; it finds all functions by cuGetProcAddress."""
    assert _output(place, client, BINDINGS) == ["2 64", "48", "2 32", "24", "16", "48"]


def test_numba_may_allocate_more_managed_memory_than_its_share(place: Place) -> None:
    """A managed array that is larger is not refused, and counts nothing."""
    assert _output(place, "numba", NUMBA) == ["64"]


def test_pycuda_stays_within_its_share(place: Place) -> None:
    """The printf buffer and variables count; its symbols are linked."""
    assert _output(place, "pycuda", PYCUDA) == ["48", "refused", "32"]
