"""How much JavaScript the extension adds to a page: the sum of the prebuilt labextension's static/*.js."""

import sys
from collections.abc import Sequence
from pathlib import Path

from .figures import CannotRunError, Figure

STATIC = Path(__file__).parent.parent / "jupyter_gpu" / "labextension" / "static"
GOAL = 120 + 10
"""Of the panel with its charts, and of the card of a time share."""
NEIGHBOUR = Path(sys.prefix) / "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/static"
"""The front end of ipywidgets, which every installation has: what users find acceptable for one."""


def run() -> Sequence[Figure]:
    """One figure in kB (1000 bytes), as files lie on the disk, not compressed."""
    ours, theirs = _kilobytes(STATIC), _kilobytes(NEIGHBOUR)
    if not ours:
        raise CannotRunError("the labextension is not built; run scripts/bench rather than python -m benchmarks")
    return [Figure("JavaScript bundle", "kB", ours, "scripts/bench bundle", goal=GOAL, baseline=theirs or None)]


def _kilobytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.glob("*.js")) / 1000
