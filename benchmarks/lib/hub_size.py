"""The largest table of the hub's service: memory at each step of an administrator's work, and the page in Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import CannotRunError, Figure

ROOT = Path(__file__).parents[2]
UI_TESTS = ROOT / "labextension" / "ui-tests"
PAINT = ROOT / "benchmarks" / "programs" / "first_paint.mjs"
SECONDS = 300.0
"""Most until the service has listed everything."""
OPENED = 7
"""Times that the page is opened."""
MEMORY, FIRST_PAINT = 80, 1000
"""Goals: MB and milliseconds."""


def measure(count: int, command: str) -> Sequence[Figure]:
    """Measure MB of the service, and milliseconds until the page shows something. Raises CannotRunError."""
    name = f"hub's service, {count:,} users, limits and accounts"
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder), count) as service:
        listed = service.memory
        first = service.ask("api/v1/subjects?size=50")
        again = [service.ask("api/v1/subjects?size=50&page=3") for _ in range(20)]
        by_limit = service.ask("api/v1/subjects?size=50&sort=-limit")
        figures = [
            Figure(f"{name}: memory", "MB", listed, command, goal=MEMORY),
            Figure(f"{name}: memory after the table", "MB", service.memory, command, goal=MEMORY),
            Figure(f"{name}: first page of the table after a start", "ms", first, command, goal=FIRST_PAINT),
            Figure.of(f"{name}: another page of the table", "ms", again, command),
            Figure(f"{name}: first page by limit", "ms", by_limit, command),
            *_painted(name, service, command),
        ]
        edit = {"subject": {"kind": "Default"}, "set": {"max": 1}}
        took = service.ask("api/v1/limits/bulk", {"edits": [edit], "dryRun": True})
        figures += [
            Figure(f"{name}: preview of a change for everyone", "ms", took, command),
            Figure(f"{name}: memory after the preview", "MB", service.memory, command, goal=MEMORY),
            Figure(f"{name}: memory, the most so far", "MB", service.most, command, goal=MEMORY),
        ]
    return figures


def resident(pid: int, which: str = "VmRSS") -> float:
    """Return MB (2**20 bytes) of memory of a process; ``VmHWM``: the most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024


@dataclass(frozen=True)
class _Service:
    address: str
    process: subprocess.Popen[bytes]

    @property
    def memory(self) -> float:
        """MB now."""
        return resident(self.process.pid)

    @property
    def most(self) -> float:
        """The most so far, in MB."""
        return resident(self.process.pid, "VmHWM")

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> float:
        """Return the milliseconds until the whole answer is there."""
        headers = {"Authorization": "token bench", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        begun = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(self.address + path, data, headers), timeout=SECONDS) as got:
            got.read()
        return (time.perf_counter() - begun) * 1000


@contextmanager
def _running(folder: Path, count: int) -> Iterator[_Service]:
    """Yield the service in front of the stand-in, once all is listed."""
    words = [sys.executable, "-m", "benchmarks.programs.hub_stand_in", str(count)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as stand_in:
        try:
            assert stand_in.stdout is not None
            port = int(stand_in.stdout.readline())
            with _service(folder, f"http://127.0.0.1:{port}") as service:
                yield service
        finally:
            stand_in.kill()


@contextmanager
def _service(folder: Path, cluster: str) -> Iterator[_Service]:
    from tests.cluster.testbed.ports import free

    (port,) = free(1)
    settings = folder / "settings.json"
    settings.write_text(json.dumps({"hub": "hub-one", "rate": {"perSecond": 1000, "burst": 10000}}))
    environment = {
        "API_TOKEN": "t",
        "API_URL": f"{cluster}/hub/api",
        "BASE_URL": "/",
        "CLIENT_ID": "service-gpu",
        "SERVICE_NAME": "gpu",
        "SERVICE_PREFIX": "/services/gpu/",
        "SERVICE_URL": f"http://127.0.0.1:{port}",
    }
    words = [sys.executable, "-m", "benchmarks.programs.hub_in_pod", cluster, "--settings", str(settings)]
    more = {f"JUPYTERHUB_{key}": text for key, text in environment.items()}
    log = folder / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, **more}, stdout=output, stderr=output)
    try:
        _wait(f"http://127.0.0.1:{port}/healthz", process, log)
        yield _Service(f"http://127.0.0.1:{port}/services/gpu/", process)
    finally:
        process.kill()
        process.wait()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                if answer.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise CannotRunError(f"the service did not become ready: {log.read_text()[-1000:]}")


def _painted(name: str, service: _Service, command: str) -> Sequence[Figure]:
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not browser or not (UI_TESTS / "node_modules").exists():
        print("left out: there is no browser: scripts/test installs one;", end=" ", file=sys.stderr)
        return []
    words = ["node", str(PAINT), str(UI_TESTS), service.address, str(OPENED)]
    done = subprocess.run(
        words, env={**os.environ, "CHROMIUM": browser}, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    times = json.loads(done.stdout)
    return [
        Figure.of(f"{name}: page, {what}", "ms", [each[key] for each in times], command, goal=goal)
        for key, what, goal in (("painted", "first paint", FIRST_PAINT), ("shown", "table of its code", None))
    ]
