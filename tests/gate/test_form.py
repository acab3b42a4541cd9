"""The library: it needs old symbols only and is harmless where it is not needed; and its message reader."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.sharing.front import BEHIND

from .building import PROGRAMS, SANITIZERS, Built, command
from .place import Place, Program

NEWEST = (2, 17)


def _output(*arguments: str | Path) -> str:
    return subprocess.run([str(one) for one in arguments], capture_output=True, text=True, check=True).stdout


def _library(built: Built, form: str) -> Path:
    return (built.gate if form == "local" else built.shim) / "libcuda.so.1"


@pytest.mark.parametrize("form", ["local", "shim"])
def test_library_needs_no_symbol_newer_than_the_oldest_images(built: Built, form: str) -> None:
    """A newer symbol would make every process of an older image fail."""
    library = _library(built, form)
    table = _output("objdump", "-T", library)
    versions = {tuple(map(int, one.split("."))) for one in re.findall(r"GLIBC_([0-9.]+)", table)}
    assert versions
    assert max(versions) <= NEWEST
    assert not re.findall(r"\w+_chk\b", table)  # of fortified code, which musl does not have
    needed = re.findall(r"NEEDED.*\[(.*)\]", _output("readelf", "-d", library))
    assert needed == [BEHIND if form == "local" else str(built.driver / "libcuda.so.1"), "libc.so.6"]


@pytest.mark.parametrize("form", ["local", "shim"])
def test_library_exports_only_names_of_the_driver(built: Built, form: str) -> None:
    """No program can meet another of its names, except those by which a kernel's guard and NVML's library ask, and
    those that park."""
    lines = _output("nm", "-D", "--defined-only", _library(built, form)).splitlines()
    others = {name for name in (line.split()[-1] for line in lines) if not name.startswith("cu")}
    assert others == {"jupyter_gpu_looks", "jupyter_gpu_nvml_answer", "jupyter_gpu_park", "jupyter_gpu_return"}


def test_program_without_a_gpu_is_unaffected(place: Place) -> None:
    """It runs as usual and connects to no server."""
    for arguments in (["true"], ["sh", "-c", "echo $((6 * 7)) | cat"], ["python3", "-c", "print(42)"]):
        with Program(arguments, place.env()) as program:
            assert program.lines() == ([] if arguments == ["true"] else ["42"])


def test_reader_survives_a_million_invalid_messages(tmp_path: Path) -> None:
    """Under sanitizers and from a fixed seed, valid messages are distinguished from invalid ones, in pieces of any
    length."""
    command("gcc", "-g", "-O1", *SANITIZERS["address"], PROGRAMS / "parser.c", "-o", tmp_path / "parser")
    assert int(_output(tmp_path / "parser", "20261122", "1000000")) > 1_000_000


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed: run scripts/test, which sees to it")
def test_fuzzer_finds_nothing_in_the_reader(tmp_path: Path) -> None:
    """libFuzzer, guided by coverage, finds no error."""
    fuzz = tmp_path / "fuzz.c"
    fuzz.write_text(
        f'#include "{PROGRAMS.parents[2] / "node_plugin/gate/connection/protocol.h"}"\n'
        "int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {\n"
        "struct reader reader = {.have = 0}; struct message message;\n"
        "while (reader_next(&reader, &data, &size, &message) > 0) {}\nreturn 0; }\n"
    )
    command("clang", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", fuzz, "-o", tmp_path / "fuzz")
    done = subprocess.run(
        [str(tmp_path / "fuzz"), "-runs=1000000", "-seed=1"], capture_output=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-2000:]
