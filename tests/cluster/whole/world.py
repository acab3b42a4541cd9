"""The installed product, and one test's corner of it: pods, wishes, waiting, and words about what went wrong."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import INVENTORY, REQUESTED, decode_inventory
from jupyter_gpu.model.gpu import Gpu
from tests.cluster.testbed import Cluster, Existing, binaries, until
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.testbed.node import Node
from tests.cluster.whole import pods, prober
from tests.cluster.whole.history import History, watching
from tests.cluster.whole.judge import Verdict, attempts, judge
from tests.cluster.whole.states import Asked, PodState, openings
from tests.deploy import product as chart

T = TypeVar("T")

SECONDS = 90.0
"""Patience with what should take less than one: two busy cores."""
NOTEBOOKS = (chart.NOTEBOOKS,)
"""Namespaces whose pods may ask for themselves, with their own tokens."""
REMOTE = "jupyter-gpu-test-remote"
"""Namespace of notebooks that may have workers on other nodes."""
MEMORY = "768Mi"
"""Limit of each worker there."""
PEOPLE = "jupyter-gpu-test-people"
"""Name and namespace of a hub whose servers have a namespace for each user."""


@dataclass(frozen=True)
class Product:
    """The installed product."""

    cluster: Cluster

    @property
    def gpus(self) -> dict[str, tuple[Gpu, ...]]:
        """By node, as the node plugins tell."""
        found = json.loads(self.cluster.kubectl("get", "nodes", "--output", "json"))["items"]
        return {
            node["metadata"]["name"]: decode_inventory(node["metadata"].get("annotations", {}).get(INVENTORY, "[]"))
            for node in found
        }

    @property
    def slots(self) -> dict[str, int]:
        """By node, how many containers with a slot it has room for."""
        found = json.loads(self.cluster.kubectl("get", "nodes", "--output", "json"))["items"]
        return {node["metadata"]["name"]: int(node["status"].get("allocatable", {}).get(SLOT, 0)) for node in found}

    @property
    def ready(self) -> bool:
        """Whether every node reports its GPUs and has slots."""
        gpus, slots = self.gpus, self.slots
        return all(len(gpus.get(name, ())) == chart.GPUS and slots.get(name) for name in self.cluster.node_names)

    @property
    def notebook(self) -> str:
        """The product's notebook image, which is large: on the first node only."""
        return chart.load(self.cluster, "notebook", node=self.cluster.node_names[0])["notebook"].reference

    def component(self, name: str) -> list[dict[str, Any]]:
        """Pods of a part of the product: node, scheduler, kube-scheduler."""
        words = ("get", "pods", "-n", chart.NAMESPACE, "-l", f"app.kubernetes.io/component={name}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(self.cluster.kubectl(*words))["items"]
        return found

    def logs(self, lines: int = 25) -> str:
        """The end of what the product's containers write, from the nodes' own files: also while nothing answers."""
        if isinstance(self.cluster, Existing):
            words = ("--all-containers", "--prefix", f"--tail={lines}", "--selector=app.kubernetes.io/name=jupyter-gpu")
            return self.cluster.kubectl("logs", "--namespace", chart.NAMESPACE, *words)
        found = []
        for node in self.cluster.nodes:
            for log in sorted(node.path("/var/log/pods").glob(f"{chart.NAMESPACE}_*/*/*.log"), key=os.path.getmtime):
                text = log.read_text(errors="replace").splitlines()[-lines:]
                found.append(f"--- {node.name} {log.parent.parent.name.split('_')[1]} {log.name}\n" + "\n".join(text))
        return "\n".join(found)


@contextmanager
def installed() -> Iterator[Product]:
    """The product on a cluster with two nodes, until the end of the block; as it is, where it is installed already."""
    with chart.some_cluster() as cluster:
        if chart.RELEASE not in cluster.helm("list", "--short", "--namespace", chart.NAMESPACE).split():
            for name in (*NOTEBOOKS, REMOTE):
                namespace(cluster, name)
            own = (*NOTEBOOKS, REMOTE)
            allowed = [{"namespace": name, "serviceAccounts": ["default", "notebook"]} for name in own]
            hubs: list[dict[str, Any]] = [{"namespace": name, "serviceAccount": "hub"} for name in NOTEBOOKS]
            own_namespaces = {"namespace": PEOPLE, "serviceAccount": "hub", "notebookNamespaces": ["*"]}
            hubs.append({"name": PEOPLE, **own_namespaces})
            chart.install(
                cluster,
                notebooks={"namespaces": allowed},
                hubs=hubs,
                scheduler={"replicas": 2, "settings": {"lending": True}},
                node={"settings": {"openSeconds": 1, "restSeconds": 1}},
                limits={"askAtCreation": True},  # Jobs begin with a request
                workers={"enabled": True, "namespaces": [REMOTE], "pod": {"resources": {"limits": {"memory": MEMORY}}}},
            )
        product = Product(cluster)
        try:
            until(lambda: product.ready, SECONDS, "both nodes to tell of their GPUs")
        except Exception as error:
            raise AssertionError(f"{error}\n{product.logs()}") from error
        yield product


class World:
    """A namespace, its pods, and the history of both."""

    def __init__(self, product: Product, namespace: str, history: History) -> None:
        self.product = product
        self.cluster = product.cluster
        self.namespace = namespace
        self.history = history
        self.gpus = product.gpus
        self.pod = history.pod
        self.asked: dict[str, list[Asked]] = {}
        """Wishes that were written, by pod."""

    # -- doing ---------------------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator, in this namespace."""
        return self.cluster.kubectl("--namespace", self.namespace, *words, stdin=stdin)

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Pods and what they need."""
        self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def run(self, *wanted: Mapping[str, Any]) -> None:
        """Create pods and wait until they run and have all that they asked for."""
        self.create(*wanted)
        for each in wanted:
            name = str(each["metadata"]["name"])
            self.until(lambda name=name: self.satisfied(name), f"{name} to run with what it asked for")  # type: ignore[misc]

    def ask(self, name: str, wants: object) -> None:
        """Write a wish as a person does at a terminal."""
        with self.asking(name, pods.wish(wants)):
            self.kubectl("annotate", "--overwrite", "pod", name, f"{REQUESTED}={pods.wish(wants)}")

    @contextmanager
    def asking(self, name: str, text: str) -> Iterator[None]:
        """The block writes a wish: remembered with its time, for the judge of what the pod opened when."""
        start, wishes = time.monotonic(), self.asked.setdefault(name, [])
        wishes.append(Asked(start, math.inf, text))
        place = len(wishes) - 1
        yield
        wishes[place] = Asked(start, time.monotonic(), text)

    def delete(self, *names: str, wait: bool = True) -> None:
        """Delete a pod as usual: it is asked to end, and gone when it has."""
        self.kubectl("delete", "pod", *names, f"--wait={str(wait).lower()}")

    def exec(self, name: str, *words: str, container: str = "") -> str:
        """Return what a command in the pod prints, in its first container if no other is named."""
        return self.kubectl("exec", name, *([f"--container={container}"] if container else []), "--", *words)

    def opens(self, name: str, path: str, *, container: str = "") -> bool:
        """Whether a process of the pod can open the device; anything but yes and "not permitted" is an error."""
        try:
            self.exec(name, "sh", "-c", f"[ -c {path} ] || exit 99; exec 3<>{path}", container=container)
        except CommandFailed as error:
            if "not permitted" in error.output:
                return False
            raise
        return True

    @contextmanager
    def holding(self, name: str, path: str) -> Iterator[None]:
        """A process of the pod has the device open, until the end of the block."""
        command = f"exec 3<>{path}; echo held; read line"
        flags = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        words = [str(binaries.path("kubectl")), *flags, "exec", "-i", name, "--", "sh", "-c", command]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(words, **pipes, text=True) as process:
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            try:
                assert process.stdout
                assert process.stdout.readline().strip() == "held", f"{path} cannot be held open in {name}"
                yield
            finally:
                timer.cancel()
                assert process.stdin
                with suppress(BrokenPipeError):
                    process.stdin.close()  # `read` ends, and the shell with it
                process.wait(SECONDS)

    @contextmanager
    def forwarded(self, name: str, port: int) -> Iterator[int]:
        """The port of this machine that leads to that port of a pod, until the end of the block."""
        flags = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        words = [
            str(binaries.path("kubectl")),
            *flags,
            "port-forward",
            f"pod/{name}",
            f":{port}",
            "--address=127.0.0.1",
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout
                line = process.stdout.readline()  # Forwarding from 127.0.0.1:40123 -> 8888
                assert "->" in line, f"kubectl cannot forward port {port} of {name}."
                yield int(line.partition("->")[0].rpartition(":")[2])
            finally:
                process.kill()

    # -- looking -------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        """The first true answer; asked after each change of a pod. Fails with all that is known."""
        answer = self.history.wait(condition, seconds)
        if not answer:
            raise AssertionError(f"Waited {seconds:.0f} s for {what}, in vain.\n{self.report()}")
        return answer

    def satisfied(self, name: str) -> bool:
        """Whether the pod runs, and what it wants is decided and so."""
        state = self.pod(name)
        done = state.settled and sum(state.usable.values()) == state.wanted
        return state.ready and done and (state.requested is None or state.attached is not None or not state.wanted)

    def has(self, name: str, milli: int) -> PodState:
        """Wait until the pod runs, and this is decided for it and so."""

        def condition() -> PodState | None:
            state = self.pod(name)
            return state if state.ready and state.settled and sum(state.usable.values()) == milli else None

        found = self.until(condition, f"{name} to have {milli} milli of GPUs")
        assert found
        return found

    @property
    def one(self) -> str:
        """Name of the first node."""
        return self.cluster.node_names[0]

    @property
    def two(self) -> str:
        """Name of the second node."""
        return self.cluster.node_names[1]

    def path_of(self, uuid: str) -> str:
        """Return the path of that GPU in containers."""
        return next(gpu.path for gpus in self.gpus.values() for gpu in gpus if gpu.uuid == uuid)

    def devices(self, node: str) -> list[str]:
        """Paths of all GPUs of a node."""
        return [gpu.path for gpu in self.gpus[node]]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of each event about a pod."""
        words = ("get", "events", "--field-selector", f"involvedObject.name={name}", "--output", "json")
        return [(each["reason"], each["message"]) for each in json.loads(self.kubectl(*words))["items"]]

    def event(self, name: str, what: str, condition: Callable[[str, str], bool]) -> str:
        """The message of the first event about a pod of which the condition is true."""

        def first() -> str:
            return next((message for reason, message in self.events(name) if condition(reason, message)), "")

        try:
            return until(first, SECONDS, f"an event of {name}: {what}", every=0.5)
        except Exception as error:
            raise AssertionError(f"{error}\n{self.report()}") from error

    def node_of(self, name: str) -> Node:
        """Return the node of the pod."""
        return self.cluster.node(self.pod(name).node)

    # -- probers -------------------------------------------------------------------------------------------------------

    def programs(self, **files: str) -> None:
        """A ConfigMap `programs` with the prober, and files beside it."""
        there = pods.config_map("programs", {"prober.py": Path(prober.__file__).read_text(), **files})
        self.kubectl("apply", "-f", "-", stdin=json.dumps(there))

    def probe_log(self, state: PodState) -> list[dict[str, object]]:
        """Return what the prober of a pod has written, read on its node."""
        folder = f"/var/lib/kubelet/pods/{state.uid}/volumes/kubernetes.io~empty-dir/logs/probe"
        text = self.cluster.node(state.node).path(folder).read_text()
        return [json.loads(line) for line in text[: text.rindex("\n")].splitlines()]

    def attempts(self, state: PodState) -> int:
        """Return the number of attempts by the prober of a pod to open a device."""
        return attempts(self.probe_log(state))

    def probed(self, name: str) -> Verdict:
        """The judge's word about the prober of a pod, once it has said something after what was heard last."""
        state, now = self.pod(name), time.monotonic()

        def caught_up() -> list[dict[str, object]] | None:
            lines = self.probe_log(state)
            return lines if float(str(lines[-1]["time"])) > now else None

        lines = until(caught_up, SECONDS, f"the prober of {name} to go on", every=0.2)
        assert lines
        found = openings(self.history.of(state.uid), self.gpus[state.node], self.asked.get(name, ()))
        return judge(lines, found.may, found.must)

    # -- telling -------------------------------------------------------------------------------------------------------

    def report(self) -> str:
        """Return all that helps to understand a failure that cannot be repeated."""
        found = ["Pods:"]
        for state in self.history.pods():
            about = f"{state.node} {state.phase}{' deleting' if state.deleting else ''}, {state.restarts} restarts"
            notes = "".join(f"\n    {key}: {text}" for key, text in sorted(state.annotations.items()))
            found.append(f"  {state.name} ({state.uid[:8]}) {about} {state.ended}{notes}")
        with suppress(Exception):
            words = ("get", "events", "--sort-by=.lastTimestamp", "--no-headers")
            found += ["Events:", *self.kubectl(*words).splitlines()[-30:]]
        found += ["Rules that did not hold:", *self.history.broken[-10:], "Logs:", self.product.logs()]
        return "\n".join(found)


def namespace(cluster: Cluster, name: str) -> None:
    """Make it, unless it is there, and wait for the account that pods need."""
    cluster.namespace(name)
    until(lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", name), what=f"the namespace {name}")


@contextmanager
def world(product: Product, name: str) -> Iterator[World]:
    """A namespace of its own; at the end its pods are gone, their GPUs free, and the rules held all the time."""
    namespace(product.cluster, name)
    with watching(product.cluster.kubeconfig, name) as history:
        found = World(product, name, history)
        try:
            yield found
            assert not history.broken, f"{history.broken[:10]}\n{found.report()}"
        finally:
            found.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
            gone = history.wait(lambda: not history.pods(), SECONDS)
        assert gone, f"Pods do not end.\n{found.report()}"
