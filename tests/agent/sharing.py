"""Pods that share a simulated GPU, with programs that use it through the gate: for tests of the agent."""

import json
import secrets
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu.backends import share_files
from jupyter_gpu.model.annotations import REQUESTED
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.kubelet import slot_records
from jupyter_gpu_node.kubelet.rules.slots import PodRef, SlotOwner
from tests.agent.stage import PATIENCE, Node, Pod
from tests.cluster.testbed import until
from tests.gate.building import ROOT, Built
from tests.gate.standin.board import Board
from tests.node.conftest import Child

PROGRAM = """
import threading, os
from tests.gate.standin import driver
count, failed = 0, ""
def work(microseconds, device):
    global count, failed
    try:
        if device:
            global held
            held = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)  # as the real driver does
        driver.start()
        kernel = driver.kernel(f"work_us{microseconds}")
        while True:
            driver.launch(kernel)
            driver.launch(kernel)
            driver.call("cuCtxSynchronize")
            count += 2
    except Exception as error:
        failed = repr(error)
"""


class Sharer:
    """A pod with slots, and its programs."""

    def __init__(self, scene: "Scene", pod: Pod, slots: Iterable[str]) -> None:
        self.scene = scene
        self.pod = pod
        self.slots = tuple(slots)

    def directory(self, slot: int = 0) -> Path:
        """Return the directory of one of its slots."""
        return Path(self.scene.node.settings["run"]) / "slots" / self.slots[slot]

    def socket(self, gpu: str, slot: int = 0) -> Path:
        """Return the socket of its share."""
        return self.directory(slot) / "shares" / f"{gpu}.sock"

    def use(self, gpu: str, slot: int = 0) -> ShareUse | None:
        """Return the content of the file of its share; none if there is no folder."""
        folder = self.directory(slot) / "shares"
        return share_files.read(folder, [gpu], 0).get(gpu) if folder.exists() else None

    def written(self, gpu: str) -> float:
        """Return when the file of its share was written, in seconds since 1970."""
        return float(json.loads((self.directory() / "shares" / f"{gpu}.json").read_text())["written"]) / 1000

    def saved(self, gpu: str) -> int:
        """Return its bank in the node's own copy."""
        path = Path(self.scene.node.settings["state"]) / "shares" / gpu / f"{self.pod.uid}.json"
        return sum(amount for amount, _ in json.loads(path.read_text())["deposits"])

    def program(self, gpu: str, slot: int = 0, mib: int = 1024) -> Child:
        """A process of the pod that can use the GPU, which has so much memory, as a CUDA program does."""
        built = self.scene.built
        child = Child(
            {
                "PYTHONPATH": f"{ROOT}",
                "LD_LIBRARY_PATH": str(built.gate),
                "JUPYTER_GPU_GATE": str(self.directory(slot) / "shares"),
                "JUPYTER_GPU_STANDIN": str(self.scene.boards),
                "JUPYTER_GPU_STANDIN_GPUS": f"{gpu}:{mib}",
                "JUPYTER_GPU_STANDIN_OWNER": self.pod.uid,
            }
        )
        self.pod.children.append(child)
        cgroup.enter(self.pod.group / "container", child.pid)
        child.run(PROGRAM)
        return child

    def busy(self, gpu: str, microseconds: int = 1000, device: Path | None = None) -> Child:
        """Start a program that uses the GPU without pause."""
        child = self.program(gpu)
        words = f"args=({microseconds}, {str(device) if device else None!r}), daemon=True"
        child.run(f"threading.Thread(target=work, {words}).start()")
        return child

    def wish(self, memory: int, milli: int = 250) -> None:
        """Request a share with this limit of memory, as its user does."""
        self.pod.annotate(REQUESTED, json.dumps({"generation": 1, "milli": milli, "memory": memory}))

    def served(self, gpu: str, milli: int) -> bool:
        """Say whether its file has this amount."""
        found = self.use(gpu)
        return found is not None and found.allocated == milli


class Scene:
    """A node with pods that share."""

    def __init__(self, node: Node, built: Built, folder: Path) -> None:
        self.node = node
        self.built = built
        self.boards = folder / secrets.token_hex(4)
        self.boards.mkdir(parents=True)
        self._claims: dict[str, SlotOwner] = {}
        self._gated: frozenset[str] = frozenset()

    def sharer(self, slots: int = 1, *, gated: bool = False) -> Sharer:
        """A pod with so many slots, its containers with the gate or not; the plugin knows them when it starts next."""
        pod = self.node.pod()
        names = [f"slot-{len(self._claims) + number:04}" for number in range(slots)]
        ref = PodRef(pod.uid, "default", pod.name)
        self._claims |= {name: SlotOwner(name, ref, f"main-{number}") for number, name in enumerate(names)}
        self._gated |= frozenset(names) if gated else frozenset()
        record = slot_records.SlotRecord(self._claims, gated=self._gated)
        slot_records.save(Path(self.node.settings["state"]) / "slots.json", record)
        return Sharer(self, pod, names)

    def start(self) -> None:
        """Start the plugin."""
        self.node.start()

    def board(self, gpu: str) -> Board:
        """Return the board of a GPU: the log of its work."""
        until(lambda: (self.boards / f"{gpu}.board").exists(), PATIENCE, "the first program to use the GPU")
        return Board(self.boards, gpu)

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric now."""
        for line in self.node.get("/metrics").splitlines():
            head, _, value = line.rpartition(" ")
            if head.split("{")[0] == name and all(f'{key}="{text}"' in head for key, text in labels.items()):
                return float(value)
        return None
