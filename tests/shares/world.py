"""Shared parts of the tests of the server: clients, programs that use their shares, and waiting for conditions."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpu_node.shares.rules.protocol import Done
from tests.shares.client import PATIENCE, Client, uses
from tests.shares.serve import ROOT, Serving

GPU = "GPU-1"


def until(condition: Callable[[], object], what: str = "it did not happen") -> None:
    """Wait until the condition holds, for a minute at most."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def shown(server: Serving) -> dict[str, Any]:
    """Return what the pod of the first share sees."""
    until(server.file(GPU, "a").exists)
    found: dict[str, Any] = json.loads(server.file(GPU, "a").read_text())
    return found


def connect(server: Serving, pod: str, gpu: str = GPU) -> Client:
    return Client(server.socket(gpu, pod))


def serves(server: Serving, pod: str) -> None:
    """Have a new client of that share get a turn."""
    with connect(server, pod) as client:
        client.send(Done(None, 0, client.grant().number))


@contextlib.contextmanager
def programs(server: Serving, folder: Path, *pods: str, work: int = 3000, pause: int = 200) -> Iterator[list[Any]]:
    """Run a program for the share of each of `pods`; yield the processes with their logs."""
    started = []
    for number, pod in enumerate(pods):
        log = folder / f"{pod}.{number}.log"
        log.touch()
        command = [sys.executable, "-m", "tests.shares.client", str(server.socket(GPU, pod)), str(log)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}"}
        process = subprocess.Popen([*command, "600", str(work), str(pause)], cwd=ROOT, env=environment)
        started.append((process, log))
    try:
        yield started
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


def written(folder: Path, kills: dict[Path, int] | None = None) -> dict[str, list[tuple[int, int]]]:
    """Return when each share had the GPU, by the logs of its programs."""
    found: dict[str, list[tuple[int, int]]] = {}
    for log in sorted(folder.glob("*.*.log")):
        found.setdefault(log.name.split(".")[0], []).extend(uses(log, (kills or {}).get(log)))
    return found


def stands(*logs: Path) -> bool:
    """Tell whether nothing is written for ten leases."""
    before = [log.read_text() for log in logs]
    time.sleep(0.2)
    return [log.read_text() for log in logs] == before


def grows(log: Path, lines: int = 20) -> None:
    """Wait until that program had so many more turns."""
    before = log.read_text().count("\n")
    until(lambda: log.read_text().count("\n") >= before + lines)
