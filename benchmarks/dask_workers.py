"""`gpu.client()` in a real kernel: from a GPU that is added to its first task, and the end of a worker with 100 MB.

What a bare ``dask worker`` takes from its start to its first task is measured in the same rounds.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .lib.figures import Figure
from .lib.jupyter_server import Server, simulated

_ROUNDS = 7
_COMMAND = "scripts/bench dask_workers"
_BEYOND = 500.0  # milliseconds that the first task may take beyond a bare worker
_RETIRE = 1000.0  # milliseconds
_PROGRAM = Path(__file__).parent / "programs" / "in_dask.py"
_TIMEOUT = 600


def run() -> Sequence[Figure]:
    """Measure with one GPU that becomes two, and back."""
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as folder:
        home = Path(folder)
        with Server(home, "--GpuExtension.enforcement=soft", *simulated(home)) as server:
            found = _in_kernel(server, f"{_PROGRAM.read_text()}\nmeasure({_ROUNDS})")
    beyond = [ours - bare for ours, bare in zip(found["grow"], found["bare"], strict=True)]
    what = "Dask on the attached GPUs"
    return [
        Figure.of(f"{what}: one more GPU to its first task", "ms", found["grow"], _COMMAND, baseline=found["bare"]),
        Figure.of(f"{what}: the same, beyond a bare worker", "ms", beyond, _COMMAND, goal=_BEYOND),
        Figure.of(f"{what}: a worker with 100 MB retires", "ms", found["retire"], _COMMAND, goal=_RETIRE),
    ]


def _in_kernel(server: Server, code: str) -> dict[str, list[float]]:
    """Return what the program measured: it prints one line of JSON."""
    printed: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    client = server.kernel()
    try:
        reply = client.execute_interactive(code, output_hook=hear, timeout=_TIMEOUT)
    finally:
        client.stop_channels()
    if reply["content"]["status"] != "ok":
        raise RuntimeError("\n".join(reply["content"].get("traceback", ["the program did not end well"])))
    found: dict[str, list[float]] = json.loads("".join(printed).splitlines()[-1])
    return found
