"""Each kind of GPU memory counts for its share, is refused above the limit where a call takes it, and is given back."""

import sys
from pathlib import Path

import pytest

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


def _program(place: Place, text: str, folder: Path | None = None, **env: str) -> Program:
    own = {"PYTHONPATH": str(ROOT), "IMAGE": str((folder or place.folder) / "image")}
    return Program([sys.executable, "-c", PREAMBLE + text], place.env() | own | env)


def _said(place: Place, text: str, *, limit: int = 64 * MIB, **env: str) -> tuple[list[str], Connection]:
    """What a program of a share with that limit says; it says "board" where the GPU's own word is wanted."""
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
def test_it_counts_is_refused_and_is_given_back(place: Place, kind: str) -> None:
    """40 of 64 MiB by this way: no second time, by no other way, and again when it is given back."""
    take, give = HELD[kind]
    program = f"""{BOARD}{_function("take", take)}{_function("give", give)}
say(left())
say(tried(take), left(), board())
say(tried(plain), board())
give()
say(left(), board())
say(tried(plain), tried(take), board())
"""
    said, connection = _said(place, program)
    assert said == ["64", "0 24 40", "2 40", "64 0", "0 2 40"]
    assert max(connection.needs) <= 64 * MIB + 40 * MIB  # what it asked for; more was never granted
    assert connection.size <= 64 * MIB
