"""The sizes of a module's variables, as its image declares them."""

import ctypes
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .building import GATE, PROGRAMS, command

Reader = Callable[[bytes], int]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return the gate's function that sums up an image's variables."""
    library = tmp_path_factory.mktemp("image") / "image.so"
    command("gcc", "-shared", "-fPIC", "-O1", f"-I{GATE}", GATE / "memory" / "image.c", "-o", library)
    function = ctypes.CDLL(str(library)).image_globals
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    return lambda image: int(function(image, len(image)))


TYPES = {"b8": 1, "u8": 1, "s16": 2, "f16": 2, "b32": 4, "f32": 4, "u64": 8, "f64": 8, "b128": 16}
Variable = tuple[str, str, int, list[int]]
VARIABLES = st.lists(
    st.tuples(
        st.sampled_from(["", ".visible ", ".weak "]),
        st.sampled_from(sorted(TYPES)),
        st.sampled_from([1, 2, 4]),
        st.lists(st.integers(1, 5000), max_size=3),
    )
)
OTHERS = st.lists(
    st.sampled_from(
        [
            ".extern .global .align 4 .b8 elsewhere[4096];",
            ".const .align 4 .b8 fixed[64];",
            ".shared .align 4 .b8 ours[1024];",
            "ld.global.u32 %r1, [%rd1];",
            ".global .attribute(.managed) .align 4 .b8 both[4096];",
            ".visible .entry k(.param .u64 .ptr .global .align 1 k_param_0) { ret; }",
        ]
    )
)


@given(VARIABLES, OTHERS)
def test_ptx_tells_the_size_of_its_variables(variables: Reader, declared: list[Variable], others: list[str]) -> None:
    """Types, vectors and dimensions multiply; other state spaces, constants and managed variables do not count."""
    lines, expected = [".version 8.0", ".target sm_80", ".address_size 64", *others], 0
    for number, (linkage, kind, vector, sizes) in enumerate(declared):
        wide = f".v{vector} " if vector > 1 else ""
        lines.append(f"\t{linkage}.global .align 8 {wide}.{kind} v{number}{''.join(f'[{size}]' for size in sizes)};")
        amount = TYPES[kind] * vector
        for size in sizes:
            amount *= size
        expected += amount
    assert variables(("// made by a test\n" + "\n".join(lines) + "\n").encode()) == expected


def test_sizes_beyond_64_bits_do_not_wrap_around(variables: Reader) -> None:
    """An overflowing product or sum becomes the maximum."""
    most = 1 << 63
    for declared in ([f".b8 a[{most}][2]"], [f".b8 a[{most}]", f".b8 b[{most}]"], [f".b64 a[{most}]"]):
        lines = [".version 8.0", ".target sm_80", *(f".global {one};" for one in declared)]
        assert variables("\n".join(lines).encode()) == 2**64 - 1


def test_cubin_tells_the_size_by_its_sections(variables: Reader) -> None:
    """The sections of variables with and without a value count, and no others."""
    names = b"\0.nv.global\0.nv.global.init\0.nv.shared.k\0"
    sections = [(1, 8, 0, 1 << 31), (12, 1, 0, 4096), (28, 8, 0, 99), (0, 3, 64, len(names))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in sections
    )
    start = 64 + len(names)
    head = struct.pack(
        "<4sBBBBQHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0x33, 0, 2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, 4, 3
    )
    assert variables(head + names + table) == (1 << 31) + 4096


@pytest.mark.parametrize(
    "image", [b"", b"x", b"image", b"\x7fELF", b"\x50\xed\x55\xba" + bytes(100), b".global .b8 a[9];"]
)
def test_other_images_count_nothing(variables: Reader, image: bytes) -> None:
    """Neither packed images nor texts other than PTX count."""
    assert variables(image) == 0


def test_damaged_images_are_read_safely(tmp_path: Path) -> None:
    """Sanitizers find nothing, from a fixed seed."""
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    command("gcc", "-g", "-O1", *sanitizers, f"-I{GATE}", PROGRAMS / "image.c", GATE / "memory" / "image.c",
            "-o", tmp_path / "image")  # fmt: skip
    done = subprocess.run([tmp_path / "image", "20261124", "300000"], capture_output=True, text=True, check=True)
    whole, read = done.stdout.splitlines()
    assert whole == "1024 193"
    assert 100_000 < int(read) < 300_000
