"""How much JavaScript the extension adds to a page: the sum of the prebuilt labextension's static/*.js."""

from collections.abc import Sequence
from pathlib import Path

from .figures import CannotRunError, Figure

STATIC = Path(__file__).parent.parent / "jupyter_gpu" / "labextension" / "static"


def run() -> Sequence[Figure]:
    """One figure in kB (1000 bytes), as files lie on the disk, not compressed."""
    sizes = [file.stat().st_size for file in STATIC.glob("*.js")]
    if not sizes:
        raise CannotRunError("the labextension is not built; run scripts/bench rather than python -m benchmarks")
    return [Figure("JavaScript bundle", "kB", sum(sizes) / 1000, "scripts/bench bundle", goal=120)]
