"""Faults of the product and its cluster: each returns when the harm is done and the victim may come back.

A fault that found nothing to harm fails: a run in which nothing died would prove nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.cluster.testbed import Cluster, until
from tests.cluster.testbed.node import Node
from tests.cluster.whole import agent_steps
from tests.cluster.whole.conflicts import conflicting_writers
from tests.cluster.whole.world import SECONDS, Product, World
from tests.deploy import product as chart

Fault = Callable[[World, random.Random], None]


def processes(cluster: Cluster, words: str, within: str = "", *, first: bool = False) -> list[int]:
    """Return processes of the cluster's pods whose command line has these words and whose control group has this part.

    ``first``: only first processes of containers.
    """
    groups = tuple(node.cgroup for node in cluster.nodes)
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if first and inner_pid(folder) != 1:
                    continue
                group = (folder / "cgroup").read_text()
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in line and within in group and "/kubepods" in group and any(name in group for name in groups):
                    found.append(int(folder.name))
    return found


def inner_pid(process: Path) -> int:
    """Return the pid in its own pid namespace."""
    (line,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


def end(pids: list[int]) -> None:
    """End a process as a crash would."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leader(product: Product) -> str:
    """Name of the scheduler's pod that leads; empty where none does."""
    words = ("get", "lease", "jupyter-gpu-scheduler", "-n", chart.NAMESPACE, "-o", "json")
    holder: str = json.loads(product.cluster.kubectl(*words))["spec"].get("holderIdentity") or ""
    return holder


def hit(what: str, find: Callable[[], list[int]]) -> None:
    """Kill these as soon as there are any."""
    found = until(find, SECONDS, f"{what} to be there")
    assert found
    end(found)


def kill_leader(corner: World, _: random.Random) -> None:
    """The scheduler that leads."""

    def find() -> list[int]:
        name = leader(corner.product)
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in corner.product.component("scheduler")}
        return processes(corner.cluster, "jupyter_gpu_scheduler", f"pod{uids[name]}")

    hit("the scheduler that leads", find)


def kill_schedulers(corner: World, _: random.Random) -> None:
    """All of them at once."""
    hit("a scheduler", lambda: processes(corner.cluster, "jupyter_gpu_scheduler"))


def agents(corner: World, node: Node) -> list[int]:
    """The node plugin of a node."""
    return processes(corner.cluster, "jupyter_gpu_node --settings", node.cgroup)


def kill_agent(corner: World, chance: random.Random) -> None:
    """The node plugin of a node, wherever it is."""
    node = chance.choice(corner.cluster.nodes)
    hit(f"the node plugin of {node.name}", lambda: agents(corner, node))


def delete_agent(corner: World, chance: random.Random) -> None:
    """The node plugin's pod: another takes its place."""
    agent_steps.replace(corner, chance.choice(corner.cluster.nodes))


def kill_controller(corner: World, _: random.Random) -> None:
    """The worker controllers, all at once."""
    hit("a worker controller", lambda: processes(corner.cluster, "jupyter_gpu_scheduler.workers"))


def kill_worker(corner: World, node: Node) -> None:
    """The worker on a node: it starts again, and says a new key."""
    hit(f"the worker on {node.name}", lambda: processes(corner.cluster, "jupyter_gpu.worker", node.cgroup, first=True))


def restart(part: str, away: float = 0.5) -> Fault:
    """A part of the cluster is killed and comes back after some seconds; ``@`` stands for one on each node."""

    def fault(corner: World, chance: random.Random) -> None:
        name = f"{part}{chance.choice(corner.cluster.nodes).name}" if part.endswith("@") else part
        corner.cluster.kill(name)
        time.sleep(away)
        corner.cluster.start(name)

    return fault


def cut_watches(corner: World, _: random.Random) -> None:
    """Every connection to the API server, at once and without a word."""
    to_it = ("state", "established", "src", corner.cluster.network.service, "sport", "=", ":443")
    cut = subprocess.run(("ss", "--kill", "--tcp", "--no-header", *to_it), check=True, capture_output=True, text=True)
    assert len(cut.stdout.splitlines()) > 2, f"No watch was cut: {cut.stdout}"


FAULTS: Mapping[str, Fault] = {
    "scheduler that leads killed": kill_leader,
    "all schedulers killed": kill_schedulers,
    "worker controllers killed": kill_controller,
    "node plugin killed": kill_agent,
    "node plugin's pod deleted": delete_agent,
    **{f"node plugin killed at {step}": agent_steps.death(step) for step in agent_steps.STEPS},
    f"node plugin killed at {agent_steps.SAYS}": agent_steps.death(agent_steps.SAYS, kill_worker, 1),
    "kubelet killed": restart("kubelet@", away=1),
    "containerd killed": restart("containerd@", away=1),
    "API server away for ten seconds": restart("apiserver", away=10),
    "watches cut": cut_watches,
    "conflicting writers": conflicting_writers,
}
"""All kinds."""
