"""PyTorch for the kernels of tests: that of the Python that JUPYTER_GPU_TEST_TORCH names, or Debian's for the CPU.

`scripts/test` unpacks Debian's where its Python is as new as that of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

UNPACKED = Path(__file__).parents[2] / ".cache" / "torch" / "python"
_TOLD = "import json, os, sys; print(json.dumps([sys.path, os.environ.get('LD_LIBRARY_PATH', '')]))"


def is_there() -> bool:
    """Tell whether there is a PyTorch."""
    return bool(os.environ.get("JUPYTER_GPU_TEST_TORCH")) or UNPACKED.exists()


def needs() -> tuple[str, dict[str, str]]:
    """Return the line that a kernel runs before it imports PyTorch, and the variables that it needs from its start."""
    named = [os.environ.get("JUPYTER_GPU_TEST_TORCH") or str(UNPACKED), "-c", _TOLD]
    paths, libraries = json.loads(subprocess.run(named, capture_output=True, text=True, check=True).stdout)
    return f"import sys; sys.path += {[path for path in paths if path]}", {"LD_LIBRARY_PATH": libraries}
