"""The messages of parking as the gate reads them: the same ones as its twin in Python, from any bytes."""

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from jupyter_gpu_node.parking.rules.protocol import LONGEST, MOST_GPUS, from_node
from jupyter_gpu_node.shares.rules.framing import MOST, SIZE, Malformed

from .building import GATE, PROGRAMS, SANITIZERS, command

EDGES = (0, 1, 2, MOST_GPUS - 1, MOST_GPUS, MOST_GPUS + 1, LONGEST, LONGEST + 1, MOST)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the reader, under sanitizers."""
    made = tmp_path_factory.mktemp("parking") / "parking"
    command("gcc", "-g", "-O1", *SANITIZERS["address"], PROGRAMS / "parking.c", "-o", made)
    return made


def _read(data: bytes) -> str:
    try:
        from_node().feed(data)
    except Malformed:
        return "invalid"
    return " ".join(map(str, [data[1], *struct.unpack("<QQQ", data[8:])]))


def test_both_twins_take_the_same_messages(program: Path) -> None:
    """Both refuse the same."""
    chance = random.Random(27)
    cases = [
        struct.pack("<BBHIQQQ", 1, kind, 0, 0, a, b, c)
        for kind in range(46, 55)
        for a in EDGES
        for b in EDGES
        for c in EDGES
    ]
    for case in cases[::7]:
        changed = bytearray(case)
        changed[chance.randrange(SIZE)] = chance.randrange(256)
        cases.append(bytes(changed))
    done = subprocess.run([str(program)], input=b"".join(cases), capture_output=True, check=True)
    found = done.stdout.decode().splitlines()
    assert found == [_read(case) for case in cases]
    assert found.count("invalid") > 100
    assert len(set(found)) > 500


def test_reader_survives_a_million_invalid_messages(program: Path) -> None:
    """From a fixed seed, in pieces of any length."""
    done = subprocess.run([str(program), "20261127", "1000000"], capture_output=True, check=True)
    assert int(done.stdout) > 1_000_000


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed: run scripts/test, which sees to it")
def test_fuzzer_finds_nothing_in_the_reader(tmp_path: Path) -> None:
    """libFuzzer, guided by coverage, finds no error."""
    fuzz = tmp_path / "fuzz.c"
    fuzz.write_text(
        f'#include "{GATE / "parking" / "protocol.h"}"\n'
        "int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {\n"
        "struct reader reader = {.have = 0}; struct message message;\n"
        "while (told_next(&reader, &data, &size, &message) > 0) {}\nreturn 0; }\n"
    )
    command("clang", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", fuzz, "-o", tmp_path / "fuzz")
    done = subprocess.run(
        [str(tmp_path / "fuzz"), "-runs=1000000", "-seed=1"], capture_output=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-2000:]
