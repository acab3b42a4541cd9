"""The cost of a holder scan beside a pod that has very many open files."""

import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.holders import scanner
from jupyter_gpu_node.processes import proc

from .lib.figures import CannotRunError, Figure

COMMAND = "scripts/bench holder_scan"
FILES, PROCESSES, SAMPLES = 15_000, 4, 30
GPUS = [Gpu(f"GPU-{number}", number, "Simulated GPU", 2**30, device=Device(1, 100 + 2 * number)) for number in range(8)]
OPENER = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES} + 100,) * 2)
null = os.open("/dev/null", os.O_RDONLY)
files = [os.dup(null) for _ in range({FILES})]
print("ready", flush=True)
sys.stdin.read()
"""


def run() -> Sequence[Figure]:
    """Measure a scan without such a pod and with it, and the search of that pod alone."""
    if os.geteuid():
        raise CannotRunError("to look into other processes needs root")
    hierarchy = cgroup.mounts().unified
    if hierarchy is None:
        raise CannotRunError("there is no cgroup v2 hierarchy")
    alone = [_scan() for _ in range(SAMPLES)]
    each_process = [_processor_time() / len(proc.all_pids()) for _ in range(SAMPLES)]
    with _pod_with_many_files(Path(hierarchy.mount)) as uid:
        beside = [_scan() for _ in range(SAMPLES)]
        search = [_timed(lambda: scanner.search_pod(uid, GPUS, None, {})) for _ in range(3)]
    name = (
        f"Node: what a pod with {FILES * PROCESSES} open files adds to a holder scan, of what it takes to read them all"
    )
    added = [max(0.0, each - statistics.median(alone)) / statistics.median(search) for each in beside]
    return [
        Figure.of(
            "Node: processor time of a holder scan, for each process of the machine",
            "ms",
            each_process,
            COMMAND,
            goal=0.5,
        ),
        Figure.of(name, "times", added, COMMAND, goal=0.4),
        Figure.of("Node: the search of that pod by itself", "ms", search, COMMAND),
    ]


def _scan() -> float:
    return _timed(lambda: scanner.scan_holders(GPUS, {}, {}))


def _processor_time() -> float:
    begin = time.thread_time()
    scanner.scan_holders(GPUS, {}, {})
    return (time.thread_time() - begin) * 1000


def _timed(work: object) -> float:
    begin = time.perf_counter()
    assert callable(work)
    work()
    return (time.perf_counter() - begin) * 1000


@contextmanager
def _pod_with_many_files(mount: Path) -> Iterator[str]:
    """Create such a pod; yield its uid."""
    uid = f"bench-{secrets.token_hex(4)}"
    group = mount / f"jupyter-gpu-{uid}" / "kubepods" / f"pod{uid}"
    group.mkdir(parents=True)
    command = [sys.executable, "-c", OPENER]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    try:
        for child in children:
            cgroup.enter(group, child.pid)
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
        yield uid
    finally:
        for child in children:
            child.kill()
            child.communicate()
        for directory in (group, *list(group.parents)[:2]):
            directory.rmdir()
