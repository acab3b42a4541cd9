"""The cluster cache: the snapshot always says what the objects say, and is never freer than what is confirmed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, INVENTORY, REQUESTED, Allocated, Attached, encode
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_scheduler.clocks import Clocks
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.settings import LineSettings, PrioritySettings, SchedulerSettings
from tests.builders import GIB, gpu

NODES = ("n0", "n1")


def empty_cache() -> ClusterCache:
    """Return an empty cache whose changes go nowhere."""
    return ClusterCache(lambda: None)


def node(name: str, gpus: int = 2, uid: str = "") -> dict[str, Any]:
    """A Node whose GPUs are named by it."""
    inventory = encode(tuple(Gpu(f"{name}-{index}", index, "m", 1) for index in range(gpus)))
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "annotations": {INVENTORY: inventory}},
        "status": {"allocatable": {"cpu": "4"}},
    }


def pod(
    uid: str,
    version: int,
    on: str = "",
    has: tuple[str, ...] | None = None,
    attaches: tuple[str, ...] | str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """Return a Pod with whole GPUs; `attaches` as text is an annotation that can't be read."""
    words = {REQUESTED: "1"}
    if has is not None:
        words[ALLOCATED] = encode(Allocated(1, tuple(GpuShare(uuid, 1000) for uuid in has)))
    if isinstance(attaches, str):
        words[ATTACHED] = attaches
    elif attaches is not None:
        words[ATTACHED] = encode(Attached(1, tuple(GpuShare(uuid, 1000) for uuid in attaches)))
    limits = {"jupyter-gpu.io/slot": "1", "cpu": "1"}
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "namespace": metadata.pop("namespace", "ns"),
            "resourceVersion": str(version),
            "annotations": words,
            **metadata,
        },
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


def picture(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """All that decisions can see."""
    return {
        "pods": [snapshot.pods(name) for name in ("", *NODES)],
        "gpus": {name: snapshot.gpus(name) for name in NODES},
        "free": {f"{name}-{index}": snapshot.free(f"{name}-{index}") for name in NODES for index in range(2)},
        "used": {name: {k: v for k, v in snapshot.facts(name).used.items() if v} for name in NODES},
    }


gpus = st.sampled_from([f"{name}-{index}" for name in NODES for index in range(2)])
some = st.none() | st.lists(gpus, max_size=2, unique=True).map(tuple)
steps = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from("abc"), st.sampled_from(("", *NODES)), some, some | st.just("?")),
    st.tuples(st.just("gone"), st.sampled_from("abc")),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(0, 2)),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
)


@given(st.lists(steps, max_size=25))
def test_order_of_changes_does_not_matter(changes: list[tuple[Any, ...]]) -> None:
    """The cache is the same as if it were made anew of all objects that are there at the end."""
    lived = empty_cache()
    pods: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for version, (what, *rest) in enumerate(changes, 1):
        if what == "pod":
            uid, *fields = rest
            pods[uid] = pod(uid, version, *fields)
            lived.pod_changed(ObjectChange("changed", pods[uid]))
        elif what == "gone" and rest[0] in pods:
            lived.pod_changed(ObjectChange("removed", pods.pop(rest[0])))
        elif what == "node":
            nodes[rest[0]] = node(*rest)
            lived.node_changed(ObjectChange("changed", nodes[rest[0]]))
        elif what == "no node" and rest[0] in nodes:
            lived.node_changed(ObjectChange("removed", nodes.pop(rest[0])))
    fresh = empty_cache()
    for item in nodes.values():
        fresh.node_changed(ObjectChange("added", item))
    for item in pods.values():
        fresh.pod_changed(ObjectChange("added", item))
    assert picture(lived.snapshot) == picture(fresh.snapshot)


@given(before=some, attaches=some, after=some)
def test_pending_write_holds_old_and_new_shares(before: Any, attaches: Any, after: Any) -> None:
    """Until it is confirmed the old and the new shares are held; then only what the API server says."""
    found = empty_cache()
    for name in NODES:
        found.node_changed(ObjectChange("added", node(name)))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", before, attaches)))
    held = {*(before or ()), *(attaches or ())}
    will = set(after or ())
    pending_write = found.assume("a", Allocated(1, tuple(GpuShare(uuid, 1000) for uuid in after or ())))
    assert {uuid for uuid in held | will if found.snapshot.free(uuid) == 0} == held | will
    assert found.in_flight("a")
    found.finish_write("a", pending_write, read_pod(pod("a", 2, "n0", after or (), attaches)))
    assert {uuid for uuid in held | will if found.snapshot.free(uuid) == 0} == will | set(attaches or ())
    assert not found.in_flight("a")


def test_priorities_of_gpus_come_from_the_settings() -> None:
    """Those of the policy; a GPU that it does not name has none."""
    policy = Policy.from_settings({"gpus": {"n0-1": 9}})
    found = ClusterCache(lambda: None, SchedulerSettings(policy=policy)).snapshot
    assert [found.priority(f"n0-{index}") for index in range(2)] == [None, 9]


def test_share_that_is_taken_away_drains_until_the_write_is_confirmed() -> None:
    """The answer shows the pod as it was decided; what the node reported counts again, not what was assumed of it."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", ("n0-0",), ())))
    pending_write = found.assume("a", Allocated(1))
    assert found.snapshot.free("n0-0") == 0
    found.finish_write("a", pending_write, read_pod(pod("a", 2, "n0", (), ())))
    assert found.snapshot.free("n0-0") == 1000
    state = found.snapshot.pod("a")
    assert state
    assert state.attached == Attached(1)


def test_refused_binding_of_a_changed_pod_keeps_nothing() -> None:
    """The Binding met a newer version of the pod, in which nothing changed that matters here."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1)))
    pending_write = found.assume("a", Allocated(1, (GpuShare("n0-0", 1000),)), "n0")
    assert found.snapshot.free("n0-0") == 0
    found.finish_write("a", pending_write, read_pod(pod("a", 2)))
    assert found.snapshot.free("n0-0") == 1000
    state = found.snapshot.pod("a")
    assert state
    assert state.node == ""


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        ((500, 0), (500, 10), 40),
        ((250, 60), (250, 10), 60),
        ((250, 10), (500, 0), 40),
        ((250, 60), (1000, 0), 80),
        ((250, 60), None, 60),
        ((250, 10), (250, 60), 60),
    ],
)
def test_memory_is_held_until_a_write_is_confirmed(
    before: tuple[int, int], after: tuple[int, int] | None, held: int
) -> None:
    """The larger one of the old and the new share counts, each amount by itself."""

    def shares(*some: tuple[int, int] | None) -> tuple[GpuShare, ...]:
        return tuple(GpuShare("n0-0", one[0], one[1] * GIB) for one in some if one)

    whole = gpu(0, uuid="n0-0", gate=True)
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", (), ())))
    first = found.assume("a", Allocated(1, shares(before)))
    state = found.snapshot.pod("a")
    assert state
    found.finish_write("a", first, replace(read_pod(pod("a", 2, "n0", (), ())), state=replace(state, attached=None)))
    found.assume("a", Allocated(1, shares(after)))
    state = found.snapshot.pod("a")
    assert state
    assert state.memory_held(whole) == held * GIB


def test_version_in_which_nothing_changed_is_known() -> None:
    """Most new versions of a pod have nothing new for the scheduler; the next write still names the newest version."""
    found = empty_cache()
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", ("n0-0",), ())))
    state = found.snapshot.pod("a")
    found.pod_changed(ObjectChange("changed", pod("a", 2, "n0", ("n0-0",), ())))
    assert found.snapshot.pod("a") is state
    record = found.record("a")
    assert record
    assert record.resource_version == "2"


def test_older_version_changes_nothing() -> None:
    """A watch that is behind does not undo what an answer brought; a removal always counts."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 9, "n0", ("n0-0",))))
    found.pod_changed(ObjectChange("changed", pod("a", 8, "n0", ())))
    assert found.snapshot.free("n0-0") == 0
    found.pod_changed(ObjectChange("removed", pod("a", 8)))
    assert found.snapshot.free("n0-0") == 1000
    assert found.take_changed_pods() == ("a",)


def test_newer_version_counts_from_any_source() -> None:
    """A question of kube-scheduler may bring a newer pod than the watch, or an older one; it never makes one known."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 5, "n0", ("n0-0",))))
    assert found.read(pod("a", 4, "n0", ())) is found.record("a")
    assert found.snapshot.free("n0-0") == 0
    assert found.read(pod("a", 6, "n0", ("n0-1",))) is found.record("a")
    assert (found.snapshot.free("n0-0"), found.snapshot.free("n0-1")) == (1000, 0)
    assert found.read(pod("b", 1)).state.uid == "b"
    assert found.record("b") is None


def test_binding_is_assumed_until_the_watch_shows_it() -> None:
    """The watch may be faster than the answer; and an older write that ends late changes nothing."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1)))
    ticket = found.assume("a", Allocated(1, ticket=1))
    pending_write = found.assume("a", Allocated(1, (GpuShare("n0-0", 1000),)), "n0")
    found.finish_write("a", ticket)
    found.bound("a", pending_write)
    assert found.uncertain() == ()
    assert found.snapshot.free("n0-0") == 0
    found.pod_changed(ObjectChange("changed", pod("a", 2, "n0", ("n0-0",))))
    assert not found.in_flight("a")
    assert found.snapshot.free("n0-0") == 0
    found.pod_changed(ObjectChange("added", pod("b", 3)))
    pending_write = found.assume("b", Allocated(1, (GpuShare("n0-1", 1000),)), "n0")
    found.pod_changed(ObjectChange("changed", pod("b", 4, "n0", ("n0-1",))))
    found.bound("b", pending_write)
    assert found.writes_in_flight == 0


def test_node_with_an_unreadable_pod_gives_nothing() -> None:
    """Its GPUs count as broken until the record can be read, or its pod is gone."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", (), "?")))
    assert not any(gpu.healthy for gpu in found.snapshot.gpus("n0") or ())
    found.pod_changed(ObjectChange("removed", pod("a", 1)))
    assert all(gpu.healthy for gpu in found.snapshot.gpus("n0") or ())


def test_new_node_of_the_same_name_is_another() -> None:
    """The late removal of the old one does not take the new one away."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0", uid="old")))
    found.node_changed(ObjectChange("added", node("n0", uid="new")))
    found.node_changed(ObjectChange("removed", node("n0", uid="old")))
    assert found.snapshot.gpus("n0")
    assert found.take_changed_nodes() == ("n0",)


def test_only_the_chosen_namespaces_have_gpus() -> None:
    """Pods of other namespaces only use up a node."""
    found = ClusterCache(lambda: None, SchedulerSettings(namespaces=("mine",)))
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", ("n0-0",), namespace="other")))
    assert found.record("a") is None
    assert found.snapshot.facts("n0").used["cpu"] == 1000


def test_finished_pod_holds_gpus_that_are_not_closed() -> None:
    """Its promises are free at once, draining GPUs are not; then no record of it is kept."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    found.pod_changed(ObjectChange("added", pod("a", 1, "n0", ("n0-0", "n0-1"), ("n0-0",))))
    assert found.snapshot.free("n0-1") == 0
    ended = {"status": {"phase": "Succeeded"}}
    found.pod_changed(ObjectChange("changed", {**pod("a", 2, "n0", ("n0-0", "n0-1"), ("n0-0",)), **ended}))
    assert (found.snapshot.free("n0-0"), found.snapshot.free("n0-1")) == (0, 1000)
    found.pod_changed(ObjectChange("changed", {**pod("a", 3, "n0", ("n0-0", "n0-1"), ()), **ended}))
    assert (found.snapshot.free("n0-0"), found.snapshot.free("n0-1")) == (1000, 1000)
    assert found.record("a") is None
    assert "cpu" not in found.snapshot.facts("n0").used


def test_removed_nodes_leave_nothing_behind() -> None:
    """Names of nodes are new each time where a cluster grows and shrinks by itself."""
    found = empty_cache()
    for number in range(20):
        name, uid = f"n{number}", f"p{number}"
        found.node_changed(ObjectChange("added", node(name)))
        found.pod_changed(ObjectChange("added", pod(uid, 1, name, (f"{name}-0",))))
        found.node_changed(ObjectChange("removed", node(name)))
        found.pod_changed(ObjectChange("removed", pod(uid, 1, name)))
    found.take_changed_nodes(), found.take_changed_pods()
    left = {key: value for key, value in vars(found).items() if isinstance(value, dict | set) and value}
    assert left == {}


def test_pod_that_was_read_is_unseen_until_a_watch_shows_it() -> None:
    """Or until it is found to be gone: then what it took is free. A known pod is not added again."""
    found = empty_cache()
    found.node_changed(ObjectChange("added", node("n0")))
    for uid in ("a", "b"):
        found.add_unseen(read_pod(pod(uid, 1)))
        found.bound(uid, found.assume(uid, Allocated(1, (GpuShare("n0-0", 500),)), "n0"))
    assert found.snapshot.free("n0-0") == 0
    found.pod_changed(ObjectChange("added", pod("a", 1)))
    found.add_unseen(read_pod(pod("a", 3, "n0")))
    assert (found.is_unseen("a"), found.is_unseen("b")) == (False, True)
    found.forget("b")
    assert not found.is_unseen("b")
    assert found.snapshot.free("n0-0") == 500
    assert found.in_flight("a")
    found.add_unseen(read_pod({"metadata": {"uid": "other"}}))
    assert not found.is_unseen("other")


def test_blocked_pod_is_marked() -> None:
    """The mark lasts until the pod is asked for again; a pod that is not known is no error."""
    found = empty_cache()
    found.pod_changed(ObjectChange("added", pod("a", 1)))
    found.block("a", True)
    found.block("nobody", True)
    state = found.snapshot.pod("a")
    assert state
    assert state.blocked
    found.block("a", False)
    state = found.snapshot.pod("a")
    assert state
    assert not state.blocked


def test_frequent_changes_of_a_wish_are_seen_at_the_pace() -> None:
    """Its last value is seen when it is due; a pod that went meanwhile is no error, and no node is decided twice."""
    now = [0.0]
    found = ClusterCache(
        lambda: None, SchedulerSettings(line=LineSettings(wish_burst=1, wish_seconds=2)), clocks=Clocks(lambda: now[0])
    )

    def ask(uid: str, version: int, priority: int) -> None:
        item = pod(uid, version, "n0")
        item["metadata"]["annotations"][REQUESTED] = f'{{"generation":{version},"milli":1000,"priority":{priority}}}'
        found.pod_changed(ObjectChange("changed", item))

    def seen(uid: str) -> int:
        state = found.snapshot.pod(uid)
        assert state
        return state.priority

    for uid in ("a", "b"):
        for version, priority in enumerate((0, 1, 2, 3), start=1):
            ask(uid, version, priority)
    assert (seen("a"), found.seconds_until_due()) == (1, 2.0)
    record = found.record("a")
    assert record
    assert record.state.priority == 3
    now[0] = 1.5
    found.catch_up()
    assert (seen("a"), found.seconds_until_due()) == (1, 0.5)
    found.pod_changed(ObjectChange("removed", pod("b", 9, "n0")))
    now[0] = 2.0
    found.take_changed_nodes()
    found.catch_up()
    assert (seen("a"), found.seconds_until_due(), found.take_changed_nodes()) == (3, None, ("n0",))


def test_pod_is_overdue_after_the_patience() -> None:
    """The recorded time counts, across leaders; a served pod is not overdue, and a namespace's cap holds."""
    now = [1000.0]
    line, priorities = LineSettings(patience_seconds=60), PrioritySettings(default=5, namespaces={"low": 1})
    found = ClusterCache(
        lambda: None, SchedulerSettings(line=line, priorities=priorities), clocks=Clocks(now=lambda: now[0])
    )

    def put(uid: str, version: int, namespace: str = "ns", **fields: Any) -> PodState:
        item = pod(uid, version, "n0", namespace=namespace)
        words = {REQUESTED: '{"generation":1,"milli":1000,"priority":8}', ALLOCATED: encode(Allocated(1, **fields))}
        item["metadata"]["annotations"] = words
        found.pod_changed(ObjectChange("changed", item))
        state = found.snapshot.pod(uid)
        assert state
        return state

    assert put("late", 1, ticket=1, extra={"since": 970}).priority == 5
    assert put("low", 1, "low", ticket=2, extra={"since": 990}).priority == 1
    assert put("old", 1, ticket=3, extra={"since": 1}).overdue
    assert put("fresh", 1, ticket=4).priority == 5
    assert found.seconds_until_due() == 30
    found.take_changed_nodes()
    now[0] = 1030.0
    found.catch_up()
    assert [state.uid for state in found.snapshot.pods("n0") if state.overdue] == ["late", "old"]
    assert (found.seconds_until_due(), found.take_changed_nodes()) == (20, ("n0",))
    assert not put("late", 2).overdue
    found.pod_changed(ObjectChange("removed", pod("low", 2, "n0", namespace="low")))
    now[0] = 2000.0
    found.catch_up()
    assert found.seconds_until_due() is None
