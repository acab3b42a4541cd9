"""The controller as a process on a real API server: wishes of running pods become decisions."""

import itertools
import json

import pytest

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, INVENTORY, REQUESTED, Allocated, Attached, encode
from jupyter_gpu.model.gpu import GpuShare
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage

pytestmark = pytest.mark.cluster


def test_wish_grows_and_shrinks(stage: Stage) -> None:
    """A wish by `kubectl annotate` is decided in one write, attached, and given back, without an Event."""
    node = stage.node(gpus=4)
    stage.scheduler()
    stage.pod("a", node)
    stage.request("a", 2)
    assert stage.until_count("a", 2) == ["0", "1"]
    stage.request("a", '{"generation": 2, "milli": 1000}')
    stage.until_count("a", 1)
    allocated = stage.allocated("a")
    assert allocated
    assert allocated.observed_generation == 2
    assert allocated.reason is None
    stage.request("a", "0")
    stage.until_count("a", 0)
    assert len(stage.decisions("a")) == 3
    assert not stage.events("a")
    assert not stage.watcher.decided_twice


def test_owed_gpus_come_when_another_pod_shrinks(stage: Stage) -> None:
    """Partial first, with an Event; complete as soon as the GPU of another is proven closed, and not before."""
    node = stage.node(gpus=3)
    stage.scheduler()
    owner = stage.pod("owner", node, 2)
    stage.until_count("owner", 2)
    stage.pod("late", node, {"generation": 1, "milli": 3000})
    assert stage.until_reason("late", "Partial").ticket == 1
    assert "1 of 3" in stage.until_event("late", "GpusPartial")
    stage.hold_open(owner, f"GPU-{node}-0", f"GPU-{node}-1")
    stage.request("owner", "0")
    until(lambda: len((stage.attached("owner") or Allocated(0)).shares) == 0, what="the GPUs to be closed")
    assert stage.has("late") == ["2"], "a GPU that somebody has open was given away"
    stage.hold_open(owner)
    stage.until_count("late", 3)
    assert (stage.allocated("late") or Allocated(0)).ticket is None
    assert not stage.watcher.decided_twice


def test_waiting_pods_are_served_by_priority_then_age(stage: Stage) -> None:
    """The GPU that comes free goes to the higher priority, the next to the pod that asked first."""
    node = stage.node(gpus=1)
    stage.scheduler()
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    for name, priority in (("first", 1), ("second", 1), ("urgent", 9)):
        stage.pod(name, node, {"generation": 1, "milli": 1000, "priority": priority})
        stage.until_reason(name, "Deferred")
    stage.until_event("first", "GpusDeferred")
    order = ["owner", "urgent", "first", "second"]
    for before, after in itertools.pairwise(order):
        stage.request(before, "0")
        stage.until_count(after, 1)
        assert all(stage.has(name) == [] for name in order if name != after)


def test_impossible_wish_is_refused_with_a_reason(stage: Stage) -> None:
    """A wish for more than the node has is refused with an Event, and nothing else changes."""
    node = stage.node(gpus=2)
    stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.request("a", '{"generation": 5, "milli": 3000}')
    assert stage.until_reason("a", "Infeasible").observed_generation == 5
    assert "Only 2 GPUs" in stage.until_event("a", "GpusRefused")
    assert stage.until_count("a", 1) == ["0"]


@pytest.mark.parametrize("wish", ["nonsense", '{"milli": -1}', "{}", '{"generation":1,"milli":1e9}'])
def test_unreadable_wish_changes_nothing(stage: Stage, wish: str) -> None:
    """The pod keeps what it has, its user sees why, and the next good wish counts."""
    node = stage.node(gpus=2)
    stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.request("a", wish)
    assert "requested" in stage.until_event("a", "GpusInvalidRequest")
    stage.pod("other", node, 1)
    stage.until_count("other", 1)
    assert stage.has("a") == ["0"]
    assert (stage.allocated("a") or Allocated(0)).shares
    assert len(stage.decisions("a")) == 2, "the reason is written, once"
    stage.request("a", "0")
    stage.until_count("a", 0)


def test_forged_decisions_are_taken_back(stage: Stage) -> None:
    """GPUs of another pod, of another node, unknown ones, or text that is no decision: rewritten, and no pod loses."""
    node, other = stage.node("n1", gpus=2), stage.node("n2", gpus=2)
    stage.scheduler()
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    forged = encode(Allocated(9, (GpuShare(f"GPU-{node}-0", 1000), GpuShare(f"GPU-{other}-0", 1000))))
    stage.pod("thief", node, 0, annotations={ALLOCATED: forged})
    stage.pod("garbled", node, 1, annotations={ALLOCATED: "{"})
    taken = encode(Allocated(1, (GpuShare(f"GPU-{node}-1", 1000),)))
    stage.pod("no-slot", node, 1, slots=0, annotations={ALLOCATED: taken})
    assert stage.until_count("thief", 0) == []
    assert stage.until_count("no-slot", 0) == []
    assert stage.until_count("garbled", 1) == ["1"]
    assert stage.has("owner") == ["0"]
    assert "No container of this pod" in stage.until_event("no-slot", "GpusInvalidRequest")
    stage.request("owner", "1500m")
    stage.until_reason("owner", "Partial")


def test_node_with_unknown_holders_gives_nothing(stage: Stage) -> None:
    """While an `attached` cannot be read its node gives nothing; when its plugin has written it again it does."""
    node = stage.node(gpus=2)
    stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    good = objects.annotation(stage.get("a"), ATTACHED)
    stage.pause(node)
    stage.annotate("a", **{ATTACHED: '{"shares": 7}'})
    stage.pod("b", node, 1)
    assert not stage.until_reason("b", "Deferred").shares
    assert (stage.allocated("a") or Allocated(0)).shares
    stage.annotate("a", **{ATTACHED: good})
    stage.pause()
    stage.until_count("b", 1)
    assert stage.has("a") == ["0"]


def test_gpus_of_a_pod_deleted_while_it_grows_are_free(stage: Stage) -> None:
    """Its GPUs go to a waiting pod; one of the same name is another pod and has nothing of it."""
    node = stage.node(gpus=2)
    stage.scheduler()
    stage.pause(node)  # nothing is attached: the pod is in the middle of growing
    first = stage.pod("a", node, 2)
    until(lambda: len((stage.allocated("a") or Allocated(0)).shares) == 2, what="a decision")
    stage.pod("b", node, 1)
    stage.until_reason("b", "Deferred")
    stage.delete("a")
    second = stage.pod("a", node)
    stage.pause()
    stage.until_count("b", 1)
    assert first != second
    assert stage.allocated("a") is None
    stage.request("a", 1)
    stage.until_count("a", 1)
    stage.finish("b")
    stage.request("a", 2)
    stage.until_count("a", 2)
    assert not stage.watcher.decided_twice


def test_finished_pod_keeps_draining_gpus_from_others(stage: Stage) -> None:
    """A scheduler that starts then respects it, too; GPUs that were only promised to it are given at once."""
    node = stage.node(gpus=2)
    stage.scheduler()
    uid = stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.hold_open(uid, f"GPU-{node}-0")
    stage.finish("a")
    until(lambda: bool((stage.attached("a") or Attached(0)).draining), what="it to drain")
    for name in ("b", "c"):
        stage.schedulers[-1].kill()
        stage.scheduler()
        stage.pod(name, node, 1)
        if name == "b":
            stage.until_count(name, 1)
    stage.until_reason("c", "Deferred")
    assert not (stage.allocated("c") or Allocated(0)).shares
    stage.hold_open(uid)
    stage.until_count("c", 1)
    assert not stage.watcher.decided_twice


def test_pod_being_deleted_keeps_its_allocation(stage: Stage) -> None:
    """Its node may be opening it just now, though `attached` says that nothing is open."""
    node = stage.node(gpus=1)
    stage.scheduler()
    stage.pod("a", node, 0)
    stage.until_count("a", 0)
    stage.pause(node)
    stage.request("a", 1)
    until(lambda: (stage.allocated("a") or Allocated(0)).shares, what="a decision")
    stage.plane.kubectl("delete", "pod", "a", "-n", stage.namespace, "--grace-period=60", "--wait=false")
    until(lambda: objects.deleting(stage.get("a")), what="it to be on its way out")
    stage.pod("b", node, 1)
    stage.until_reason("b", "Deferred")
    stage.delete("a")
    stage.pause()
    stage.until_count("b", 1)


def test_broken_and_vanished_gpus_are_handled(stage: Stage) -> None:
    """A broken GPU is reported and replaced on request; one that vanished is allocated to no pod."""
    node = stage.node(gpus=2)
    stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.put_inventory(node, 2, unhealthy=(0,))
    assert "broken by a test" in stage.until_event("a", "GpusUnhealthy")
    assert stage.has("a") == ["0"]
    stage.pod("b", node, 2)
    assert len(stage.until_reason("b", "Partial").shares) == 1
    stage.put_inventory(node, 4)
    stage.until_count("b", 2)
    stage.put_inventory(node, 1)
    stage.until_count("b", 0)


def test_node_may_go_and_come_back(stage: Stage) -> None:
    """Without its node nothing is decided for a pod; when the node is there again it is."""
    node = stage.node(gpus=2)
    scheduler = stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.delete_node(node)
    until(lambda: f'node="{node}"' not in scheduler.get("/metrics")[1], what="the node to be forgotten")
    stage.request("a", '{"generation": 2, "milli": 2000}')
    stage.node(gpus=2)
    stage.until_count("a", 2)


def test_wishes_of_five_pods_at_once_converge(stage: Stage) -> None:
    """Many change at the same time, again and again: all converges, nothing is given twice, no storm of writes."""
    node = stage.node(gpus=4)
    scheduler = stage.scheduler()
    names = [f"p{number}" for number in range(5)]
    uids = [stage.pod(name, node) for name in names]
    for turn in range(1, 7):
        for number, name in enumerate(names):
            wish = {"generation": turn, "milli": 1000 * ((turn + number) % 3), "priority": number}
            stage.request(name, json.dumps(wish))
    for name in names:
        stage.request(name, '{"generation": 9, "milli": 0}')
    for name in names:
        stage.until_count(name, 0)
    requests = sum(len(stage.watcher.writes(uid, REQUESTED)) for uid in uids)
    assert scheduler.metric('jupyter_gpu_scheduler_writes_total{kind="allocated",outcome="done"') <= 4 * requests
    assert not stage.watcher.decided_twice


def test_probes_and_metrics(stage: Stage) -> None:
    """The probes say that the process runs; the metrics tell free and held GPUs by node."""
    node = stage.node(gpus=3)
    scheduler = stage.scheduler()
    assert scheduler.get("/healthz")[0] == scheduler.get("/readyz")[0] == 200
    stage.pod("a", node, "1500m")
    stage.until_count("a", 2)
    figures = [f'jupyter_gpu_scheduler_gpus{{node="{node}",state="{state}"' for state in ("held", "free")]
    until(lambda: [scheduler.metric(figure) for figure in figures] == [1.5, 1.5], what="the figures")
    assert stage.schedulers[0].stop() == 0


def test_renamed_machine_is_handled(stage: Stage) -> None:
    """Stuck pods of the old node take nothing from the new one; Events report the double claim until one is gone."""
    old, new = stage.node("old", gpus=2), stage.node("new", gpus=2)
    scheduler = stage.scheduler()
    uid = stage.pod("stuck", old, 2)
    stage.until_count("stuck", 2)
    stage.hold_open(uid, f"GPU-{old}-0", f"GPU-{old}-1")
    stage.pause(old, new)
    text = encode(stage.inventory(old, 2))
    stage.plane.kubectl("annotate", "node", new, f"{INVENTORY}={text}", "--overwrite")
    stage.pod("mine", new, 2)
    until(lambda: len((stage.allocated("mine") or Allocated(0)).shares) == 2, what="the new name to have its GPUs")
    assert len((stage.allocated("stuck") or Allocated(0)).shares) == 2
    assert scheduler.metric("jupyter_gpu_scheduler_gpus_claimed_twice") == 2

    def reported() -> set[str]:
        found = json.loads(stage.plane.kubectl("get", "events", "-n", "default", "-o", "json"))["items"]
        return {item["involvedObject"]["name"] for item in found if item["reason"] == "GpusClaimedTwice"}

    until(lambda: {old, new} <= reported(), what="Events of both nodes")
    assert f"GPU-{old}-1 is in the inventories of" in scheduler.log
    stage.delete_node(old)
    until(lambda: scheduler.metric("jupyter_gpu_scheduler_gpus_claimed_twice") == 0, what="one to be forgotten")
    stage.node("old", gpus=0)  # for the end of the test, which deletes it
