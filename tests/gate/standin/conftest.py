"""The stand-in driver, built once, and programs that run on it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.gate.standin.board import Board
from tests.gate.standin.clients import BUILD, ROOT

FIRST = "GPU-11111111-0000-4000-8000-000000000001"
SECOND = "GPU-22222222-0000-4000-8000-000000000002"


@dataclass(frozen=True)
class Machine:
    """A machine with two simulated GPUs, of 64 and 32 MiB."""

    library: Path
    boards: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment by which programs find the GPUs; names are without their prefix."""
        own = {
            "LD_LIBRARY_PATH": str(self.library),
            "PYTHONPATH": str(ROOT),
            "JUPYTER_GPU_STANDIN": str(self.boards),
            "JUPYTER_GPU_STANDIN_GPUS": f"{FIRST}:64,{SECOND}:32",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "LD_"))}
        return kept | own | {f"JUPYTER_GPU_STANDIN_{name}": value for name, value in more.items()}

    def start(self, program: str, python: Path | None = None, **more: str) -> subprocess.Popen[str]:
        """Start a Python program, whose standard input and output are pipes."""
        command = [python or sys.executable, "-c", program]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment(**more), stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, program: str, python: Path | None = None, **more: str) -> str:
        """Run a Python program to its end, and return what it printed."""
        with self.start(program, python, **more) as process:
            out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        return out

    def board(self, uuid: str = FIRST) -> Board:
        """Return the board of a GPU."""
        return Board(self.boards, uuid)


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of libcuda.so.1."""
    folder = tmp_path_factory.mktemp("standin")
    subprocess.run([BUILD, folder], check=True)
    return folder


@pytest.fixture
def machine(standin: Path, tmp_path: Path) -> Machine:
    """Return a machine that nothing has used yet."""
    return Machine(standin, tmp_path / "boards")
