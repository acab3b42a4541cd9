"""Batches of copies, prefetches, decompression, and stream memory operations: what they do, take and refuse."""

import pytest

from tests.gate.copying import packed
from tests.gate.standin.conftest import Machine

PREAMBLE = """
import ctypes
from tests.gate.standin.driver import *

start()
SIZE = 1 << 20
a, b = (new("cuMemAlloc_v2", SIZE) for _ in range(2))
managed = new("cuMemAllocManaged", SIZE, 1)
stream = new("cuStreamCreate", 1)
kept = []

def words(*values):
    kept.append((ctypes.c_uint64 * len(values))(*values))
    return ctypes.byref(kept[-1])

def filled(at, value):
    call("cuMemsetD8_v2", at, value, SIZE)

def bytes_at(at, size=SIZE):
    out = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", ctypes.addressof(out), at, size)
    return out.raw
"""
INVALID = 1


def _said(machine: Machine, program: str, rate: int = 25000) -> list[str]:
    return machine.run(PREAMBLE + program, COPY=str(rate)).split()


@pytest.mark.parametrize(
    ("call", "first", "rest"),
    [
        ("'cuMemcpyBatchAsync', words(a, a + 64), words(b, b + 64), words(64, 32), 2, "
         "words(1, 0, 0), words(0), 1, None, stream",
         96, 4),
        ("'cuMemcpyBatchAsync_v2', words(a), words(b), words(96), 1, words(3, 0, 0), words(0), 1, stream", 96, 4),
        ("'cuMemcpyWithAttributesAsync', a, b, 96, words(2, 0, 0), 0", 96, 4),
        ("'cuMemcpy3DBatchAsync_v2', 1, words(1, b, 0, 0, 0, 1, a, 0, 0, 0, 48, 2, 1, 1), 0, stream", 96, 4),
        ("'cuMemcpy3DBatchAsync', 1, words(1, b, 16, 2, 0, 1, a, 0, 0, 0, 16, 2, 3, 1), None, 0, stream", 96, 4),
        ("'cuMemcpy3DWithAttributesAsync', words(1, b, 0, 0, 0, 1, a, 0, 0, 0, 96, 1, 1, 1), 0, 0", 96, 4),
    ],
)  # fmt: skip
def test_batches_copy_the_named_ranges(machine: Machine, call: str, first: int, rest: int) -> None:
    """Nothing beyond is copied."""
    (out,) = _said(machine, f"filled(a, 1); filled(b, 2); call({call})\nprint(bytes_at(a, {first + rest}).hex())")
    assert out == "02" * first + "01" * rest


def test_box_has_rows_and_layers(machine: Machine) -> None:
    """Two rows of 4 bytes are copied from memory with rows of 8 into an array of 4-byte elements, and back."""
    program = """
class Volume(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_size_t * 2), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]

array = new("cuArrayCreate_v2", ctypes.byref(Volume((4, 2), 0x20, 1)))
data = ctypes.create_string_buffer(bytes(range(64)), 64)
call("cuMemcpyHtoD_v2", b, ctypes.addressof(data), 64)
filled(a, 0)
call("cuMemcpy3DBatchAsync_v2", 1, words(1, b, 8, 2, 0, 1, a, 4, 2, 0, 4, 2, 1, 1), 0, stream)
print(bytes_at(a, 9).hex())
call("cuMemcpy3DBatchAsync_v2", 1, words(1, b, 8, 2, 0, 2, array, 1, 0, 0, 2, 2, 1, 1), 0, stream)
call("cuMemcpy3DBatchAsync_v2", 1, words(2, array, 2, 0, 0, 1, a, 0, 0, 0, 1, 2, 1, 1), 0, stream)
print(bytes_at(a, 9).hex())
"""
    assert _said(machine, program) == ["0001020308090a0b00", "040506072425262700"]


@pytest.mark.parametrize(
    "call",
    [
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(96), 1, words(1, 0, 0), words(0), 1, 0",  # legacy
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(96), 1, words(0, 0, 0), words(0), 1, stream",
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(96), 1, words(1, 0, 0), words(1), 1, stream",
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(96), 1, words(1, 0, 0), words(0), 0, stream",
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(0), 1, words(1, 0, 0), words(0), 1, stream",
        "'cuMemcpyBatchAsync_v2', words(a), words(b), words(0), 0, words(1, 0, 0), words(0), 1, stream",
        "'cuMemcpyWithAttributesAsync', a, b, 96, None, stream",
        "'cuMemcpy3DBatchAsync_v2', 1, words(1, b, 0, 0, 0, 1, a, 0, 0, 0, 0, 2, 1, 1), 0, stream",
        "'cuMemcpy3DBatchAsync_v2', 1, words(1, b, 4, 0, 0, 1, a, 0, 0, 0, 8, 2, 1, 1), 0, stream",
        "'cuMemcpy3DBatchAsync_v2', 1, words(3, b, 0, 0, 0, 1, a, 0, 0, 0, 8, 2, 1, 1), 0, stream",
        "'cuMemcpy3DBatchAsync_v2', 1, words(1, b, 0, 0, 0, 1, a, 0, 0, 0, 8, 2, 1, 1), 1, stream",
        "'cuMemPrefetchAsync_v2', a, 96, 1, 0, stream",  # not managed
        "'cuMemPrefetchAsync_v2', managed, SIZE + 1, 1, 0, stream",
        "'cuMemPrefetchAsync_v2', managed, 96, 0, 0, stream",
        "'cuMemPrefetchAsync_v2', managed, 96, 1, 1, stream",
        "'cuMemPrefetchBatchAsync', words(managed), words(96), 1, words(1), words(0), 1, 0, 0",
        "'cuMemBatchDecompressAsync', words(8, 8, b, a, b, 1, 0, 0), 1, 0, None, stream",  # deflate
        "'cuMemBatchDecompressAsync', words(8, (1 << 22) + 1, b, a, b, 4, 0, 0), 1, 0, None, stream",
        "'cuStreamWriteValue32', stream, a + 2, 7, 0",
        "'cuStreamWriteValue64', stream, a + 4, 7, 0",
        "'cuStreamWriteValue32', stream, managed, 7, 0",
        "'cuStreamWriteValue32_v2', stream, a, 7, 1",  # a flag of the first form
        "'cuStreamWaitValue32', stream, a, 7, 4",
        "'cuStreamBatchMemOp', stream, 1, words(6, 0, 0, 0, 0, 0), 0",  # a barrier is of the second form
        "'cuStreamBatchMemOp_v2', stream, 256, words(*(2, a, 7, 0, 0, 0) * 256), 0",
        "'cuStreamBatchMemOp_v2', stream, 1, words(2, a, 7, 0, 0, 0), 1",
    ],
)  # fmt: skip
def test_invalid_calls_are_refused(machine: Machine, call: str) -> None:
    """Nothing is done then."""
    program = f"filled(a, 1); filled(b, 2)\nprint(raw({call}), bytes_at(a) == bytes([1]) * SIZE)"
    assert _said(machine, program) == [str(INVALID), "True"]


def test_invalid_element_is_named(machine: Machine) -> None:
    """The first form of a batch names it; the largest number stands for the batch as a whole."""
    program = """
which = ctypes.c_uint64(7)
at = ctypes.byref(which)
raw("cuMemcpyBatchAsync", words(a, a, 0), words(b, b, b), words(1, 1, 1), 3, words(1, 0, 0), words(0), 1, at, stream)
print(which.value)
raw("cuMemcpyBatchAsync", words(a), words(b), words(1), 1, words(9, 0, 0), words(0), 1, at, stream)
print(which.value)
raw("cuMemBatchDecompressAsync", words(8, 8, b, a, b, 4, 0, 0, 8, 8, b, a, b, 2, 0, 0), 2, 0, at, stream)
print(which.value)
"""
    assert _said(machine, program) == ["2", str(2**64 - 1), "1"]


@pytest.mark.parametrize(
    ("call", "took"),
    [
        ("'cuMemPrefetchAsync', managed, 200_000, 0, stream", 2000),
        ("'cuMemPrefetchAsync_ptsz', managed, 200_000, -1, 0", 2000),
        ("'cuMemPrefetchBatchAsync', words(managed, managed), words(100_000, 50_000), 2, "
         "words(1), words(0), 1, 0, stream", 1500),
        ("'cuMemcpyBatchAsync_v2', words(a, a), words(b, b), words(800_000, 80_000), 2, "
         "words(1, 0, 0), words(0), 1, stream", 110),
        ("'cuMemcpy3DBatchAsync_v2', 1, words(1, b, 0, 0, 0, 1, a, 0, 0, 0, 1000, 80, 10, 1), 0, stream", 100),
        ("'cuStreamWriteValue64', stream, a, 7, 0", 0),
    ],
)  # fmt: skip
def test_duration_follows_the_bytes(machine: Machine, call: str, took: int) -> None:
    """100 bytes take a microsecond from the host, 8,000 on the GPU; those of a batch add up."""
    _said(machine, f"call({call})\ncall('cuCtxSynchronize')", rate=100)
    assert [work.end - work.start for work in machine.board().log()] == ([took] if took else [])


def test_discarded_memory_is_gone(machine: Machine) -> None:
    """The rest of the memory stays."""
    program = """
filled(managed, 3)
call("cuMemDiscardAndPrefetchBatchAsync", words(managed), words(64), 1, words(1), words(0), 1, 0, stream)
print(bytes_at(managed, 65).hex())
"""
    assert _said(machine, program) == ["00" * 64 + "03"]


def test_blocks_are_decompressed(machine: Machine) -> None:
    """The device's attribute lists LZ4; the bytes written are counted, and broken input writes none."""
    block, broken = packed(1000), packed(1000)[:-2]
    program = f"""
for at, block in ((0, {block!r}), (1 << 16, {broken!r})):
    data = ctypes.create_string_buffer(block, len(block))
    call("cuMemcpyHtoD_v2", b + at, ctypes.addressof(data), len(block))
filled(a, 1)
made = a + SIZE - 16
call("cuMemBatchDecompressAsync", words({len(block)}, 1000, made, b, a, 4, 0, 0,
     {len(broken)}, 1000, made + 4, b + (1 << 16), a + 2000, 4, 0, 0), 2, 0, None, stream)
print(bytes_at(a, 1001).decode("latin-1").replace(chr(1), "."), *memoryview(bytes_at(made, 8)).cast("I"))
value = ctypes.c_int()
call("cuDeviceGetAttribute", ctypes.byref(value), 136, 0)
print(value.value)
"""
    assert _said(machine, program) == ["x" * 1000 + ".", "1000", "0", "4"]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("'cuStreamWriteValue32', stream, a, 0x1_0000_0007, 0", "0700000001010101"),
        ("'cuStreamWriteValue32_v2_ptsz', 0, a, 7, 0", "0700000001010101"),
        ("'cuStreamWriteValue64', stream, a, 7, 1", "0700000000000000"),
        ("'cuStreamBatchMemOp', stream, 2, words(2, a, 7, 0, 0, 0, 2, a + 4, 8, 0, 0, 0), 0", "0700000008000000"),
        ("'cuStreamBatchMemOp_v2', stream, 2, words(6, 0, 0, 0, 0, 0, 5, a, 9, 0, 0, 0), 0", "0900000000000000"),
    ],
)
def test_words_are_written_in_stream_order(machine: Machine, call: str, found: str) -> None:
    """They are written after the kernel that precedes them."""
    program = f"""
filled(a, 1)
launch(kernel("work_us100000"), stream=stream)
call({call})
word = ctypes.c_uint64.from_address(a)
before = word.value.to_bytes(8, "little").hex()
call("cuCtxSynchronize")
print(before if "ptsz" not in {call!r} else "01" * 8, word.value.to_bytes(8, "little").hex())
"""
    assert _said(machine, program) == ["01" * 8, found]


@pytest.mark.parametrize(
    ("wait", "misses", "meets"),
    [
        ("32', one, a, 5, 0", "4", "6"), ("32', one, a, 5, 1", "6", "5"), ("32', one, a, 6, 2", "9", "4"),
        ("64', one, a, 5, 0", "-1", "5"), ("32_v2', one, a, 1, 1 | 1 << 30", "0", "1"),
        ("32', one, a, 0xff, 3", "0xffffff00", "0"),
    ],
)  # fmt: skip
def test_stream_waits_for_a_word(machine: Machine, wait: str, misses: str, meets: str) -> None:
    """It waits, with what follows, until another stream writes one that fits; other streams continue."""
    program = f"""
one, other = (new("cuStreamCreate", 1) for _ in range(2))
width = {64 if wait.startswith("64") else 32}
call(f"cuStreamWriteValue{{width}}", other, a, {misses}, 0)
call('cuStreamWaitValue{wait})
call("cuStreamWriteValue32", one, a + 8, 1, 0)
call("cuStreamWriteValue32", other, a + 16, 1, 0)
call("cuStreamSynchronize", other)
print(raw("cuStreamQuery", one), raw("cuStreamQuery", other), ctypes.c_uint32.from_address(a + 8).value)
call(f"cuStreamWriteValue{{width}}", other, a, {meets}, 0)
call("cuStreamSynchronize", one)
print(ctypes.c_uint32.from_address(a + 8).value)
"""
    assert _said(machine, program) == ["600", "0", "0", "1"]
