"""From `allocated` to what a process can open to `attached`, on real control groups and a real API server."""

import pytest

from jupyter_gpu.model.annotations import ATTACHED, Attached, encode
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu_node.gpus import simulated
from tests.agent.stage import Node
from tests.cluster.testbed import until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


def test_pod_opens_exactly_the_granted_gpus(node: Node) -> None:
    """A process that started with no GPU opens what its pod was granted, and nothing else."""
    pod, child = node.running()
    assert pod.attached is None
    pod.allocate(node.uuids[1])
    pod.until_has(node.uuids[1])
    assert child.probe(*node.nodes) == "-+--"
    pod.allocate(node.uuids[1], node.uuids[3], generation=2)
    pod.until_has(node.uuids[1], node.uuids[3])
    assert child.probe(*node.nodes) == "-+-+"
    pod.allocate(node.uuids[3], generation=3)
    pod.until_has(node.uuids[3])
    assert child.probe(*node.nodes) == "---+"
    assert pod.attached is not None
    assert pod.attached.observed_generation == 3
    pod.allocate(generation=4)
    pod.until_has()
    assert child.probe(*node.nodes) == "----"


def test_one_write_a_step_and_none_without_a_change(node: Node) -> None:
    """A grant costs one write of the plugin; a shrink that no process delays costs one more."""
    pod, child = node.running()
    child.end()  # a process that does not stand still in time is scanned again, which is one more write
    before = _writes(node)
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    pod.annotate("jupyter-gpu.io/test", "again")
    pod.allocate(generation=2)
    pod.until_has()
    until(lambda: _writes(node) - before >= 2, what="the plugin to have counted its last write")
    assert _writes(node) - before == 2


def _writes(node: Node) -> float:
    line = next(line for line in node.get("/metrics").splitlines() if line.startswith("jupyter_gpu_writes_total"))
    return float(line.split()[1])


def test_open_gpu_drains_until_it_is_closed(node: Node) -> None:
    """Revoked but open, no pod has it. It is free as soon as the holder closes it, or ends."""
    pod, child = node.running()
    other, _ = node.running()
    pod.allocate(node.uuids[0], node.uuids[1])
    pod.until_has(node.uuids[0], node.uuids[1])
    child.run(f"global held; held = open_device({str(node.nodes[0])!r})")
    pod.allocate(node.uuids[1], generation=2)
    pod.until_has(node.uuids[1], draining=(node.uuids[0],))
    assert pod.attached is not None
    (holder,) = pod.attached.draining[0].holders
    assert holder.pid == child.pid
    assert not holder.foreign
    other.allocate(node.uuids[0])  # a scheduler that forgot about it
    assert child.probe(*node.nodes) == "-+--"
    child.run("os.close(held)")
    pod.until_has(node.uuids[1])
    other.until_has(node.uuids[0])


def test_a_shrink_that_is_cancelled(node: Node) -> None:
    """A GPU that comes back while it drains is attached again."""
    pod, child = node.running()
    pod.allocate(node.uuids[2])
    pod.until_has(node.uuids[2])
    child.run(f"global held; held = open_device({str(node.nodes[2])!r})")
    pod.allocate(generation=2)
    pod.until_has(draining=(node.uuids[2],))
    pod.allocate(node.uuids[2], generation=3)
    pod.until_has(node.uuids[2])
    assert child.probe(*node.nodes) == "--+-"


def test_a_restarted_container_keeps_the_grant(node: Node) -> None:
    """Rules are the pod's: a new process in a new group below it can open what the pod has."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    child.end()
    (pod.group / "container").rmdir()
    (pod.group / "container").mkdir()
    assert pod.spawn().probe(*node.nodes) == "+---"


def test_one_of_two_pods_gets_the_same_gpu(node: Node) -> None:
    """Whatever the annotations say, a whole GPU is never open to two pods; the second gets it when it is free."""
    first, child = node.running()
    second, twin = node.running()
    first.allocate(node.uuids[0])
    first.until_has(node.uuids[0])
    second.allocate(node.uuids[0], node.uuids[1])
    second.until_has(node.uuids[1])
    assert (child.probe(*node.nodes), twin.probe(*node.nodes)) == ("+---", "-+--")
    first.allocate(generation=2)
    second.until_has(node.uuids[0], node.uuids[1])
    assert (child.probe(*node.nodes), twin.probe(*node.nodes)) == ("----", "++--")


def test_two_halves_of_a_gpu(node: Node) -> None:
    """Time shares of one GPU go to two pods, a third share does not fit."""
    pods = [node.running() for _ in range(3)]
    for pod, _ in pods[:2]:
        pod.allocate((node.uuids[0], 500))
        pod.until_has(node.uuids[0])
    third, _child = pods[2]
    third.allocate((node.uuids[0], 250), node.uuids[1])
    third.until_has(node.uuids[1])
    assert [child.probe(*node.nodes) for _, child in pods] == ["+---", "+---", "-+--"]


def test_a_gpu_of_another_node_is_not_opened(node: Node) -> None:
    """Only GPUs of this node's inventory count, whatever wrote `allocated`."""
    pod, child = node.running()
    pod.allocate("GPU-somewhere-else", node.uuids[2])
    pod.until_has(node.uuids[2])
    assert child.probe(*node.nodes) == "--+-"


def test_unreadable_decision_changes_nothing(node: Node) -> None:
    """Neither more nor less, until it is written again."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    pod.annotate("jupyter-gpu.io/allocated", '{"shares": "all of them"}')
    _other, _ = node.running()  # some time passes, and the plugin has surely read it
    assert child.probe(*node.nodes) == "+---"
    pod.annotate("jupyter-gpu.io/allocated", None)
    pod.until_has()
    assert child.probe(*node.nodes) == "----"


def test_pods_without_a_slot_are_left_alone(node: Node) -> None:
    """No rules of ours are on their groups."""
    plain = node.pod(slot=False)
    plain.annotate("jupyter-gpu.io/test", "go")
    node.running()  # by now the other is known too
    assert not any(name.startswith(plain.uid) for name in node.pins())


def test_deleted_pod_gives_back_when_its_last_process_ends(node: Node) -> None:
    """Deleted from the API server while a process of it still runs: its GPU is granted to no other before that ends."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    child.run(f"global held; held = open_device({str(node.nodes[0])!r})")
    pod.delete()
    until(lambda: child.probe(*node.nodes) == "----", what="the pod to be closed")
    other, twin = node.running()
    other.allocate(node.uuids[0], node.uuids[1])
    other.until_has(node.uuids[1])
    assert twin.probe(*node.nodes) == "-+--"
    pod.remove_group()
    other.until_has(node.uuids[0], node.uuids[1])
    until(lambda: not any(name.startswith(pod.uid) for name in node.pins()), what="its pins to be removed")


def test_a_finished_pod_gives_back(node: Node) -> None:
    """Succeeded: `attached` says that it has nothing, though `allocated` still tells of it."""
    pod, _ = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    pod.patch_status({"status": {"phase": "Succeeded"}})
    pod.until_has()


def test_the_api_server_is_away(node: Node) -> None:
    """Grants stand meanwhile; what was decided meanwhile is done afterwards."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    with node.plane.without("apiserver"):
        assert child.probe(*node.nodes) == "+---"
        until(lambda: "jupyter_gpu" in node.get("/metrics"), what="the plugin to answer")
    pod.allocate(node.uuids[1], generation=2)
    pod.until_has(node.uuids[1])
    assert child.probe(*node.nodes) == "-+--"


def test_pod_started_without_the_plugin_is_closed_and_reported(node: Node) -> None:
    """The kubelet can start a container without asking: it is closed at once, and then treated as all others."""
    node.stop()
    pod = node.pod()
    child = pod.spawn()
    pod.runs()
    assert child.probe(*node.nodes) == "+" * 4
    child.run(f"global held; held = open_device({str(node.nodes[3])!r})")
    node.start()
    until(lambda: child.probe(*node.nodes) == "----", what="the pod to be closed")
    until(lambda: "GpusNotGuarded" in pod.events(), what="the event")
    pod.until_has(draining=(node.uuids[3],))
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0], draining=(node.uuids[3],))
    child.run("os.close(held)")
    pod.until_has(node.uuids[0])
    assert child.probe(*node.nodes) == "+---"


def test_random_decisions_converge(node: Node) -> None:
    """Three pods, forty decisions without waiting: at the end each can open exactly what it was granted last."""
    import random

    rng = random.Random(7)
    pods = [node.running() for _ in range(3)]
    for generation in range(1, 41):
        owners = {uuid: rng.randrange(4) for uuid in node.uuids}
        for number, (pod, _) in enumerate(pods):
            pod.allocate(*(uuid for uuid in node.uuids if owners[uuid] == number), generation=generation)
    for number, (pod, child) in enumerate(pods):
        mine = [uuid for uuid in node.uuids if owners[uuid] == number]
        pod.until_has(*mine)
        assert child.probe(*node.nodes) == "".join("+" if uuid in mine else "-" for uuid in node.uuids)


def test_record_of_another_nodes_gpus_is_ignored(node: Node) -> None:
    """It is corrected at the next start. A record of an own GPU that the driver does not report now counts."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    node.kill()
    told = Attached(
        1, (GpuShare(node.uuids[0], 1000), GpuShare("GPU-elsewhere", 1000)),
        (DrainingShare(node.uuids[3], 1000), DrainingShare("GPU-of-another-node", 1000)),
    )  # fmt: skip
    pod.annotate(ATTACHED, encode(told))
    state = node.folder / "state" / "simulated"
    simulated.unplug(state, node.uuids[3], node=node.name)
    try:
        node.start()
        pod.until_has(node.uuids[0], draining=(node.uuids[3],))
        assert child.probe(*node.nodes) == "+---"
    finally:
        simulated.set_health(state, node.uuids[3], None, node=node.name)
    pod.until_has(node.uuids[0])
