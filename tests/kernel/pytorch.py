"""PyTorch for the kernels of tests: that of the Python that JUPYTER_GPU_TEST_TORCH names, or Debian's for the CPU.

`scripts/test` unpacks Debian's where its Python is as new as that of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.kernels import Kernel
from tests.kernel.servers import SOFT, Server, environment, serve

UNPACKED = Path(__file__).parents[2] / ".cache" / "torch" / "python"
_TOLD = "import json, os, sys; print(json.dumps([sys.path, os.environ.get('LD_LIBRARY_PATH', '')]))"


def is_there() -> bool:
    """Tell whether there is a PyTorch."""
    return bool(os.environ.get("JUPYTER_GPU_TEST_TORCH")) or UNPACKED.exists()


@contextmanager
def notebook(folder: Path) -> Iterator[tuple[Server, Kernel]]:
    """Start a server in a folder, and a kernel that can import PyTorch; stop both at the end."""
    first, variables = _needs()
    env = environment(folder) | variables
    with serve(folder, folder / "state", SOFT, env=env) as server, server.kernel() as kernel:
        kernel.run(first)
        yield server, kernel


def _needs() -> tuple[str, dict[str, str]]:
    """Return the line that a kernel runs before it imports PyTorch, and the variables that it needs from its start."""
    named = [os.environ.get("JUPYTER_GPU_TEST_TORCH") or str(UNPACKED), "-c", _TOLD]
    paths, libraries = json.loads(subprocess.run(named, capture_output=True, text=True, check=True).stdout)
    return f"import sys; sys.path += {[path for path in paths if path]}", {"LD_LIBRARY_PATH": libraries}
