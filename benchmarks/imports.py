"""How much the import of `jupyter_gpu` adds to the start of a fresh interpreter, as in every kernel."""

import subprocess
import sys
from collections.abc import Sequence

from .lib.figures import Figure

_ROUNDS = 30
_COMMAND = "scripts/bench imports"
_TIMED = "import time; t = time.perf_counter(); {}; print((time.perf_counter() - t) * 1000)"
# What a kernel has loaded before its first cell; imported first, so that only the product's part is measured.
_IN_A_KERNEL = "import ipykernel.ipkernel, ipykernel.kernelapp; "


def run() -> Sequence[Figure]:
    """Measure milliseconds of an import; the baseline is an import statement that imports nothing new."""
    cases = (
        ("import jupyter_gpu, bare interpreter", "", "import jupyter_gpu", "import sys"),
        ("from jupyter_gpu import gpu, bare interpreter", "", "from jupyter_gpu import gpu", "import sys"),
        ("kernel startup hook", _IN_A_KERNEL, "import jupyter_gpu.startup", "import sys"),
    )
    figures = []
    for name, before, statement, nothing in cases:
        samples, baseline = [], []
        for _ in range(_ROUNDS if not before else _ROUNDS // 3):  # in turn, so that both run under the same load
            samples.append(_time(before, statement))
            baseline.append(_time(before, nothing))
        figures.append(Figure.of(f"import: {name}", "ms", samples, _COMMAND, goal=10, baseline=baseline))
    return figures


def _time(before: str, statement: str) -> float:
    """Return the milliseconds that ``statement`` takes in a fresh interpreter after ``before``."""
    code = before + _TIMED.format(statement)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(answer.stdout)
