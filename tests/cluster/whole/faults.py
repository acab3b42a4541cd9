"""What can be done to the product and its cluster: each returns when the harm is done and what should come back may."""

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

from tests.cluster.testbed import Cluster
from tests.cluster.whole.world import Product
from tests.deploy import product as chart

Fault = Callable[[Product, random.Random], None]


def processes(cluster: Cluster, words: str, within: str = "", *, first: bool = False) -> list[int]:
    """Of pods of the cluster: whose command line has these words and whose control group has this part.

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
    """As its own pid namespace calls it."""
    (line,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


def end(pids: list[int]) -> None:
    """As a crash would."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leader(product: Product) -> str:
    """Name of the scheduler's pod that leads; empty where none does."""
    words = ("get", "lease", "jupyter-gpu-scheduler", "-n", chart.NAMESPACE, "-o", "json")
    holder: str = json.loads(product.cluster.kubectl(*words))["spec"].get("holderIdentity") or ""
    return holder


def kill_leader(product: Product, _: random.Random) -> None:
    """The scheduler that leads."""
    name = leader(product)
    for pod in product.component("scheduler"):
        if pod["metadata"]["name"] == name:
            end(processes(product.cluster, "jupyter_gpu_scheduler", f"pod{pod['metadata']['uid']}"))


def kill_schedulers(product: Product, _: random.Random) -> None:
    """All of them at once."""
    end(processes(product.cluster, "jupyter_gpu_scheduler"))


def kill_agent(product: Product, chance: random.Random) -> None:
    """The node plugin of a node."""
    node = chance.choice(product.cluster.nodes)
    end(processes(product.cluster, "jupyter_gpu_node --settings", node.cgroup))


def delete_agent(product: Product, chance: random.Random) -> None:
    """The node plugin's pod: another takes its place."""
    pod = chance.choice(product.component("node"))["metadata"]["name"]
    product.cluster.kubectl("delete", "pod", "-n", chart.NAMESPACE, pod, "--wait=false")


def restart(part: str, away: float = 0.5) -> Fault:
    """A part of the cluster is killed and comes back after some seconds; ``@`` stands for one on each node."""

    def fault(product: Product, chance: random.Random) -> None:
        name = f"{part}{chance.choice(product.cluster.nodes).name}" if part.endswith("@") else part
        product.cluster.kill(name)
        time.sleep(away)
        product.cluster.start(name)

    return fault


def cut_watches(product: Product, _: random.Random) -> None:
    """Every connection to the API server, at once and without a word."""
    words = (
        "ss",
        "--kill",
        "--tcp",
        "state",
        "established",
        "src",
        product.cluster.network.service,
        "sport",
        "=",
        ":443",
    )
    subprocess.run(words, check=True, capture_output=True)


FAULTS: Mapping[str, Fault] = {
    "scheduler that leads killed": kill_leader,
    "node plugin killed": kill_agent,
    "watches cut": cut_watches,
    "kubelet killed": restart("kubelet@", away=1),
    "API server away": restart("apiserver", away=3),
    "node plugin's pod deleted": delete_agent,
    "containerd killed": restart("containerd@", away=1),
    "all schedulers killed": kill_schedulers,
}
