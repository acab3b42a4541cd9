"""Each kind of GPU memory counts for its share, is refused above the limit where a call takes it, and is given back."""

import sys
from pathlib import Path

import pytest

from tests.shares.serve import Serving

from .building import SANITIZERS, compile_program, gate_and_driver
from .place import GPU, MIB, Place, Program
from .standin.clients import ROOT
from .stub import Connection

PREAMBLE = f"""
import ctypes, os, sys
from ctypes import byref, c_int, c_uint64
from tests.gate.standin.driver import *
MIB = {MIB}
SIZE = 40 * MIB
call("cuInit", 0)
context = new("cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)

def tried(function, *arguments):
    try:
        function(*arguments)
    except Failed as error:
        return error.code
    return 0

def plain(size=SIZE):
    new("cuMemAlloc_v2", size)

def left():
    return memory()[0] // MIB

def say(*words):
    print(*words, flush=True)

def variables(size, *, file=False):
    text = f".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .global .align 4 .b8 big[{{size}}];\\n".encode()
    if file:
        with open(os.environ["IMAGE"], "wb") as image:
            image.write(text)
    return text

class Block(ctypes.Structure):  # CUDA_MEM_ALLOC_NODE_PARAMS
    _fields_ = [("type", c_int), ("handles", c_int), ("place", c_int), ("device", c_int), ("rest", c_int * 18),
                ("access", Pointer), ("count", Size), ("size", Size), ("at", c_uint64)]

def graph_of(size, frees):
    graph, node, block = new("cuGraphCreate", 0), c_uint64(), Block(1, 0, 1, 0, size=size)
    call("cuGraphAddMemAllocNode", byref(node), graph, None, 0, byref(block))
    if frees:
        call("cuGraphAddMemFreeNode", byref(c_uint64()), graph, byref(node), 1, block.at)
    return graph, new("cuGraphInstantiateWithFlags", graph, 0)

def captured(size):
    stream = new("cuStreamCreate", 1)
    call("cuStreamBeginCapture_v2", stream, 0)
    call("cuMemFreeAsync", new("cuMemAllocAsync", size, stream), stream)
    graph = c_uint64()
    call("cuStreamEndCapture", stream, byref(graph))
    return graph.value, new("cuGraphInstantiateWithFlags", graph.value, 0)

def keeps(pool, size=2**64 - 1):
    call("cuMemPoolSetAttribute", pool, 4, byref(c_uint64(size)))
"""

HELD = {
    "the heap of kernels": ("call('cuCtxSetLimit', 2, 48 * MIB)", "call('cuCtxSetLimit', 2, 8 * MIB)"),
    "what kernels print": ("call('cuCtxSetLimit', 1, 41 * MIB)", "call('cuCtxSetLimit', 1, MIB)"),
    "variables of a module": (
        "global module; module = new('cuModuleLoadData', variables(SIZE))",
        "call('cuModuleUnload', module)",
    ),
    "variables of a module from a file": (
        "global module; variables(SIZE, file=True); module = new('cuModuleLoad', os.environ['IMAGE'].encode())",
        "call('cuModuleUnload', module)",
    ),
    "variables of a library": (
        "global library; library = new('cuLibraryLoadData', variables(SIZE), None, None, 0, None, None, 0)",
        "call('cuLibraryUnload', library)",
    ),
    "a graph's memory that it does not free": (
        "global graph; graph = graph_of(SIZE, False); call('cuGraphLaunch', graph[1], 0)",
        "call('cuDevicePrimaryCtxReset_v2', 0); call('cuCtxSetCurrent', new('cuDevicePrimaryCtxRetain', 0))",
    ),
    "memory of another interface": (
        "global external\nfile = os.memfd_create('vulkan'); os.truncate(file, SIZE)\n"
        "external = new('cuImportExternalMemory', (c_uint64 * 13)(1, file, 0, SIZE))",
        "call('cuDestroyExternalMemory', external)",
    ),
    "pooled memory": (
        "global pooled; pooled = new('cuMemAllocAsync', SIZE, 0)",
        "call('cuMemFreeAsync', pooled, 0); call('cuCtxSynchronize')",
    ),
}


def _program(place: Place, text: str, **env: str) -> Program:
    own = {"PYTHONPATH": str(ROOT), "IMAGE": str(place.folder / "image")}
    return Program([sys.executable, "-c", PREAMBLE + text], place.env() | own | env)


def _output(place: Place, text: str, *, limit: int = 64 * MIB, **env: str) -> tuple[list[str], Connection]:
    """Return the output of a program of a share with that limit; it prints "board" to ask for the GPU's own figure."""
    with place.stub() as stub, _program(place, text, **env) as program:
        connection = stub.accept()
        connection.limit = limit
        connection.serve()
        return program.lines(), connection


BOARD = f"""
def board():  # what this process has of the GPU
    import struct
    with open(os.environ["JUPYTER_GPU_STANDIN"] + "/{GPU}.board", "rb") as file:
        slots = file.read(256 + 256 * 16)[256:]
    return sum(size for _, pid, size in struct.iter_unpack("<IIQ", slots) if pid == os.getpid()) // MIB
"""


def _function(name: str, body: str) -> str:
    lines = (line for part in body.split("\n") for line in part.split("; "))
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("kind", HELD)
def test_kind_counts_is_refused_and_is_given_back(place: Place, kind: str) -> None:
    """After 40 of 64 MiB no second 40 MiB can be had in any way, until the first are given back."""
    take, give = HELD[kind]
    program = f"""{BOARD}{_function("take", take)}{_function("give", give)}
say(left())
say(tried(take), left(), board())
say(tried(plain), board())
give()
say(left(), board())
say(tried(plain), tried(take), board())
"""
    said, connection = _output(place, program)
    assert said == ["64", "0 24 40", "2 40", "64 0", "0 2 40"]
    assert max(connection.needs) <= 64 * MIB + 40 * MIB  # the most it requested; more was never granted
    assert connection.size <= 64 * MIB


def test_stacks_of_all_threads_count(place: Place) -> None:
    """A stack of 2 KiB instead of 1 takes 216 MiB: one for each thread that the GPU can run at once."""
    program = f"{BOARD}\nsay(tried(call, 'cuCtxSetLimit', 0, 2048), left(), board())"
    assert _output(place, program, limit=128 * MIB)[0] == ["2 128 0"]
    assert _output(place, program, limit=512 * MIB)[0] == ["0 296 216"]


def test_contexts_beyond_the_first_count(place: Place) -> None:
    """Each counts as what the driver reserves for it; the last one left counts nothing, whichever it is."""
    program = f"""{BOARD}
made = []
for _ in range(3):
    say(tried(lambda: made.append(new("cuCtxCreate_v2", 0, 0))), left())
say(board())
call("cuDevicePrimaryCtxRelease_v2", 0)
say(left())
call("cuCtxDestroy_v2", made.pop())
say(left(), board())
call("cuCtxSetCurrent", new("cuDevicePrimaryCtxRetain", 0))
say(left(), board())
"""
    said, _ = _output(place, program, limit=512 * MIB, JUPYTER_GPU_STANDIN_CONTEXT="225")
    assert said == ["0 287", "0 62", "2 62", "675", "287", "512 225", "287 450"]


def test_managed_memory_may_exceed_the_share(place: Place) -> None:
    """Managed memory that fits counts; the rest is not refused, and takes none of the GPU."""
    program = f"""{BOARD}
small = new("cuMemAllocManaged", SIZE, 1)
say(left(), board())
large = new("cuMemAllocManaged", 600 * MIB, 1)
say(left(), board())
say(tried(plain, 24 * MIB), tried(plain, MIB), board())
call("cuMemFree_v2", large)
call("cuMemFree_v2", small)
say(left(), board())
"""
    assert _output(place, program)[0] == ["24 40", "24 40", "0 2 64", "40 24"]


POOLS = {
    "the default pool": "pool = new('cuDeviceGetDefaultMemPool', 0)",
    "a pool of its own": (
        "pool = new('cuMemPoolCreate', (c_int * 24)(1, 0, 1, 0)); call('cuDeviceSetMemPool', 0, pool)"
    ),
}


@pytest.mark.parametrize("pool", POOLS)
def test_memory_kept_by_a_pool_counts(place: Place, pool: str) -> None:
    """After a free it counts, is used again, or is released before anything is refused."""
    program = f"""{BOARD}{POOLS[pool]}
keeps(pool)
for _ in range(2):
    call("cuMemFreeAsync", new("cuMemAllocAsync", SIZE, 0), 0)
    call("cuCtxSynchronize")
    say(left(), board())
say(tried(plain), left(), board())
"""
    assert _output(place, program)[0] == ["24 40", "24 40", "0 24 40"]


def test_memory_kept_by_a_pool_is_used_first(place: Place) -> None:
    """Using it first means that nothing is refused and no other pool has to release what it keeps."""
    program = f"""{BOARD}{POOLS["a pool of its own"]}
keeps(pool)
keeps(new("cuDeviceGetDefaultMemPool", 0))
call("cuMemFreeAsync", new("cuMemAllocAsync", SIZE, 0), 0)
call("cuDeviceSetMemPool", 0, new("cuDeviceGetDefaultMemPool", 0))
call("cuMemFreeAsync", new("cuMemAllocAsync", 20 * MIB, 0), 0)
say(left(), board())
call("cuMemFreeAsync", new("cuMemAllocFromPoolAsync", SIZE, pool, 0), 0)
say(left(), board())
"""
    assert _output(place, program)[0] == ["4 60", "4 60"]


def test_pool_keeps_no_more_than_its_threshold(place: Place) -> None:
    """Memory above it is released at the next wait and does not count; a trim or the pool's end releases all."""
    program = f"""{BOARD}{POOLS["a pool of its own"]}
keeps(pool, 16 * MIB)
call("cuMemFreeAsync", new("cuMemAllocAsync", SIZE, 0), 0)
call("cuCtxSynchronize")
say(left(), board())
call("cuMemPoolTrimTo", pool, 4 * MIB)
say(left(), board())
call("cuMemPoolDestroy", pool)
say(left(), board())
"""
    assert _output(place, program)[0] == ["48 16", "60 4", "64 0"]


@pytest.mark.parametrize("make", ["graph_of(SIZE, True)", "captured(SIZE)", "child_of(SIZE)"])
def test_memory_kept_by_graphs_counts(place: Place, make: str) -> None:
    """It counts from the first launch until it is trimmed, also by another graph that would be refused."""
    program = f"""{BOARD}
def child_of(size):
    outer, params = new("cuGraphCreate", 0), (c_uint64 * 32)(4, 0, graph_of(size, True)[0])
    call("cuGraphAddNode", byref(c_uint64()), outer, None, 0, params)
    return outer, new("cuGraphInstantiateWithFlags", outer, 0)

graph, executable = {make}
say(left(), board())
for _ in range(2):
    call("cuGraphLaunch", executable, 0)
    say(left(), board())
other = graph_of(SIZE + MIB, True)
say(tried(call, "cuGraphUpload", other[1], 0), tried(call, "cuGraphLaunch", other[1], 0), left())
say(tried(call, "cuGraphLaunch", executable, 0), tried(plain), left(), board())
say(tried(call, "cuGraphLaunch", executable, 0), board())
call("cuMemFree_v2", *held)
say(tried(call, "cuGraphLaunch", executable, 0), left(), board())
call("cuDeviceGraphMemTrim", 0)
say(left(), board())
call("cuGraphExecDestroy", executable)
call("cuGraphDestroy", graph)
"""
    program = program.replace("tried(plain)", "tried(lambda: held.append(new('cuMemAlloc_v2', SIZE)))")
    said, _ = _output(place, "held = []\n" + program)
    assert said == ["64 0", "24 40", "24 40", "0 0 23", "0 0 24 40", "2 40", "0 24 40", "64 0"]


def test_graph_needs_the_peak_of_its_nodes(place: Place) -> None:
    """Two times 40 MiB in sequence fit into 64 MiB; 65 MiB do not, and take nothing."""
    program = f"""{BOARD}
def launches(size, times):
    stream, graph = new("cuStreamCreate", 1), c_uint64()
    call("cuStreamBeginCapture_v2", stream, 0)
    for _ in range(times):
        call("cuMemFreeAsync", new("cuMemAllocAsync", size, stream), stream)
    call("cuStreamEndCapture", stream, byref(graph))
    call("cuGraphLaunch", new("cuGraphInstantiateWithFlags", graph.value, 0), 0)

say(tried(launches, SIZE, 2), left(), board())
say(tried(launches, 65 * MIB, 1), left(), board())
"""
    assert _output(place, program)[0] == ["0 24 40", "2 64 0"]


def test_reset_frees_everything(place: Place) -> None:
    """Allocations from pools, which belong to no context, are freed too."""
    program = f"""{BOARD}
new("cuMemAllocAsync", 8 * MIB, 0)
new("cuMemAlloc_v2", 8 * MIB)
new("cuModuleLoadData", variables(8 * MIB))
call("cuCtxSetLimit", 2, 16 * MIB)
call("cuGraphLaunch", graph_of(8 * MIB, False)[1], 0)
say(left(), board())
call("cuDevicePrimaryCtxReset_v2", 0)
call("cuCtxSetCurrent", new("cuDevicePrimaryCtxRetain", 0))
say(left(), board())
"""
    assert _output(place, program)[0] == ["24 40", "64 0"]


def test_mapped_buffer_holds_external_memory(place: Place) -> None:
    """The memory counts after the import is destroyed, until the buffer is freed."""
    program = f"""{BOARD}
file = os.memfd_create("vulkan")
os.truncate(file, SIZE)
external = new("cuImportExternalMemory", (c_uint64 * 13)(1, file, 0, SIZE))
buffer = new("cuExternalMemoryGetMappedBuffer", external, (c_uint64 * 11)(0, MIB))
call("cuDestroyExternalMemory", external)
say(left(), board())
call("cuMemFree_v2", buffer)
say(left(), board())
"""
    assert _output(place, program)[0] == ["24 40", "64 0"]


def test_memory_of_another_process_counts_there(place: Place) -> None:
    """A process that opens a handle of an address is charged nothing, before and after."""
    give = """
at, handle = new("cuMemAlloc_v2", SIZE), ctypes.create_string_buffer(64)
call("cuIpcGetMemHandle", handle, at)
say(handle.raw.hex())
input()
say(left())
"""
    take = """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
at = new("cuIpcOpenMemHandle_v2", Handle.from_buffer_copy(bytes.fromhex(input())), 1)
say(left())
call("cuIpcCloseMemHandle", at)
say(left())
"""
    with place.stub() as stub, _program(place, give) as giver, _program(place, take) as taker:
        stub.keep_granting(limit=64 * MIB)
        taker.tell(giver.line())
        assert taker.lines() == ["64", "64"]
        giver.tell("go on")
        assert giver.lines() == ["24"]


def test_program_at_its_limit_can_load_kernels(place: Place) -> None:
    """A few variables are never refused; many are."""
    program = """
plain(64 * MIB)
say(tried(new, "cuModuleLoadData", variables(1000)), tried(new, "cuModuleLoadData", variables(2 * MIB)))
"""
    assert _output(place, program)[0] == ["0 2"]


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_threads_allocate_in_all_ways_at_once(
    tmp_path_factory: pytest.TempPathFactory, short: Path, sanitizer: str
) -> None:
    """Under sanitizers and with the real server, nothing is reported and in the end everything is given back."""
    flags = SANITIZERS[sanitizer]
    place = Place(gate_and_driver(tmp_path_factory.mktemp("kinds"), flags), short)
    compile_program(place.built, "kinds", flags, linked=True)
    with Serving(short, grace=100_000) as server:
        server.set({GPU: {"one": (500, 256 * MIB), "two": (500, 256 * MIB)}})
        env = place.env("one", server.socket(GPU, "one").parent) | {"TSAN_OPTIONS": "halt_on_error=1"}
        env |= {"ASAN_OPTIONS": "detect_leaks=0", "LD_LIBRARY_PATH": str(place.built.gate)}
        with Program([str(place.built.program("kinds")), "60"], env) as program:
            assert program.lines() == ["256 of 256"]
