"""Memory of a simulated GPU: copies copy, and every kind of it counts against what the GPU has."""

import pytest

from tests.gate.standin.conftest import Machine

MIB = 1 << 20
PREAMBLE = """
import ctypes, os, sys
from tests.gate.standin.driver import *
MIB = 1 << 20
context = start()

def taken():
    free, total = memory()
    return total - free

def write(pointer, data):
    call("cuMemcpyHtoD_v2", pointer, data, len(data))

def read(pointer, size):
    data = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", data, pointer, size)
    return data.raw
"""

# Each takes 3 MiB into `got` and gives it back, with what a program would call.
KINDS = {
    "plain": ("got = new('cuMemAlloc_v2', 3 * MIB)", "call('cuMemFree_v2', got)"),
    "pitched": (
        "pitch = ctypes.c_size_t(); got = new('cuMemAllocPitch_v2', ctypes.byref(pitch), 1000, 3 * 1024, 4)",
        "call('cuMemFree_v2', got)",
    ),
    "in stream order": (
        "got = new('cuMemAllocAsync', 3 * MIB, 0)",
        "call('cuMemFreeAsync', got, 0); call('cuCtxSynchronize')",
    ),
    "of threads' streams": (
        "got = new('cuMemAllocAsync_ptsz', 3 * MIB, 0)",
        "call('cuMemFreeAsync_ptsz', got, 0); call('cuStreamSynchronize_ptsz', 0)",
    ),
    "of a pool": (
        "pool = new('cuMemPoolCreate', (ctypes.c_int * 24)(1, 0, 1, 0))\n"
        "got = new('cuMemAllocFromPoolAsync', 3 * MIB, pool, 0)",
        "call('cuMemFree_v2', got); call('cuMemPoolDestroy', pool)",
    ),
    "an array": (
        "shape = (ctypes.c_uint64 * 3)(1024, 768, 0x20 | 1 << 32)\ngot = new('cuArrayCreate_v2', shape)",
        "call('cuArrayDestroy', got)",
    ),
    "a deep array": (
        "shape = (ctypes.c_uint64 * 5)(256, 192, 16, 0x20 | 1 << 32, 0)\ngot = new('cuArray3DCreate_v2', shape)",
        "call('cuArrayDestroy', got)",
    ),
    "the heap of kernels": ("got = call('cuCtxSetLimit', 2, 11 * MIB)", "call('cuCtxSetLimit', 2, 8 * MIB)"),
    "variables of a module": (
        "got = new('cuModuleLoadData', b'.version 8.0\\n.global .align 4 .f32 big[768][1024];\\n')",
        "call('cuModuleUnload', got)",
    ),
    "of another interface": (
        "file = os.memfd_create('other'); os.truncate(file, 3 * MIB)\n"
        "got = new('cuImportExternalMemory', (ctypes.c_uint64 * 13)(1, file, 0, 3 * MIB))",
        "call('cuDestroyExternalMemory', got)",
    ),
    "mapped": (
        "place = (ctypes.c_int * 8)(1, 1, 1, 0)\nparts = [new('cuMemCreate', 2 * MIB, place, 0) for _ in range(2)]\n"
        "got = new('cuMemAddressReserve', 4 * MIB, 0, 0, 0)\n"
        "for i, part in enumerate(parts): call('cuMemMap', got + 2 * i * MIB, 2 * MIB, 0, part, 0)\n"
        "for part in parts: call('cuMemRelease', part)\n"
        "call('cuMemSetAccess', got, 4 * MIB, (ctypes.c_int * 3)(1, 0, 3), 1)",
        "call('cuMemUnmap', got, 4 * MIB); call('cuMemAddressFree', got, 4 * MIB)",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_counts(machine: Machine, kind: str) -> None:
    """It counts while it exists, for the program and on the board, and is refused when the GPU is full."""
    take, give = KINDS[kind]
    out = machine.run(
        f"""{PREAMBLE}
{take}
print(taken())
{give}
print(taken())
rest = new("cuMemAlloc_v2", 62 * MIB)
try:
    {take.splitlines()[0] if kind != "mapped" else "place = (ctypes.c_int * 8)(1, 1, 1, 0)"}
    {([*take.splitlines(), ""])[1] if kind != "mapped" else "new('cuMemCreate', 4 * MIB, place, 0)"}
except Failed as error:
    print(error.code)
print(taken())
"""
    ).split()
    expected = 4 * MIB if kind == "mapped" else 3 * MIB
    assert out == [str(expected), "0", "2", str(62 * MIB)]


def test_mipmaps_count_with_all_their_levels(machine: Machine) -> None:
    """Each level is half as wide and high as the previous one."""
    out = machine.run(
        f"""{PREAMBLE}
mipmap = new("cuMipmappedArrayCreate", (ctypes.c_uint64 * 5)(1024, 1024, 0, 0x01 | 1 << 32, 0), 3)
print(taken())
shape = (ctypes.c_uint64 * 5)()
call("cuArray3DGetDescriptor_v2", shape, new("cuMipmappedArrayGetLevel", mipmap, 2))
print(*shape[:3])
call("cuMipmappedArrayDestroy", mipmap)
print(taken())
"""
    ).splitlines()
    assert out == [str(MIB + MIB // 4 + MIB // 16), "256 256 0", "0"]


@pytest.mark.parametrize("allocate", ["cuMemHostAlloc", "cuMemAllocHost_v2"])
def test_host_memory_does_not_count(machine: Machine, allocate: str) -> None:
    """It may exceed the GPU's memory."""
    flags = ", 0" if allocate == "cuMemHostAlloc" else ""
    out = machine.run(
        f"{PREAMBLE}\ngot = new({allocate!r}, 128 * MIB{flags}); print(taken()); call('cuMemFreeHost', got)"
    )
    assert out == "0\n"


def test_copies_copy(machine: Machine) -> None:
    """Data copied to the device comes back, by every function."""
    out = machine.run(
        f"""{PREAMBLE}
one, two = new("cuMemAlloc_v2", 4096), new("cuMemAlloc_v2", 4096)
data = bytes(range(256)) * 16
write(one, data)
for copy, *extra in [("cuMemcpyDtoD_v2",), ("cuMemcpy",), ("cuMemcpyAsync", 0), ("cuMemcpyDtoDAsync_v2_ptsz", 0)]:
    call("cuMemsetD8_v2", two, 0, 4096)
    call(copy, two, one, 4096, *extra)
    print(read(two, 4096) == data)
call("cuMemsetD32_v2", two, 0x01020304, 1024)
print(read(two, 4096) == bytes([4, 3, 2, 1]) * 1024)
call("cuMemsetD2D8_v2", two, 64, 7, 3, 2)
print(read(two, 68) == b"\\7\\7\\7" + bytes([1]) + bytes([4, 3, 2, 1]) * 15 + b"\\7\\7\\7" + bytes([1]))
"""
    )
    assert out.split() == ["True"] * 6


def test_boxes_are_copied(machine: Machine) -> None:
    """A part of rows goes into an array, and from there into other memory."""
    out = machine.run(
        f"""{PREAMBLE}
array = new("cuArrayCreate_v2", (ctypes.c_uint64 * 3)(8, 4, 0x01 | 1 << 32))
source = bytes(range(64))
class Place(ctypes.Structure):
    _fields_ = [("x", Size), ("y", Size), ("type", ctypes.c_int), ("host", ctypes.c_char_p),
                ("device", ctypes.c_uint64), ("array", ctypes.c_uint64), ("pitch", Size)]
class Copy(ctypes.Structure):
    _fields_ = [("source", Place), ("target", Place), ("width", Size), ("height", Size)]
device = new("cuMemAlloc_v2", 64)
call("cuMemsetD8_v2", device, 255, 64)
there, back = Place(x=1, y=1, type=1, host=source, pitch=8), Place(x=4, type=2, device=device, pitch=16)
call("cuMemcpy2D_v2", ctypes.byref(Copy(there, Place(type=3, array=array), 3, 2)))
call("cuMemcpy2DAsync_v2", ctypes.byref(Copy(Place(type=3, array=array), back, 3, 2)), 0)
print(list(read(device, 24)))
"""
    )
    blank = [255]
    assert out.strip() == str(blank * 4 + [9, 10, 11] + blank * 13 + [17, 18, 19] + blank)


def test_two_programs_share_a_gpu_s_memory(machine: Machine) -> None:
    """Both see what is left, and what one had is free when it has ended, however it ended."""
    hold = f"{PREAMBLE}\nnew('cuMemAlloc_v2', int(input()) * MIB); print('has it', flush=True); input()"
    holders = []
    for size in 40, 20:
        holders.append(machine.start(hold))
        assert holders[-1].stdin
        assert holders[-1].stdout
        holders[-1].stdin.write(f"{size}\n")
        holders[-1].stdin.flush()
        assert holders[-1].stdout.readline() == "has it\n"
    assert machine.board().live() == {holders[0].pid: 40 * MIB, holders[1].pid: 20 * MIB}
    program = f"{PREAMBLE}\nprint(memory()[0]); print(raw('cuMemAlloc_v2', ctypes.byref(ctypes.c_uint64()), 8 * MIB))"
    assert machine.run(program).split() == [str(4 * MIB), "2"]
    for holder in holders:
        holder.kill()
        holder.communicate()
    assert machine.run(program).split() == [str(64 * MIB), "0"]
    assert machine.board().live() == {}


@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2", "cuCtxDestroy_v2"])
def test_memory_of_a_context_ends_with_it(machine: Machine, end: str) -> None:
    """Its allocations are free again; another context's stay."""
    out = machine.run(
        f"""{PREAMBLE}
for size in 1, 2, 3:
    new("cuMemAlloc_v2", size * MIB)
primary = new("cuDevicePrimaryCtxRetain", 0)
call("cuCtxPushCurrent_v2", primary)
new("cuMemAllocManaged", 4 * MIB, 1)
print(taken() // MIB)
call({end!r}, context if {end!r} == "cuCtxDestroy_v2" else 0)
print(taken() // MIB)
"""
    )
    assert out.split() == ["10", "4" if end == "cuCtxDestroy_v2" else "6"]


def test_pointers_know_where_they_are(machine: Machine) -> None:
    """The driver reports a pointer's range and kind of memory."""
    out = machine.run(
        f"""{PREAMBLE}
got = new("cuMemAlloc_v2", 1000)
base, size = ctypes.c_uint64(), Size()
call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), got + 999)
print(base.value == got, size.value)
kind, managed = ctypes.c_int(), ctypes.c_int()
for pointer in got, new("cuMemAllocManaged", 10, 1), new("cuMemHostAlloc", 10, 0):
    call("cuPointerGetAttribute", ctypes.byref(kind), 2, pointer)
    call("cuPointerGetAttribute", ctypes.byref(managed), 8, pointer)
    print(kind.value, managed.value)
print(raw("cuMemFree_v2", got + 1), raw("cuMemFree_v2", got), raw("cuMemFree_v2", got), raw("cuMemFree_v2", 0))
"""
    ).splitlines()
    assert out == ["True 1000", "2 0", "2 1", "1 0", "1 0 1 0"]


def test_memory_kept_by_a_pool_is_taken(machine: Machine) -> None:
    """It is taken until a trim or a wait, which releases what is above the threshold."""
    out = machine.run(
        f"""{PREAMBLE}
pool = new("cuDeviceGetDefaultMemPool", 0)
for keeps in 0, 2 * MIB:
    call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(ctypes.c_uint64(keeps)))
    call("cuMemFreeAsync", new("cuMemAllocAsync", 3 * MIB, 0), 0)
    print(taken() // MIB)
    call("cuCtxSynchronize")
    print(taken() // MIB)
new("cuMemAllocAsync", MIB, 0)
print(taken() // MIB)
call("cuMemPoolTrimTo", pool, 0)
print(taken() // MIB)
"""
    )
    assert out.split() == ["3", "0", "3", "2", "2", "1"]


def test_managed_memory_may_exceed_the_gpu(machine: Machine) -> None:
    """The excess is in the host's memory, and all of it if the program advises so."""
    out = machine.run(
        f"""{PREAMBLE}
first, second = (new("cuMemAllocManaged", 48 * MIB, 1) for _ in range(2))
print(taken() // MIB)
call("cuMemAdvise", first, 48 * MIB, 3, ctypes.c_int(-1))
print(taken() // MIB)
call("cuMemFree_v2", second)
print(taken() // MIB)
"""
    )
    assert out.split() == ["64", "16", "0"]


def test_context_takes_the_memory_set_in_the_environment(machine: Machine) -> None:
    """It does so while it exists."""
    program = f"""{PREAMBLE}
print(taken() // MIB)
call("cuCtxDestroy_v2", context)
call("cuCtxSetCurrent", new("cuDevicePrimaryCtxRetain", 0))
print(taken() // MIB, raw("cuCtxCreate_v2", ctypes.byref(ctypes.c_uint64()), 0, 0))
"""
    assert machine.run(program, CONTEXT="40").split() == ["40", "40", "2"]


def test_graphs_take_memory(machine: Machine) -> None:
    """A launch takes it, it is kept for the next one and trimmed; more than there is is refused."""
    out = machine.run(
        f"""{PREAMBLE}
class Block(ctypes.Structure):
    _fields_ = [("pool", ctypes.c_int * 22), ("access", Pointer), ("count", Size), ("size", Size),
                ("at", ctypes.c_uint64)]
def graph_of(size):
    graph, node, block = new("cuGraphCreate", 0), ctypes.c_uint64(), Block(size=size)
    for _ in range(2):
        call("cuGraphAddMemAllocNode", ctypes.byref(node), graph, None, 0, ctypes.byref(block))
        call("cuGraphAddMemFreeNode", ctypes.byref(node), graph, ctypes.byref(node), 1, block.at)
    return new("cuGraphInstantiateWithFlags", graph, 0)
def reserved():
    value = ctypes.c_uint64()
    call("cuDeviceGetGraphMemAttribute", 0, 2, ctypes.byref(value))
    return value.value // MIB
one = graph_of(3 * MIB)
print(taken() // MIB, reserved())
for _ in range(2):
    call("cuGraphLaunch", one, 0)
    print(taken() // MIB, reserved())
print(raw("cuGraphLaunch", graph_of(65 * MIB), 0), taken() // MIB)
call("cuDeviceGraphMemTrim", 0)
print(taken() // MIB, reserved())
"""
    )
    assert out.splitlines() == ["0 0", "3 3", "3 3", "2 3", "0 0"]


def test_pool_counts_the_memory_it_gave(machine: Machine) -> None:
    """It reports current and peak use; the default pool exists from the start."""
    out = machine.run(
        f"""{PREAMBLE}
pool = new("cuDeviceGetDefaultMemPool", 0)
got = [new("cuMemAllocAsync", MIB, 0) for _ in range(3)]
call("cuMemFreeAsync", got[0], 0)
value = ctypes.c_uint64()
for attribute in 7, 8:
    call("cuMemPoolGetAttribute", pool, attribute, ctypes.byref(value))
    print(value.value // MIB)
"""
    )
    assert out.split() == ["2", "3"]


def test_memory_is_shared_with_another_process(machine: Machine) -> None:
    """By a handle of an address, or a file of mapped memory, both see the same bytes, which count once."""
    give = f"""{PREAMBLE}
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
got = new("cuMemAlloc_v2", MIB)
write(got, b"before")
handle = ctypes.create_string_buffer(64)
call("cuIpcGetMemHandle", handle, got)
print(handle.raw.hex(), flush=True)
input()
print(read(got, 6), taken())
"""
    take = f"""{PREAMBLE}
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
handle = Handle.from_buffer_copy(bytes.fromhex(input()))
got = new("cuIpcOpenMemHandle_v2", handle, 1)
print(read(got, 6), taken())
write(got, b"after!")
call("cuIpcCloseMemHandle", got)
"""
    giver, taker = machine.start(give), machine.start(take)
    assert giver.stdout
    out, error = taker.communicate(giver.stdout.readline(), timeout=60)
    assert out == f"b'before' {MIB}\n", error
    assert giver.communicate("\n", timeout=60)[0] == f"b'after!' {MIB}\n"


def test_mapped_memory_is_shared_by_a_file(machine: Machine) -> None:
    """An exported handle is a file descriptor, and what is imported from it counts where it was made."""
    out = machine.run(
        f"""{PREAMBLE}
place = (ctypes.c_int * 8)(1, 1, 1, 0)
made = new("cuMemCreate", 2 * MIB, place, 0)
file = ctypes.c_int()
call("cuMemExportToShareableHandle", ctypes.byref(file), made, 1, 0)
imported = new("cuMemImportFromShareableHandle", file.value, 1)
pointers = []
for handle in made, imported:
    pointers.append(new("cuMemAddressReserve", 2 * MIB, 0, 0, 0))
    call("cuMemMap", pointers[-1], 2 * MIB, 0, handle, 0)
    call("cuMemSetAccess", pointers[-1], 2 * MIB, (ctypes.c_int * 3)(1, 0, 3), 1)
write(pointers[0], b"shared")
print(read(pointers[1], 6), taken())
print(raw("cuMemMap", pointers[1], 2 * MIB, 0, made, 0), raw("cuMemCreate", ctypes.byref(file), 3, place, 0))
for handle, pointer in (imported, pointers[1]), (made, pointers[0]):
    call("cuMemRelease", handle)
    call("cuMemUnmap", pointer, 2 * MIB)
    print(taken())
"""
    ).splitlines()
    assert out == [f"b'shared' {2 * MIB}", "1 1", str(2 * MIB), "0"]
