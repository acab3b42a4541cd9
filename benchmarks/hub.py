"""The hub's service: 200 requests a second by 1,000 users through a hub's proxy; memory and page with 10,000 users.

The load runs with a real hub and API server. Memory, and the time until the page is painted, are measured with a
program in place of both, as 10,000 users and limits would take minutes to make; the service is the same process.
"""

import gzip
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .lib import hub_load, hub_size
from .lib.figures import CannotRunError, Figure

COMMAND = "scripts/bench hub"
LIMIT_SECONDS = 900.0
STATIC = Path(__file__).parent.parent / "hub" / "jupyter_gpu_hub" / "web" / "static"
SECONDS = float(os.environ.get("JUPYTER_GPU_BENCH_HUB_SECONDS", "60"))
"""Length of the load."""
COUNT = int(os.environ.get("JUPYTER_GPU_BENCH_HUB_USERS", "10000"))
"""Users, limits and accounts of the largest table."""


def run() -> Sequence[Figure]:
    """Measure the bundle, the largest table, and the load; what can't be measured on this machine is left out."""
    page = STATIC / "page.js"
    if not page.exists():
        raise CannotRunError("the page is not built; run scripts/bench rather than python -m benchmarks")
    size = len(gzip.compress(page.read_bytes(), 9)) / 1000
    figures = [Figure("page of limits: JavaScript, gzip", "kB", size, COMMAND, goal=200)]
    for part in (partial(hub_size.measure, COUNT, COMMAND), partial(hub_load.measure, SECONDS, COMMAND)):
        try:
            figures += part()
        except CannotRunError as error:
            print(f"left out: {error};", end=" ", file=sys.stderr)
    return figures
