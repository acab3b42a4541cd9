"""What the library is: of old symbols only, harmless where it is not needed; and its reader of messages."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.sharing.front import BEHIND

from .building import PROGRAMS, Built, command
from .place import Place, Program

NEWEST = (2, 17)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def _said(*arguments: str | Path) -> str:
    return subprocess.run([str(one) for one in arguments], capture_output=True, text=True, check=True).stdout


def _library(built: Built, form: str) -> Path:
    return (built.gate if form == "local" else built.shim) / "libcuda.so.1"


@pytest.mark.parametrize("form", ["local", "shim"])
def test_no_symbol_is_newer_than_the_oldest_images(built: Built, form: str) -> None:
    """A library that names a newer one makes every process of an older image fail."""
    library = _library(built, form)
    table = _said("objdump", "-T", library)
    versions = {tuple(map(int, one.split("."))) for one in re.findall(r"GLIBC_([0-9.]+)", table)}
    assert versions
    assert max(versions) <= NEWEST
    assert not re.findall(r"\w+_chk\b", table)  # of fortified code, which musl does not have
    needed = re.findall(r"NEEDED.*\[(.*)\]", _said("readelf", "-d", library))
    assert needed == [BEHIND if form == "local" else str(built.driver / "libcuda.so.1"), "libc.so.6"]


@pytest.mark.parametrize("form", ["local", "shim"])
def test_it_has_only_the_drivers_names(built: Built, form: str) -> None:
    """No program of its user meets another of its names."""
    names = _said("nm", "-D", "--defined-only", _library(built, form)).splitlines()
    assert names
    assert all(line.split()[-1].startswith("cu") for line in names)


def test_programs_without_a_gpu_do_not_notice_it(place: Place) -> None:
    """They end as ever, and nothing connects: there is no server that they could wait for."""
    for arguments in (["true"], ["sh", "-c", "echo $((6 * 7)) | cat"], ["python3", "-c", "print(42)"]):
        with Program(arguments, place.env()) as program:
            assert program.lines() == ([] if arguments == ["true"] else ["42"])


def test_a_million_messages_of_garbage(tmp_path: Path) -> None:
    """The reader under sanitizers, from a fixed seed: messages are told from what is none, in pieces of any length."""
    command("gcc", "-g", "-O1", *SANITIZERS, PROGRAMS / "parser.c", "-o", tmp_path / "parser")
    assert int(_said(tmp_path / "parser", "20261122", "1000000")) > 1_000_000


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed: run scripts/test, which sees to it")
def test_a_fuzzer_finds_nothing_in_the_reader(tmp_path: Path) -> None:
    """With coverage as its guide, where libFuzzer is there."""
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
