"""The node's side of a resize: changes of rules as the agent makes them, and the cost of an idle agent."""

import asyncio
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.devices import bpf, cgroup
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules

from .lib.figures import CannotRunError, Figure

if TYPE_CHECKING:
    from tests.agent.stage import Node

COMMAND = "scripts/bench agent"
SAMPLES = 500
PODS = 20
IDLE = 30.0
"""Seconds for which an idle agent is watched."""
GPUS = {
    f"GPU-{number}": Gpu(f"GPU-{number}", number, "Simulated GPU", 2**30, device=Device(1, 100 + 2 * number))
    for number in range(8)
}
DEVICES = frozenset(gpu.device for gpu in GPUS.values() if gpu.device)


def run() -> Sequence[Figure]:
    """Measure one change of rules, pinned and in force, and memory and CPU of an idle agent."""
    if os.geteuid():
        raise CannotRunError("attaching programs needs root")
    hierarchy = cgroup.mounts().unified
    if hierarchy is None:
        raise CannotRunError("there is no cgroup v2 hierarchy")
    return [*_changes(hierarchy.directory(cgroup.membership()[""])), *_idle()]


def _changes(parent: Path) -> Iterator[Figure]:
    with _bpffs() as mount:
        group = cgroup.create(parent, f"bench-{os.getpid()}")
        try:
            rules = DeviceRules.closed(DEVICES)
            hold = Pins.at(mount / "pins").create("bench", group, compile_rules(rules))
            guard = GuardedPod(hold, rules)
            spent = _timed(guard)
            bare = _bare(group)
            guard.close()
        finally:
            cgroup.remove(group)
    name = "Node: rules changed, pinned and in force"
    yield Figure.of(name, "ms", spent, COMMAND, at=99, goal=5, baseline=bare)


def _timed(guard: GuardedPod) -> list[float]:
    """Return the milliseconds of each change, made as by the agent: at once, without a thread."""
    rng, spent = random.Random(1), []
    for count in cycle(range(len(GPUS))):
        uuids = rng.sample(sorted(GPUS), count)
        begin = time.perf_counter()
        if guard.apply(uuids, GPUS, DEVICES):
            spent.append((time.perf_counter() - begin) * 1000)
        if len(spent) == SAMPLES:
            break
    return spent


def _bare(group: Path) -> list[float]:
    """Do the same without compiling and pins: load and attach only."""
    code, spent = compile_rules(DeviceRules.closed(DEVICES)), []
    current = bpf.load(code, "jupyter_gpu_b")
    bpf.attach(group, current)
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        program = bpf.load(code, "jupyter_gpu_b")
        bpf.attach(group, program, replaces=current)
        spent.append((time.perf_counter() - begin) * 1000)
        current.close()
        current = program
    return spent


def _idle() -> Iterator[Figure]:
    """Run an agent with its usual scans of processes and GPUs, and pods that have GPUs."""
    from tests.agent.stage import Api, Node
    from tests.cluster.testbed import control_plane

    flags = {"apiserver": ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]}
    with control_plane(flags=flags) as plane:
        api = Api(plane.kubeconfig)
        node = Node(plane, api, auditSeconds=5, inventorySeconds=10, openSeconds=5)
        try:
            node.start()  # before gRPC runs in this process, which does not survive a fork
            with _kubelet(node.folder / "kubelet"):
                share, memory = _watched(node)
        finally:
            node.close()
            api.close()
    yield Figure(f"Node plugin at rest, {PODS} pods: CPU", "% of a core", share, COMMAND)
    yield Figure(f"Node plugin at rest, {PODS} pods: memory", "MiB", memory / 1024, COMMAND)


def _watched(node: "Node") -> tuple[float, float]:
    """Start pods; return the percentage of a core and the kB of memory that the plugin takes from then on."""
    for number in range(PODS):
        pod, _ = node.running()
        if number < len(node.uuids):
            pod.allocate(node.uuids[number])
            pod.until_has(node.uuids[number])
    assert node.process is not None
    pid = node.process.pid
    before = _cpu(pid)
    time.sleep(IDLE)
    share = (_cpu(pid) - before) / IDLE * 100
    status = Path(f"/proc/{pid}/status").read_text()
    return share, next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _cpu(pid: int) -> float:
    """Return the CPU seconds of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _kubelet(home: Path) -> Iterator[None]:
    """Run a stand-in for the kubelet, which the plugin would otherwise keep looking for."""
    from tests.kubelet.stand_in import Kubelet

    kubelet, loop = Kubelet(home), asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(kubelet.start(), loop).result()
        yield
        asyncio.run_coroutine_threadsafe(kubelet.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def _bpffs() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)
