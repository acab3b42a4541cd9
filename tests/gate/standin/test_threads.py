"""Many threads of one program, in builds that detect races and invalid memory accesses."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.gate.standin.clients import BUILD
from tests.gate.standin.conftest import Machine

SOURCES = (Path(__file__).with_name("threads.c"), *BUILD.parent.glob("*.c"), BUILD.parents[1] / "memory" / "image.c")
THREADS, TIMES = 8, 20


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_are_safe(machine: Machine, tmp_path: Path, sanitizer: str) -> None:
    """Eight threads launch, capture, allocate and use events and host functions: nothing is reported, all is done."""
    program = tmp_path / "threads"
    build = ("-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined")
    subprocess.run(["gcc", *build, f"-I{BUILD.parents[1]}", "-o", program, *SOURCES, "-pthread"], check=True)
    limits = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"}  # what streams leave is meant
    done = subprocess.run(
        [program, str(THREADS), str(TIMES)],
        env=dict(os.environ, **limits, JUPYTER_GPU_STANDIN=str(machine.boards)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == THREADS * TIMES
    board = machine.board("GPU-00000000-0000-4000-8000-000000000000")
    assert board.sums().launches == THREADS * TIMES * 3
    assert board.sums().overlaps == 0
