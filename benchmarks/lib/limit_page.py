"""From an administrator's click to the end of a user's slider, and to the notice in a running kernel: all real parts.

The cluster of the demo: two nodes, JupyterHub with KubeSpawner, the service of limits, scheduler, node plugins, a
user's server in a pod, and Chromium with the administrator's page and the user's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import CannotRunError, Figure
from .hub_size import ROOT, UI_TESTS

if TYPE_CHECKING:
    from scripts.lib.demo_hub import Hub

PROGRAM = ROOT / "benchmarks" / "programs" / "limit_times.mjs"
SECONDS = 420.0
"""Most for all changes in the browser, and the start of the user's server before them."""
_GOALS = (250, 1000)
"""Milliseconds, of p50 and p99."""
_WAYS = (
    ("answered", "a limit is saved in the page until the page has the answer", (None, None)),
    ("end", "a limit is saved in the page until the user's slider ends there", _GOALS),
    ("panel", "a limit is lowered in the page until the user's panel says when GPUs go", (None, None)),
    ("kernel", "a limit is lowered in the page until a running kernel has the notice", (None, None)),
)
"""Keys of the program's times, what they are, and goals."""


def measure(changes: int, notices: int, command: str) -> Sequence[Figure]:
    """Measure milliseconds of so many changes, and of so many that take GPUs. Raises CannotRunError."""
    if os.geteuid() != 0:
        raise CannotRunError("a cluster runs containers, which needs root")
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not browser or not (UI_TESTS / "node_modules").exists():
        raise CannotRunError("there is no browser: scripts/demo --hub --check installs one")
    with tempfile.TemporaryDirectory(prefix="gpu-bench.", ignore_cleanup_errors=True) as folder, _hub(folder) as hub:
        found = Path(folder) / "times.json"
        words = ["node", str(PROGRAM), str(found), str(changes), str(notices)]
        environment = {**hub.environment(), "CHROMIUM": browser}
        done = subprocess.run(words, env=environment, stdout=sys.stderr, timeout=SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"{PROGRAM.name} ended with status {done.returncode}. {hub.logs()}")
        times = json.loads(found.read_text())
    return [
        Figure.of(f"limits: {what}, p{percent}", "ms", times[key], command, at=percent, goal=goal)
        for key, what, goals in _WAYS
        for percent, goal in zip((50, 99), goals, strict=True)
    ]


@contextmanager
def _hub(folder: str) -> Iterator[Hub]:
    """Yield the demo's hub on a cluster of its own. Raises CannotRunError where Kubernetes is not there."""
    try:
        from scripts.lib import demo, demo_cluster
        from tests.cluster.testbed import binaries
    except ImportError as error:
        raise CannotRunError(f"the test cluster is not there: {error}") from None
    if binaries.missing():
        raise CannotRunError("Kubernetes is not built: scripts/cluster up does it")
    text = demo.notebook(None)
    with demo_cluster.running(Path(folder), text, notebook=False, hub=True, brief=False) as (_, _, hub):
        assert hub is not None
        yield hub
