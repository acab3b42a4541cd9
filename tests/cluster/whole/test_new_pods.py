"""New pods beside running ones: the order of service, the reasons where there is no room, nodes and pods that go."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kube.rules.objects import finished
from jupyter_gpu.model.annotations import Reason
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED
from jupyter_gpu_scheduler.rules.state.resources import amounts, pod_requests
from tests.cluster.testbed import until
from tests.cluster.whole import pods
from tests.cluster.whole.faults import processes
from tests.cluster.whole.world import SECONDS, World
from tests.deploy import product as chart

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product


@pytest.mark.existing
def test_waiting_pod_starts_when_another_shrinks(corner: World) -> None:
    """kube-scheduler is woken by the very annotation that says that the GPU is closed."""
    corner.run(pods.pod("rich", wants=4, node=corner.one))
    corner.create(pods.pod("waiting", wants=1, node=corner.one))
    corner.event("waiting", "there is no room", lambda reason, _: reason == "FailedScheduling")
    before = corner.history.moments[-1].number
    corner.ask("rich", 3)
    corner.has("waiting", 1000)
    freed = corner.history.first("rich", lambda state: len(state.held) == 3, after=before)
    bound = corner.history.first("waiting", lambda state: state.node, after=before)
    assert freed.number < bound.number, "It was bound before the GPU was free."
    assert bound.state.granted, "Place and GPUs are one transaction."
    print(f"\nfreeing annotation → bound: {(bound.heard - freed.heard) * 1000:.0f} ms")


@pytest.mark.existing
def test_new_pods_and_resizes_stand_in_one_line(corner: World) -> None:
    """The higher priority comes first, then the older wish, whether the pod runs or is new."""
    names = ("running", "important", "later")
    corner.run(pods.pod("rich", wants=4, node=corner.one), pods.pod("running", node=corner.one))
    corner.ask("running", {"generation": 1, "milli": 1000})
    corner.until(lambda: corner.pod("running").allocated, "the resize to stand in line")
    for name, wants in (("important", {"generation": 1, "milli": 1000, "priority": 5}), ("later", 1)):
        corner.create(pods.pod(name, wants=wants, node=corner.one))
        corner.event(name, "there is no room", lambda reason, _: reason == "FailedScheduling")
    for left in (3, 2, 1):
        corner.ask("rich", left)
        corner.until(lambda left=left: _served(corner, names) == 4 - left, f"{4 - left} to be served")  # type: ignore[misc]
    order = sorted(names, key=lambda name: corner.history.first(name, lambda state: state.granted).number)
    assert order == ["important", "running", "later"]


def _served(corner: World, names: tuple[str, ...]) -> int:
    return sum(bool(corner.pod(name).granted) for name in names)


@pytest.mark.existing
def test_pods_that_start_without_a_wish_can_have_one_later(corner: World) -> None:
    """Five notebooks at once, one node with one GPU left and the other with four: each has one when it wants it."""
    corner.run(pods.pod("rich", wants=3, node=corner.one))
    names = [f"note{number}" for number in range(5)]
    corner.create(*(pods.pod(name) for name in names))
    corner.until(lambda: all(corner.pod(name).node for name in names), "all to have a node")
    assert [corner.pod(name).node for name in names].count(corner.one) == 1
    for name in names:
        corner.ask(name, 1)
    for name in names:
        corner.has(name, 1000)


@pytest.mark.existing
def test_event_names_the_missing_resource_of_each_node(corner: World) -> None:
    """It has words for each node; a wish that no node can ever serve is reported at once too."""
    corner.run(pods.pod("one", wants=3, node=corner.one), pods.pod("two", wants=2, node=corner.two))
    corner.create(pods.pod("much", wants=3), pods.pod("never", wants=9))
    said = corner.event("much", "what is missing", lambda reason, _: reason == "FailedScheduling")
    assert f"{corner.one}: only 1 of 4" in said, said
    assert f"{corner.two}: only 2 of 4" in said, said
    never = corner.event("never", "that no node is large enough", lambda reason, _: reason == "FailedScheduling")
    print(f"\n{said}\n{never}")
    assert "only 4 GPUs, 9 wanted" in never, never
    corner.delete("two")
    corner.has("much", 3000)
    assert corner.pod("much").node == corner.two


@pytest.mark.existing
def test_gpus_of_a_pod_deleted_while_it_grows_come_back(corner: World) -> None:
    """All that it was given on the way comes back: the next one gets all."""
    corner.run(pods.pod("gone", wants=1, node=corner.one))
    corner.ask("gone", 3)
    corner.delete("gone", wait=False)
    corner.run(pods.pod("next", wants=4, node=corner.one))


def test_pod_of_the_same_name_is_another(corner: World) -> None:
    """Deleted by force while it holds a GPU open: when the next of that name has it, no process of the first has."""
    corner.run(pods.pod("twin", wants=4, node=corner.one))
    first = corner.pod("twin")
    kept = min(first.usable)
    with corner.holding("twin", corner.path_of(kept)):
        corner.kubectl("delete", "pod", "twin", "--force", "--grace-period=0")
        corner.create(pods.pod("twin", wants=4, node=corner.one))
    second = corner.has("twin", 4000)
    gpus = {os.makedev(*map(int, str(gpu.device).split(":"))) for gpu in corner.gpus[corner.one]}
    assert not [pid for pid in processes(corner.cluster, "", f"pod{first.uid}") if gpus & _open(pid)]
    assert second.uid != first.uid
    assert all(corner.opens("twin", path) for path in corner.devices(corner.one))


def _open(pid: int) -> set[int]:
    """Numbers of the devices that a process has open."""
    found = set()
    with suppress(OSError):  # it may end meanwhile
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(descriptor.stat().st_rdev)
    return found


@contextmanager
def cordoned(corner: World, node: str) -> Iterator[None]:
    """Drained as an administrator does it, open again at the end."""
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--grace-period=1", "--disable-eviction=false")
    try:
        corner.cluster.kubectl(
            "drain",
            node,
            *words,
            "--pod-selector=!app.kubernetes.io/component",
            f"--timeout={SECONDS:.0f}s",
            seconds=SECONDS + 10,
        )
        yield
    finally:
        corner.cluster.kubectl("uncordon", node)


def _no_room(corner: World, name: str) -> None:
    corner.event(name, "there is no room", lambda reason, _: reason == "FailedScheduling")


def _free_cpu(corner: World, node: str) -> int:
    """Return the milli of a node's CPU that no pod asks for."""
    there = json.loads(corner.cluster.kubectl("get", "node", node, "--output", "json"))["status"]["allocatable"]
    words = ("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}", "--output", "json")
    found = json.loads(corner.cluster.kubectl(*words))["items"]
    return amounts(there)["cpu"] - sum(pod_requests(item).get("cpu", 0) for item in found if not finished(item))


def _greedy(name: str, milli: int, *, wants: object = None, node: str = "", importance: int = 0) -> dict[str, Any]:
    """A pod that asks for so much CPU, more important to Kubernetes than others or not."""
    made = pods.pod(name, wants=wants, node=node)
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{milli}m"
    if importance:
        made["spec"]["priorityClassName"] = f"p{importance}"
    return made


def test_no_pod_ends_in_vain_for_a_more_important_one(corner: World) -> None:
    """On a node without CPU and GPUs, a pod without a GPU stays while none is free, and makes room when one is."""
    for value in (10, 1000):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{value}"}}
        corner.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "value": value}))
    part = _free_cpu(corner, corner.one) * 45 // 100
    corner.run(_greedy("rich", part, wants=4, node=corner.one, importance=10))
    corner.run(_greedy("poor", part, node=corner.one))
    uids = {name: corner.pod(name).uid for name in ("rich", "poor")}
    for name in ("first", "second"):
        corner.create(_greedy(name, part, wants=1, node=corner.one, importance=1000))
        said = corner.event(name, "there is no room", lambda reason, _: reason == "FailedScheduling")
        assert "no candidate node for preemption" in said, said
        corner.delete(name)
    assert {name: corner.pod(name).uid for name in uids} == uids
    assert not [reason for name in uids for reason, _ in corner.events(name) if reason == "Preempted"]
    assert len(corner.pod("rich").usable) == 4
    corner.ask("rich", 3)
    corner.has("rich", 3000)
    corner.create(_greedy("third", part, wants=1, node=corner.one, importance=1000))
    corner.has("third", 1000)
    corner.until(lambda: not corner.history.pods("poor"), "the other to be gone")  # the room is free when it has ended
    assert corner.pod("rich").uid == uids["rich"]


def _waits_for(corner: World, name: str, node: str) -> None:
    """Until a waiting pod stands in the line of that node."""

    def there() -> bool:
        allocated = corner.pod(name).allocated
        return allocated is not None and allocated.extra.get(NOMINATED) == node

    corner.until(there, f"{name} to wait for {node}")


def test_drained_node_serves_again_later(corner: World) -> None:
    """Its pods are evicted, a waiting one goes elsewhere or waits on, and comes when the node is open again."""
    corner.run(pods.pod("evicted", wants=3, node=corner.two), pods.pod("other", wants=4, node=corner.one))
    corner.create(pods.pod("waiting", wants=4))
    _no_room(corner, "waiting")
    _waits_for(corner, "waiting", corner.two)
    with cordoned(corner, corner.two):
        corner.until(lambda: not corner.history.pods("evicted"), "the pod to be evicted")
        _waits_for(corner, "waiting", corner.one)
        corner.delete("other")
        corner.has("waiting", 4000)
        assert corner.pod("waiting").node == corner.one
        corner.create(pods.pod("later", wants=4))
        _no_room(corner, "later")
        assert not corner.pod("later").node
    corner.has("later", 4000)
    assert corner.pod("later").node == corner.two


@contextmanager
def without(corner: World, node: str) -> Iterator[None]:
    """The node's object is deleted while its kubelet is away; it comes back at the end."""
    corner.cluster.stop(f"kubelet@{node}")
    try:
        corner.cluster.kubectl("delete", "node", node)
        yield
    finally:
        corner.cluster.start(f"kubelet@{node}")
        until(lambda: corner.product.ready, SECONDS, f"{node} to come back with its GPUs")


def test_deleted_node_serves_again_when_it_comes_back(corner: World) -> None:
    """A pod that waits for it waits on, and nothing is placed on it while it is gone; after that it serves again."""
    corner.run(pods.pod("lost", wants=2, node=corner.two), pods.pod("full", wants=4, node=corner.one))
    corner.create(pods.pod("waiting", wants=4))
    _no_room(corner, "waiting")
    _waits_for(corner, "waiting", corner.two)
    with without(corner, corner.two):
        corner.kubectl("delete", "pod", "lost", "--force", "--grace-period=0")
        _waits_for(corner, "waiting", corner.one)
        assert not corner.pod("waiting").node
        corner.create(pods.pod("later", wants=2))
        said = corner.event("later", "there is no room", lambda reason, _: reason == "FailedScheduling")
        assert corner.two not in said
        corner.delete("later")  # which of both kube-scheduler asks for first when the node is back is its own affair
    corner.has("waiting", 4000)
    assert corner.pod("waiting").node == corner.two
    assert all(corner.opens("waiting", path) for path in corner.devices(corner.two))


@contextmanager
def driverless(corner: World, node: str) -> Iterator[None]:
    """The node's driver is not up, and its plugin starts anew; at the end of the block the driver comes up."""
    state, uuids = corner.cluster.node(node).path("/var/lib/jupyter-gpu/simulated"), [g.uuid for g in corner.gpus[node]]
    (plugin,) = [pod for pod in corner.product.component("node") if pod["spec"]["nodeName"] == node]
    try:
        for uuid in uuids:
            simulated.unplug(state, uuid, node=node)
        corner.cluster.kubectl("delete", "pod", "-n", chart.NAMESPACE, plugin["metadata"]["name"])
        yield
    finally:
        for uuid in uuids:
            simulated.set_health(state, uuid, None, node=node)
    until(lambda: corner.product.ready, SECONDS, f"{node} to have slots")


def test_node_without_a_driver_attracts_no_pod(corner: World) -> None:
    """It has no slots, so a pod waits for it, and starts there as soon as the driver is up: no pod fails."""
    gpus = corner.gpus[corner.two]
    with driverless(corner, corner.two):

        def without_slots() -> bool:
            return corner.product.slots[corner.two] == 0 and not corner.product.gpus[corner.two]

        until(without_slots, SECONDS, "the node to have no slots")
        corner.create(pods.pod("early", wants=1, node=corner.two))
        _no_room(corner, "early")
        assert not corner.pod("early").node
    has = corner.has("early", 1000)
    assert set(has.usable) < {gpu.uuid for gpu in gpus}
    assert corner.opens("early", corner.path_of(next(iter(has.usable))))


def test_later_gpu_goes_to_new_pods(corner: World) -> None:
    """A container that was created before has no device for it: its panel says so once, and it keeps its GPUs."""
    state, late = corner.cluster.node(corner.two).path("/var/lib/jupyter-gpu/simulated"), corner.gpus[corner.two][3]
    simulated.unplug(state, late.uuid, node=corner.two)
    try:
        until(lambda: len(corner.product.gpus[corner.two]) == 3, SECONDS, "the node to have three GPUs")
        corner.run(pods.pod("early", wants=3, node=corner.two))
    finally:
        simulated.set_health(state, late.uuid, None, node=corner.two)
    until(lambda: corner.product.ready, SECONDS, "the node to have four GPUs")

    def lacks() -> bool:
        attached = corner.pod("early").attached
        return attached is not None and attached.lacks == (late.uuid,)

    corner.until(lacks, "the pod's lack to be told")
    corner.ask("early", 4)

    def refused() -> bool:
        allocated = corner.pod("early").allocated
        refused = allocated is not None and allocated.reason is Reason.INFEASIBLE
        return allocated is not None and refused and "came to this node" in allocated.message

    corner.until(refused, "the wish to be refused")
    corner.run(pods.pod("late", wants=1, node=corner.two))
    assert set(corner.pod("late").usable) == {late.uuid}
    assert corner.opens("late", late.path)
    assert len(corner.pod("early").usable) == 3
    known = corner.pod("early").annotations
    corner.ask("late", 0)
    corner.has("late", 0)
    assert corner.pod("early").annotations == known, "it was tried again and again"
