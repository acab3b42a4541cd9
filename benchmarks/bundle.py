"""The JavaScript that the extension adds to a page: what loads with the page, and all including what loads later."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from .lib.figures import CannotRunError, Figure

STATIC = Path(__file__).parent.parent / "jupyter_gpu" / "labextension" / "static"
ENTRY = "remoteEntry"
"""The file that the page loads first; it loads the others that are needed at once."""
_LOADS = re.compile(r'\.e\("?(\w+)"?\)')
"""The code by which built code loads another file, by the number of its chunk."""
_NAMES = re.compile(r'(\d+):"(\w+)"')
"""In the first file: chunks whose files are not named by their number, and the hashes of all."""
NEIGHBOUR = Path(sys.prefix) / "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/static"
"""The front end of ipywidgets, which every installation has: what users find acceptable for one."""
COMMAND = "scripts/bench bundle"
ALL = 190
"""kB: less than a third of what the front end of ipywidgets has. Most of it is loaded when a user opens the panel or
a part of it, so what counts is what comes with the page."""


def run() -> Sequence[Figure]:
    """Measure kB (1000 bytes) of files as they are on the disk, not compressed."""
    ours = {file: file.stat().st_size / 1000 for file in STATIC.glob("*.js")}
    if not ours:
        raise CannotRunError("the labextension is not built; run scripts/bench rather than python -m benchmarks")
    theirs = sum(file.stat().st_size for file in NEIGHBOUR.glob("*.js")) / 1000
    later = _later([file for file in ours if not file.name.startswith(ENTRY)])
    first = sum(size for file, size in ours.items() if file.name.partition(".")[0] not in later)
    return [
        Figure("JavaScript with the page", "kB", first, COMMAND, goal=60),
        Figure("JavaScript, all of it", "kB", sum(ours.values()), COMMAND, goal=ALL, baseline=theirs or None),
    ]


def _later(files: Sequence[Path]) -> set[str]:
    """Return how the names of files begin that these files load later."""
    (entry,) = STATIC.glob(f"{ENTRY}.*.js")
    chunks = {chunk for file in files for chunk in _LOADS.findall(file.read_text())}
    return chunks | {name for chunk, name in _NAMES.findall(entry.read_text()) if chunk in chunks}
