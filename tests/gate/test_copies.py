"""Copies and fills are work of the GPU: they ask for turns, are waited for, and are charged."""

import re
import sys
import time

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Revoke

from .building import GATE
from .place import MIB, Place, Program

COPIES = dict(re.findall(r'G\((cuMem(?:cpy|set)\w+), "(\w+)"', (GATE / "driver.h").read_text()))

PROGRAM = """
import ctypes, sys
from tests.gate.standin.driver import call, new, start
start()
SIZE = 1 << 20
a, b = (new("cuMemAlloc_v2", SIZE) for _ in range(2))
held = ctypes.create_string_buffer(SIZE)
here = ctypes.addressof(held)

class Volume(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_size_t * 2), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]

array = new("cuArrayCreate_v2", ctypes.byref(Volume((SIZE // 4, 1), 0x20, 1)))
context = new("cuCtxGetCurrent")
words = ctypes.c_uint64 * 25
flat = words(0, 0, 2, 0, a, 0, SIZE, 0, 0, 2, 0, b, 0, SIZE, SIZE, 1)
deep = words(0, 0, 0, 0, 2, 0, a, 0, 0, SIZE, 1, 0, 0, 0, 0, 2, 0, b, 0, 0, SIZE, 1, SIZE, 1, 1)
name, base, times, size = sys.argv[1], sys.argv[2].removesuffix("Async"), int(sys.argv[3]), int(sys.argv[4])
deep[22] = flat[14] = size
arguments = {
    "cuMemcpy": (b, a, size), "cuMemcpyHtoD": (a, here, size), "cuMemcpyDtoH": (here, a, size),
    "cuMemcpyDtoD": (b, a, size), "cuMemcpyPeer": (b, context, a, context, size),
    "cuMemcpyHtoA": (array, 0, here, size), "cuMemcpyAtoH": (here, array, 0, size),
    "cuMemcpyDtoA": (array, 0, a, size), "cuMemcpyAtoD": (a, array, 0, size),
    "cuMemcpyAtoA": (array, 0, array, 0, size),
    "cuMemcpy2D": (ctypes.byref(flat),), "cuMemcpy2DUnaligned": (ctypes.byref(flat),),
    "cuMemcpy3D": (ctypes.byref(deep),), "cuMemcpy3DPeer": (ctypes.byref(deep),),
    "cuMemsetD8": (a, 7, size), "cuMemsetD16": (a, 7, size // 2), "cuMemsetD32": (a, 7, size // 4),
    "cuMemsetD2D8": (a, size, 7, size, 1), "cuMemsetD2D16": (a, size, 7, size // 2, 1),
    "cuMemsetD2D32": (a, size, 7, size // 4, 1),
}[base]
print("ready", flush=True)
for _ in range(times):
    call(name, *arguments, *((0,) if "Async" in name else ()))
call("cuCtxSynchronize")
print("done")
"""
SLOW = {"JUPYTER_GPU_STANDIN_COPY": "100"}
"""Bytes in a microsecond from the host, and 8,000 on the GPU: so that little has to be copied."""


def _copies(place: Place, name: str, times: int, size: int, *, slow: bool = True) -> Program:
    program = [sys.executable, "-c", PROGRAM, name, COPIES[name], str(times), str(size)]
    return Program(program, place.env() | (SLOW if slow else {}))


def _simulated() -> list[str]:
    return [name for name in COPIES if "Batch" not in name and "Attributes" not in name]


@pytest.mark.parametrize("name", _simulated())
def test_each_copy_and_fill_asks_for_a_turn(place: Place, name: str) -> None:
    """A few small ones pass, as they are worth no turn; then one waits until the GPU is given."""
    with place.stub() as stub, _copies(place, name, 60, 16_000) as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert place.launches() <= 25
        connection.grant(FOREVER)
        assert program.lines() == ["ready", "done"]
    assert place.launches() == 60


def test_a_thousand_fills_wait_for_the_turn(place: Place) -> None:
    """While another share has the GPU, however small they are."""
    with place.stub() as stub, _copies(place, "cuMemsetD8Async", 1000, 8000) as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert program.line() == "ready"
        time.sleep(0.3)  # nothing happens meanwhile, and nobody says so
        assert place.launches() <= 25
        connection.grant(FOREVER)
        assert program.lines() == ["done"]
    assert place.launches() == 1000


def test_what_was_copied_is_waited_for_and_charged(place: Place) -> None:
    """A lease is given back when its copies have ended, and what they took is said."""
    with place.stub() as stub, _copies(place, "cuMemcpyHtoDAsync_v2", 20_000, MIB, slow=False):
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() >= 100)
        connection.say(Revoke(lease))
        done = connection.expect(Done, lambda done: done.number == lease)
        now = time.monotonic_ns() // 1000
        log = place.log()
        assert all(work.end <= now for work in log[:-2])  # these may have been too small to ask
        assert done.measured > 1000
