"""A node whose GPUs two device plugins give away: a real kubelet, our whole plugin, and one as NVIDIA's beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.annotations import ALLOCATED, INVENTORY, Allocated, decode_inventory, encode
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_node.settings import SLOT
from tests.cluster.testbed import Cluster, temporary_cluster, until
from tests.devices import EACH, first_minor
from tests.kubelet.second_plugin import RESOURCE

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(400)]
SECONDS = 90
UUIDS = tuple(simulated.uuid_of(index, "node1") for index in range(EACH))
NAMES = {
    "known": "MIG-0f3c1ac5-5c3b-5a0e-9f0a-6a8f4d1e2b01",
    "late": "MIG-0f3c1ac5-5c3b-5a0e-9f0a-6a8f4d1e2b02",
}
KEEP = "for n in 1 2 3; do [ -c /dev/nvidia$n ] && { exec 3<>/dev/nvidia$n && echo has $n; }; done; sleep 1000"
"""Opens one and keeps it."""
TRY = """mkdir -p /dev/made; for n in 0 1 2 3; do
  [ -c /dev/jupyter-gpu/gpu$n ] && a=n || a=.
  [ -c /dev/made/$n ] || mknod /dev/made/$n c 4 $(({first} + $n))
  if (: <>/dev/made/$n) 2>/dev/null; then printf "$a+ "; else printf "$a- "; fi; done; echo"""
"""A script that prints for each GPU whether there is a node, and whether one that it makes itself can be opened."""


class Shared:
    """The node and both plugins."""

    GPUS = "/var/lib/jupyter-gpu/simulated"

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._node = cluster.node("node1")
        self.offered = folder / "offered.json"
        self.offer(2, 3)
        pins, settings = folder / "bpf", folder / "settings.json"
        pins.mkdir()
        self.run("mount", "-t", "bpf", "bpf", str(pins)).wait(SECONDS)
        settings.write_text(
            json.dumps(
                {
                    "slots": 4,
                    "simulated": {"count": EACH, "firstMinor": first_minor()},
                    "managed": {"uuids": [], "nodes": {"node1": {"indexes": [0, 1]}}},
                    "pins": str(pins / "jupyter-gpu"),
                    "auditSeconds": 0.3,
                    "inventorySeconds": 0.5,
                    "port": 0,
                    "kubeconfig": str(cluster.kubeconfig),
                }
            )
        )
        self.processes = [self.run(sys.executable, "-m", "jupyter_gpu_node", "--settings", str(settings))]
        self.allocatable(SLOT, 4)
        plugins, devices = "/var/lib/kubelet/device-plugins", "/var/lib/jupyter-gpu/devices"
        second = (sys.executable, "-m", "tests.kubelet.second_plugin", plugins, str(self.offered), devices)
        self.processes.append(self.run(*second))
        self.allocatable(RESOURCE, 2)

    def run(self, *words: str) -> subprocess.Popen[bytes]:
        """A process on the node."""
        here = {**os.environ, "NODE_NAME": "node1"}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*map(str, self._node.inside()), *words], stdout=log, stderr=log, env=here)

    def offer(self, *indexes: int, **instances: int) -> None:
        """GPUs, and by their names instances of a GPU, that the second plugin gives away."""
        draft = self.folder / "offered.new"
        named = {NAMES[name]: index for name, index in instances.items()}
        draft.write_text(json.dumps({UUIDS[index]: index for index in indexes} | named))
        draft.replace(self.offered)

    def divide(self, index: int, *names: str) -> None:
        """Have the driver report these instances of a GPU."""
        words = [self.GPUS, UUIDS[index], *(NAMES[name] for name in names)]
        driver = self.run(sys.executable, "-m", "jupyter_gpu_node.gpus.simulated_instances", *words)
        assert driver.wait(SECONDS) == 0, self.log()[-3000:]

    def whole(self, index: int) -> None:
        """It is in MIG mode no more."""
        self.run("rm", "-f", f"{self.GPUS}/instances/{UUIDS[index]}").wait(SECONDS)

    def allocatable(self, resource: str, count: int) -> None:
        """Until the node has so many."""

        def there() -> bool:
            found = json.loads(self.cluster.kubectl("get", "node", "node1", "-o", "json"))["status"]["allocatable"]
            return bool(found.get(resource, "0") == str(count))

        until(there, SECONDS, f"{count} {resource}: {(self.folder / 'log').read_text()[-3000:]}")

    def create(self, name: str, script: str, **limits: int) -> None:
        """A pod that runs."""
        amounts = {key: str(value) for key, value in limits.items()}
        main = {"name": "main", "image": "busybox:1", "command": ["sh", "-c", script], "resources": {"limits": amounts}}
        spec = {
            "nodeName": "node1",
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
        }  # 0: forgotten while it runs
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        words = ["wait", "--for=condition=Ready", f"--timeout={SECONDS}s", f"pod/{name}"]
        self.cluster.kubectl(*words, seconds=SECONDS + 10)

    def allocate(self, name: str, *uuids: str, generation: int = 1) -> None:
        """Allocate as the scheduler does."""
        text = encode(Allocated(generation, tuple(GpuShare(uuid, 1000) for uuid in uuids)))
        patch = json.dumps({"metadata": {"annotations": {ALLOCATED: text}}})
        self.cluster.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)

    def tries(self, name: str) -> str:
        """Return the devices that the pod can open."""
        return self.cluster.kubectl("exec", name, "--", "sh", "-c", TRY.format(first=first_minor())).strip()

    def inventory(self) -> tuple[Gpu, ...]:
        """Return the inventory that the node publishes."""
        node = json.loads(self.cluster.kubectl("get", "node", "node1", "-o", "json"))
        return decode_inventory(node["metadata"]["annotations"].get(INVENTORY, "[]"))

    def events(self) -> list[tuple[str, str]]:
        """Reasons and messages of the node's."""
        words = ["get", "events", "-A", "--field-selector=involvedObject.kind=Node", "-o", "json"]
        found: list[dict[str, Any]] = json.loads(self.cluster.kubectl(*words))["items"]
        return [(one["reason"], one["message"]) for one in found]

    def restarts(self, name: str) -> int:
        """Return how often its container was restarted."""
        pod = json.loads(self.cluster.kubectl("get", "pod", name, "-o", "json"))
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    def log(self) -> str:
        """Return the log of both plugins."""
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The node."""
    with temporary_cluster(nodes=1) as cluster:
        made = Shared(cluster, tmp_path_factory.mktemp("shared"))
        try:
            yield made
        finally:
            for process in made.processes:
                process.terminate()
                process.wait(30)
            made.run("umount", str(made.folder / "bpf")).wait(SECONDS)


def test_node_is_shared_with_another_device_plugin(shared: Shared) -> None:
    """Our GPUs are reported and given, the others are closed to us and left alone; one that both give away is reported,
    and is given to no pod until only one does.
    """
    assert [gpu.index for gpu in shared.inventory()] == [0, 1]
    shared.create("theirs", KEEP, **{RESOURCE: 2})
    shared.create("ours", "sleep 1000", **{SLOT: 1})
    assert shared.tries("ours") == "n- n- .- .-"
    shared.allocate("ours", UUIDS[0])
    until(lambda: shared.tries("ours") == "n+ n- .- .-", SECONDS, "the grant")
    shared.allocate("ours", UUIDS[0], UUIDS[2], generation=2)
    until(lambda: shared.tries("ours") == "n+ n- .- .-", SECONDS, "nothing of others, whatever is decided")
    assert shared.restarts("theirs") == 0
    assert "GpuHasTwoOwners" not in dict(shared.events())

    shared.offer(1, 2, 3)
    shared.allocatable(RESOURCE, 3)
    shared.create("both", KEEP, **{RESOURCE: 1})
    until(lambda: "GpuHasTwoOwners" in dict(shared.events()), SECONDS, "the event")
    assert "default/both" in dict(shared.events())["GpuHasTwoOwners"]
    until(lambda: not shared.inventory()[1].healthy, SECONDS, "the GPU to be unhealthy")
    assert "nvidia.com/gpu" in shared.inventory()[1].health
    shared.allocate("ours", UUIDS[0], UUIDS[1], generation=3)
    until(lambda: "has 1" in shared.cluster.kubectl("logs", "both"), SECONDS, "the other owner to have it open")
    for _ in range(5):
        assert shared.tries("ours") == "n+ n- .- .-"
    assert [shared.restarts(name) for name in ("theirs", "both", "ours")] == [0, 0, 0], shared.log()[-3000:]
    assert "GpuIntruder" not in dict(shared.events())

    shared.cluster.kubectl("delete", "pod", "both", seconds=SECONDS)
    until(lambda: shared.tries("ours") == "n+ n+ .- .-", SECONDS, "the grant, now that it has one owner")
    until(lambda: "GpuHasOneOwner" in dict(shared.events()), SECONDS, "the event")


def test_instance_of_an_own_gpu_gives_it_two_owners(shared: Shared) -> None:
    """NVIDIA's device plugin names an instance by a uuid of its own. Its GPU has two owners then and is given to no
    pod, and a user of the instance is not ended, not even while the driver does not report which GPU that is.
    """
    if "pod/ours" not in shared.cluster.kubectl("get", "pods", "-o", "name"):  # where only this test is run
        shared.create("theirs", KEEP, **{RESOURCE: 2})
        shared.create("ours", "sleep 1000", **{SLOT: 1})
    shared.allocate("ours", UUIDS[0], generation=4)
    until(lambda: shared.tries("ours") == "n+ n- .- .-", SECONDS, "one GPU to be given back")
    shared.offer(2, 3)
    shared.allocatable(RESOURCE, 2)
    shared.divide(1, "known")
    until(lambda: "MIG mode" in shared.inventory()[1].health, SECONDS, "the GPU to be unhealthy")
    for count, (name, offered) in enumerate({"part": {"known": 1}, "other-part": {"known": 1, "late": 1}}.items(), 3):
        shared.offer(2, 3, **offered)
        shared.allocatable(RESOURCE, count)
        shared.create(name, KEEP, **{RESOURCE: 1})
        until(lambda name=name: "has 1" in shared.cluster.kubectl("logs", name), SECONDS, "its user to have it open")  # type: ignore[misc]

    def is_reported(name: str) -> bool:
        return any(reason == "GpuHasTwoOwners" and name in text for reason, text in shared.events())

    until(lambda: is_reported(NAMES["known"]), SECONDS, "the event")
    assert NAMES["known"] in shared.inventory()[1].health
    assert shared.inventory()[0].healthy, "the driver says that this one is whole"
    shared.allocate("ours", UUIDS[0], UUIDS[1], generation=5)
    for _ in range(5):
        assert shared.tries("ours") == "n+ n- .- .-"
    assert [shared.restarts(name) for name in ("part", "other-part")] == [0, 0], shared.log()[-3000:]

    shared.cluster.kubectl("delete", "pod", "part", seconds=SECONDS)
    until(lambda: NAMES["late"] in shared.inventory()[1].health, SECONDS, "the claim that is left")
    assert "may have been given" in shared.inventory()[1].health
    shared.divide(1, "known", "late")
    until(lambda: f"Its instance {NAMES['late']}" in shared.inventory()[1].health, SECONDS, "the driver's word")
    assert shared.restarts("other-part") == 0, shared.log()[-3000:]
    assert "GpuIntruder" not in dict(shared.events()), shared.log()[-3000:]

    shared.cluster.kubectl("delete", "pod", "other-part", seconds=SECONDS)
    shared.whole(1)
    until(lambda: shared.tries("ours") == "n+ n+ .- .-", SECONDS, "the grant, now that it is whole and has one owner")
