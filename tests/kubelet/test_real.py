"""A real kubelet and a real container runtime, with the plugin as a process of its own on that node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_node.settings import SLOT
from tests.cluster.testbed import Cluster, temporary_cluster, until
from tests.devices import EACH, first_minor

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(400)]

SECONDS = 90
SLOTS = 6
COUNT, FIRST_MINOR = EACH, first_minor()
TRY_ALL = """
look() { seen=; for n in 0 1 2 3; do
  path=/dev/jupyter-gpu/gpu$n
  if [ ! -c $path ]; then seen=$seen.; elif (: <>$path) 2>/dev/null; then seen=$seen+; else seen=$seen-; fi
done; echo "$1 $seen"; }
look first
"""
STAY = "until [ -e /crash ]; do sleep 0.2; look later; done; exit 1"


class Node:
    """The cluster's only node, and the plugin on it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.node = cluster.node("node1")
        self.state = self.node.path("/var/lib/jupyter-gpu")
        self.log = folder / "plugin.log"
        self.settings = folder / "settings.json"
        self.settings.write_text(
            json.dumps(
                {
                    "slots": SLOTS,
                    "simulated": {"count": COUNT, "firstMinor": FIRST_MINOR},
                    "reconcileSeconds": 0.5,
                    "kubeconfig": str(cluster.kubeconfig),
                }
            )
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the plugin, and wait until the kubelet offers its slots."""
        words = [*map(str, self.node.inside()), sys.executable, "-m", "tests.kubelet.host", str(self.settings)]
        with self.log.open("ab") as log:
            here = {**os.environ, "NODE_NAME": self.node.name}
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=here)
        self.wait_for_slots(SLOTS)

    def end(self, how: int = signal.SIGTERM) -> int:
        """End the plugin; its exit status."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(how)
        return process.wait(SECONDS)

    def wait_for_slots(self, count: int) -> None:
        """Until the node says it has so many."""

        def there() -> bool:
            assert self.process is None or self.process.poll() is None, self.log.read_text()
            text = self.cluster.kubectl("get", "node", "node1", "-o", "jsonpath={.status.allocatable}")
            return bool(json.loads(text).get(SLOT, "0") == str(count))

        until(there, SECONDS, f"{count} slots; the plugin says {self.log.read_text()[-2000:]}")

    def create(self, name: str, script: str = STAY, *, slots: int = 1, wait: bool = True, **spec: Any) -> None:
        """Create a pod with a slot, straight on the node, past the scheduler."""
        amount = {SLOT: str(slots), "cpu": "1m"}
        main = {
            "name": "main",
            "image": "busybox:1",
            "command": ["sh", "-c", f"{TRY_ALL}\n{script}"],
            "resources": {"limits": amount},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": "node1", "terminationGracePeriodSeconds": 0, "containers": [main], **spec},
        }
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        if wait:
            self.cluster.kubectl(
                "wait", "--for=condition=Ready", f"--timeout={SECONDS}s", f"pod/{name}", seconds=SECONDS + 10
            )

    def get(self, name: str) -> Any:
        """The pod."""
        return json.loads(self.cluster.kubectl("get", "pod", name, "-o", "json"))

    def lines(self, name: str) -> list[str]:
        """Return the lines that the pod wrote."""
        return self.cluster.kubectl("logs", name).splitlines()

    def first(self, name: str) -> str:
        """Return the first line of the container: what it found before anything else."""
        return until(lambda: self.lines(name), SECONDS, f"the first line of {name}")[0]

    def calls(self, name: str) -> list[list[str]]:
        """Return the guard's calls for the pod."""
        file, uid = self.state / "calls", self.get(name)["metadata"]["uid"]
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in found if call[0] == uid]

    def events(self, name: str) -> str:
        """Messages of the pod's events."""
        words = ["get", "events", f"--field-selector=involvedObject.name={name}", "-o", "jsonpath={.items[*].message}"]
        return self.cluster.kubectl(*words)

    def hears(self, name: str, words: str) -> None:
        """Wait for an event of the pod."""

        def has_come() -> bool:
            assert words in (text := self.events(name)), f"{text} {self.get(name)['status']}"
            return True

        until(has_come, SECONDS, f"the event {words!r}")

    def restarts(self, name: str) -> int:
        """Return the number of restarts of the pod's container that runs."""
        (status,) = self.get(name)["status"]["containerStatuses"]
        return int(status["restartCount"]) if status["state"].get("running") else -1

    def crash(self, name: str) -> None:
        """End the pod's container from inside."""
        script = "(sleep 0.2; touch /crash) >/dev/null 2>&1 & echo soon"
        words = ["exec", name, "--", "sh", "-c", script]
        until(lambda: self.cluster.kubectl(*words), SECONDS, f"{name} to be told to crash")

    def reconciled(self) -> Any:
        """The last comparison of all slots."""
        file = self.state / "reconciled"
        return json.loads(file.read_text()) if file.exists() else {"unguarded": [], "known": {}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose plugin runs."""
    with temporary_cluster(nodes=1) as cluster:
        made = Node(cluster, tmp_path_factory.mktemp("plugin"))
        try:
            made.start()
            yield made
        finally:
            if made.process is not None:
                made.end()


@pytest.fixture
def create(node: Node) -> Iterator[Callable[..., None]]:
    """Makes pods that are gone after the test."""
    names: list[str] = []

    def make(name: str, script: str = STAY, **more: Any) -> None:
        names.append(name)
        node.create(name, script, **more)

    yield make
    if node.process is None:
        node.start()
    for name in names:
        node.cluster.kubectl("delete", "pod", name, "--ignore-not-found")


Create = Callable[..., None]


def test_container_has_all_devices_and_can_open_none_from_its_first_line_on(node: Node, create: Create) -> None:
    """The guard is called for that pod each time, after a restart too."""
    create("first")
    assert node.first("first") == "first ----"
    assert [call[1:3] for call in node.calls("first")] == [["first", "main"]]
    script = "echo $JUPYTER_GPU_NODE_SOCKET $NVIDIA_VISIBLE_DEVICES; touch /run/jupyter-gpu/x 2>&1 || echo read-only"
    answer = node.cluster.kubectl("exec", "first", "--", "sh", "-c", script)
    assert answer.startswith("/run/jupyter-gpu/node.sock void\n")
    assert answer.endswith("read-only\n")
    node.crash("first")
    until(lambda: node.restarts("first") == 1, SECONDS, "the container to start again")
    assert node.first("first") == "first ----"
    assert len(node.calls("first")) == 2
    until(lambda: "first" in node.reconciled()["known"].values(), SECONDS, "a record of the slot")


def test_two_slots_are_refused_in_words(node: Node, create: Create) -> None:
    """The pod fails, and says why."""
    create("greedy", slots=2, wait=False)
    until(lambda: node.get("greedy")["status"].get("phase") == "Failed", SECONDS, "the pod to fail")
    assert "asks for 2 slots" in node.get("greedy")["status"]["message"]


def test_refusing_guard_keeps_the_container_from_starting(node: Node, create: Create) -> None:
    """Its words are in the events of the pod; when it does not refuse any more, the kubelet tries again by itself."""
    refuse = node.state / "refuse"
    refuse.write_text("the pod cannot be closed today")
    try:
        create("refused", wait=False)
        node.hears("refused", "cannot be closed today")
        assert not node.get("refused")["status"]["containerStatuses"][0]["state"].get("running")
    finally:
        refuse.unlink()
    until(lambda: node.restarts("refused") == 0, SECONDS, "the container to start")
    assert node.first("refused") == "first ----"


def test_init_container_with_a_slot_is_closed_too(node: Node, create: Create) -> None:
    """PodResources does not list it; and its slot passes on to the container."""
    limits = {SLOT: "1"}
    setup = {"name": "setup", "image": "busybox:1", "command": ["sh", "-c", TRY_ALL], "resources": {"limits": limits}}
    create("initial", initContainers=[setup])
    assert node.cluster.kubectl("logs", "initial", "--container=setup").splitlines() == ["first ----"]
    assert node.first("initial") == "first ----"
    assert {call[3] for call in node.calls("initial")} == {node.calls("initial")[0][3]}
    assert len(node.calls("initial")) == 2


def test_restarted_kubelet_gets_the_plugin_again(node: Node, create: Create) -> None:
    """Pods go on, new ones are served, and a container that starts again is asked about."""
    create("stays")
    node.cluster.kill("kubelet@node1")
    node.cluster.start("kubelet@node1")
    create("next")
    assert node.first("next") == "first ----"
    assert node.restarts("stays") == 0
    before = len(node.calls("stays"))
    node.crash("stays")
    until(lambda: node.restarts("stays") == 1, SECONDS, "the container to start again")
    assert len(node.calls("stays")) == before + 1
    assert node.process is not None
    assert node.process.poll() is None


def test_while_the_plugin_is_dead_no_container_with_a_slot_starts(node: Node, create: Create) -> None:
    """Running pods stay closed. A new plugin knows the owners of the slots, and the kubelet goes on by itself."""
    create("survivor")
    assert node.end(signal.SIGKILL) == -signal.SIGKILL
    node.wait_for_slots(0)
    node.crash("survivor")
    node.hears("survivor", "has been stopped")
    (node.state / "reconciled").unlink(missing_ok=True)
    node.start()
    until(lambda: "survivor" in node.reconciled()["known"].values(), SECONDS, "the record")
    until(lambda: node.restarts("survivor") == 1, SECONDS, "the container to start again")
    assert not any("+" in line for line in node.lines("survivor"))


def test_container_that_starts_without_a_plugin_is_still_closed(node: Node, create: Create) -> None:
    """A restarted kubelet does not ask before a start until the plugin is back; the program on the pod holds."""
    create("gap")
    before = len(node.calls("gap"))
    node.end()
    node.cluster.restart("kubelet@node1")
    node.crash("gap")
    until(lambda: node.restarts("gap") == 1, SECONDS, "the container to start again")
    assert node.first("gap") == "first ----"
    assert len(node.calls("gap")) == before
    node.start()


def test_pod_admitted_without_allocate_is_reported(node: Node, create: Create) -> None:
    """A kubelet that lost its checkpoint starts such a pod without a question: it has no device, so no leak."""
    create("before")
    node.end()
    node.cluster.stop("kubelet@node1")
    (node.node.path("/var/lib/kubelet/device-plugins") / "kubelet_internal_checkpoint").unlink()
    create("unguarded", wait=False)
    node.cluster.start("kubelet@node1")
    until(lambda: node.restarts("unguarded") == 0, SECONDS, "the pod to run")
    assert node.first("unguarded") == "first ...."
    node.start()
    until(lambda: ["unguarded", "main"] in node.reconciled()["unguarded"], SECONDS, "the report")
    assert ["before", "main"] not in node.reconciled()["unguarded"]
    create("after")
    slots = {call[3] for call in node.calls("after")}
    assert not slots & {call[3] for call in node.calls("before")}
