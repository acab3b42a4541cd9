"""The demo's notebook whose node has no GPU left: it uses those of the other node. Used by `demo.py`.

What shows that its work ran there is not what the notebook says: the kernel of the operating system knows which
processes have a GPU open and to which pod they belong, and the simulated GPUs write down what they did.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpu.model.annotations import REQUESTED, WORKER
from jupyter_gpu.model.gpu import Gpu
from scripts.lib import cluster_lab
from scripts.lib.cluster_lab import ACCOUNT, Place, Progress
from scripts.lib.lab import Lab, LabError
from tests.cluster.testbed import Cluster, until
from tests.cluster.whole import pods
from tests.cluster.whole.notebooks import group_of, openers
from tests.cluster.whole.world import Product
from tests.deploy import product
from tests.gate.standin.board import Board

NAMESPACE, NOTEBOOK, NEIGHBOUR = "other-node", "other_node.ipynb", "neighbour"
FILES = Path(__file__).parent / "demo_notebooks"
BOARDS = "gpu-boards"
"""Folder below the worker's /tmp, as `demo_notebooks/gpu_work.py` names it."""
LEAST = 100
"""Kernels that the GPUs must have run."""
PAUSE = 0.2
"""Seconds between two looks at the processes that have a GPU open."""


def beside(cluster: Cluster) -> Place:
    """Return the place of the other notebook: the node that has GPUs left."""
    return Place(node=cluster.node_names[1])


def values(cluster: Cluster, notebooks: Mapping[str, Any]) -> dict[str, Any]:
    """Make the namespace; return values of the chart, with those of other ``notebooks``."""
    cluster.namespace(NAMESPACE)
    own = {"namespace": NAMESPACE, "serviceAccounts": [ACCOUNT]}
    return {
        "notebooks": {**notebooks, "namespaces": [*notebooks["namespaces"], own]},
        "workers": {"enabled": True, "namespaces": [NAMESPACE]},
    }


@dataclass
class Seen:
    """The processes that had a GPU open, by its uuid: the control groups of each."""

    groups: dict[str, dict[int, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherNode:
    """A running notebook whose node has no GPU left."""

    lab: Lab
    cluster: Cluster
    gpus: Mapping[str, tuple[Gpu, ...]]

    @property
    def page(self) -> str:
        """Address of the notebook."""
        return self.lab.page(f"lab/tree/{NOTEBOOK}")

    @property
    def introduction(self) -> str:
        """Return where the notebook is, and what it shows."""
        one, two = self.cluster.node_names[:2]
        return f"A notebook on {one}, whose GPUs another pod has; it uses those of {two}:\n\n    {self.page}"

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """Look meanwhile which processes have a GPU open."""
        seen, ended = Seen(), threading.Event()
        thread = threading.Thread(target=self._look, args=(seen, ended), daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            ended.set()
            thread.join()

    def _look(self, seen: Seen, ended: threading.Event) -> None:
        while not ended.wait(PAUSE):
            for gpu in (gpu for gpus in self.gpus.values() for gpu in gpus):
                for pid in openers(gpu.device) if gpu.device else ():
                    try:
                        seen.groups.setdefault(gpu.uuid, {}).setdefault(pid, group_of(pid))
                    except OSError:  # it has ended
                        continue

    def judge(self, seen: Seen) -> int:
        """Return 0 if the work ran on the other node, by the operating system and the GPUs; say what they say."""
        worker, two = self._worker(), self.cluster.node(self.cluster.node_names[1])
        numbers = {gpu.uuid: str(gpu.device) for gpus in self.gpus.values() for gpu in gpus}
        there = [gpu.uuid for gpu in self.gpus[two.name] if gpu.uuid in seen.groups]
        boards = two.path(f"/var/lib/kubelet/pods/{worker['uid']}/volumes/kubernetes.io~empty-dir/tmp/{BOARDS}")
        ran = {uuid: Board(boards, uuid).sums().launches for uuid in there}
        for uuid, groups in seen.groups.items():
            for pid, group in groups.items():
                whose = f"pod {worker['name']}" if f"pod{worker['uid']}" in group else group.strip()
                print(f"The operating system says: process {pid} of {whose} had device {numbers[uuid]} open.")
        print(f"The GPUs of {two.name} themselves say: {' and '.join(map(str, ran.values()))} kernels.")
        found = problems(seen.groups, ran, (f"pod{worker['uid']}", two.cgroup))
        print("".join(f"WRONG: {words}.\n" for words in found), end="", flush=True)
        return int(bool(found))

    def end(self) -> None:
        """Remove its pods, and the one that has its node's GPUs; they are free afterwards."""
        words = ("--namespace", NAMESPACE, "--all", "--grace-period=1", "--timeout=90s")
        self.cluster.kubectl("delete", "deployment", *words)
        self.cluster.kubectl("delete", "pod", *words)

    def _worker(self) -> dict[str, Any]:
        """Return the metadata of the worker's pod."""
        words = ("get", "pods", "--namespace", NAMESPACE, "--selector", WORKER, "--output", "json")
        found: list[dict[str, Any]] = [each["metadata"] for each in json.loads(self.cluster.kubectl(*words))["items"]]
        if not found:
            raise LabError("The notebook has no worker.")
        return found[0]


def problems(groups: Mapping[str, Mapping[int, str]], ran: Mapping[str, int], within: tuple[str, str]) -> list[str]:
    """Return what contradicts that the work ran on two GPUs of the other node; nothing if all is well. Pure.

    ``groups``: the control groups of the processes that had a GPU open, by its uuid; ``ran``: how many kernels each GPU
    of that node ran; ``within``: what the names of the control groups of the worker have in them.
    """
    found = []
    if len(ran) != 2:
        found.append(f"{len(ran)} GPUs of the other node were used, and not two")
    if groups.keys() - ran.keys():
        found.append("a GPU of another node was open, too")
    if any(part not in group for processes in groups.values() for group in processes.values() for part in within):
        found.append("a process that is not of the worker had a GPU open")
    if any(count < LEAST for count in ran.values()):
        found.append(f"a GPU ran fewer than {LEAST} kernels")
    return found


@contextmanager
def running(cluster: Cluster, image: str, folder: Path, progress: Progress) -> Iterator[OtherNode]:
    """Run the notebook, and a pod that has all GPUs of its node, until the end of the block. The chart is installed."""
    gpus, one = Product(cluster).gpus, cluster.node_names[0]
    progress(f"Giving all GPUs of {one} to another pod")
    _take_all(cluster, one)
    place = Place(NAMESPACE, one)
    files = {name: (FILES / name).read_text() for name in (NOTEBOOK, "gpu_work.py")}
    with cluster_lab.running(cluster, image, folder, files, progress, place) as lab:
        yield OtherNode(lab, cluster, gpus)


def _take_all(cluster: Cluster, node: str) -> None:
    own = ("--namespace", NAMESPACE)
    cluster.kubectl("create", *own, "-f", "-", stdin=json.dumps(pods.pod(NEIGHBOUR, node=node)))
    wish = {"generation": 1, "milli": 1000 * product.GPUS, "placement": "local"}
    cluster.kubectl("annotate", "pod", NEIGHBOUR, *own, f"{REQUESTED}={json.dumps(wish)}")
    attached = ("get", "pod", NEIGHBOUR, *own, "-o", r"jsonpath={.metadata.annotations.jupyter-gpu\.io/attached}")
    until(lambda: "uuid" in cluster.kubectl(*attached), cluster_lab.SECONDS, "the other pod to have them", every=0.2)
