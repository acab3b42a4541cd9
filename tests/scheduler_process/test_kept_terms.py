"""Terms that the owners keep: whatever changes, they are those that would be computed of all that is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, REQUESTED, Attached, encode
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.pending_write import PendingWrite
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.queue.slider_end import moved_end
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.scheduler_process.test_cluster_cache import NODES, node, pod
from tests.scheduler_process.test_owners import cache, put_limit

Begun = tuple[str, PendingWrite]
"""A pod, and the write about it that began."""
USERS = ("ann", "bob")
SOME = st.sampled_from(((), ("0",), ("1",), ("0", "1")))


class Objects:
    """The objects of a cluster, each as it is now."""

    def __init__(self) -> None:
        self.nodes = {name: node(name) for name in NODES}
        self.pods: dict[str, Any] = {}
        self.limits: dict[str, Any] = {}
        self.version = 0

    def put_pod(self, uid: str, on: str, wants: object, user: str, *shares: tuple[str, ...]) -> None:
        """Create or replace a pod with these shares, allocated and attached; it stays on its node."""
        if uid in self.pods:
            on = self.pods[uid]["spec"]["nodeName"]
        self.pods[uid] = pod(uid, 0, on, *(tuple(f"{on}-{index}" for index in each) for each in shares))
        self.pods[uid]["metadata"]["annotations"].update({USERNAME: user, HUB: "hub", REQUESTED: str(wants)})

    def seen(self, uid: str) -> ObjectChange:
        """Return a pod in a new version."""
        self.version += 1
        self.pods[uid]["metadata"]["resourceVersion"] = str(self.version)
        return ObjectChange("changed", self.pods[uid])

    def write(self, lived: ClusterCache, begun: Iterable[Begun], how: str = "answered") -> None:
        """Write decisions; the pod that is answered may have its GPUs already, or more wishes; or no answer comes."""
        for uid, pending in begun:
            made, words = pending.allocated, self.pods[uid]["metadata"]["annotations"]
            words[ALLOCATED] = encode(made)
            if how == "attached":
                words[ATTACHED] = encode(Attached(made.observed_generation, made.shares, revision=made.revision))
            if how == "wishes":
                words[REQUESTED] = "0.5"
            found = read_pod(self.seen(uid).object)
            lived.finish_write(uid, pending, None if how == "lost" else found)
            if how == "lost":
                lived.pod_changed(self.seen(uid))

    def settle(self, lived: ClusterCache, how: str = "attached") -> None:
        """Decide what is said to have changed, until nothing is."""
        for _ in range(20):
            for name in lived.take_changed_nodes():
                lived.begin_deciding(name)
                self.write(lived, _begun(lived, decide(lived.snapshot, name), name), how)
            for uid in lived.take_moved_ends():
                self.write(lived, _begun(lived, moved_end(lived.snapshot, uid)), how)

    def known_at_once(self) -> ClusterSnapshot:
        """Return all as a process knows it that has just begun."""
        made = cache(complete=False)
        for item in self.nodes.values():
            made.node_changed(ObjectChange("added", item))
        for user, spec in self.limits.items():
            put_limit(made, user, subject={"kind": "User", "name": user}, **spec)
        for uid in self.pods:
            made.pod_changed(self.seen(uid))
        made.begin()
        return made.snapshot


def _begun(lived: ClusterCache, decisions: Iterable[Decision], node: str = "") -> list[Begun]:
    return [(each.uid, lived.assume(each.uid, each.allocated, decided=node)) for each in decisions]


def _apply(lived: ClusterCache, objects: Objects, what: str, rest: tuple[Any, ...]) -> None:
    """Let one thing happen."""
    if what == "pod":
        objects.put_pod(*rest)
        lived.pod_changed(objects.seen(rest[0]))
    elif what == "gone" and rest[0] in objects.pods:
        lived.pod_changed(ObjectChange("removed", objects.pods.pop(rest[0])))
    elif what == "limit":
        user, most, priority = rest
        objects.limits[user] = {"max": most, "priority": {"max": priority}}
        put_limit(lived, user, subject={"kind": "User", "name": user}, **objects.limits[user])
    elif what == "no limit" and objects.limits.pop(rest[0], None):
        lived.limit_removed(rest[0])
    elif what == "settle":
        objects.settle(lived, *rest)
    elif what == "node":
        objects.nodes[rest[0]] = node(*rest)
        lived.node_changed(ObjectChange("changed", objects.nodes[rest[0]]))


uids, users = st.sampled_from("abcd"), st.sampled_from(USERS)
wishes = st.sampled_from((0, 0.5, 1, 2, 3))
maxima = st.sampled_from((0, 1, 2, 3, 5, "unlimited"))
ways = st.sampled_from(("answered", "attached", "wishes", "lost"))
pods = st.tuples(st.just("pod"), uids, st.sampled_from(NODES), wishes, users, SOME, SOME)
steps = st.one_of(
    pods,
    st.tuples(st.just("gone"), uids),
    st.tuples(st.just("limit"), users, maxima, st.sampled_from((1, 9))),
    st.tuples(st.just("no limit"), users),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(0, 4)),
    st.tuples(st.just("settle"), ways),
)


LIMIT = ("limit", "ann", 3, 9)
GROWS = [LIMIT, ("pod", "a", "n0", 1, "ann", ("0",), ("0",)), ("pod", "b", "n1", 1, "ann", (), ()), ("node", "n1", 4)]
CLOSES = [
    *(LIMIT, ("pod", "a", "n0", 2, "ann", ("0",), ("0", "1")), ("pod", "b", "n1", 3, "ann", (), ())),
    ("pod", "a", "n0", 2, "ann", ("0",), ("0",)),
]


@settings(max_examples=200)
@given(st.lists(steps, max_size=20))
@example(GROWS)
@example(CLOSES)
def test_terms_are_those_of_a_new_process(happens: list[tuple[Any, ...]]) -> None:
    """Terms that were kept through any changes are those that are computed of what is there at the end."""
    lived, objects = cache(), Objects()
    objects.limits["eve"] = {"max": 1}
    put_limit(lived, "eve", subject={"kind": "User", "name": "eve"}, max=1)  # there are limits all the time
    for what, *rest in happens:
        _apply(lived, objects, what, tuple(rest))
    for uid in objects.pods:  # what a node's GPUs change is found with the next change of a pod
        lived.pod_changed(objects.seen(uid))
    made = objects.known_at_once()
    assert [lived.snapshot.pods(name) for name in NODES] == [made.pods(name) for name in NODES]


TWO = [("limit", "ann", 2, 9), ("pod", "a", "n0", 1, "ann", (), ()), ("pod", "b", "n1", 1, "ann", (), ())]
CLOSED = ("pod", "a", "n0", 0, "ann", (), ())
BESIDE = [
    *(("node", "n1", 1), ("pod", "a", "n0", 3, "ann", (), ()), ("limit", "ann", 2, 1)),
    *(("pod", "b", "n1", 0, "ann", (), ("0",)), ("pod", "c", "n1", 2, "ann", (), ("0",))),
]
"""The decision for one pod changes what another one of its owner, on the same node, may have."""


@settings(max_examples=200)
@given(st.lists(steps, max_size=20))
@example(TWO)
@example(BESIDE)
@example([*TWO, ("settle", "attached"), ("gone", "a")])
@example([*TWO, ("settle", "attached"), CLOSED, ("settle", "wishes")])
@example([*TWO, ("settle", "attached"), CLOSED, ("settle", "answered")])
def test_all_that_needs_a_decision_is_said_to_have_changed(happens: list[tuple[Any, ...]]) -> None:
    """Once what changed is decided, and the ends of sliders that moved are written, no node needs a decision."""
    lived, objects = cache(), Objects()
    objects.limits["eve"] = {"max": 1}
    put_limit(lived, "eve", subject={"kind": "User", "name": "eve"}, max=1)
    for what, *rest in happens:
        _apply(lived, objects, what, tuple(rest))
    objects.settle(lived)
    assert [decide(lived.snapshot, name) for name in NODES] == [(), ()]
    for state in (state for name in NODES for state in lived.snapshot.pods(name)):
        assert state.allocated
        assert state.allocated.limit == state.pod_limit
    made = objects.known_at_once()
    for name in NODES:
        assert lived.snapshot.pods(name) == made.pods(name)
        assert [state.rank for state in lived.snapshot.pods(name)] == [state.rank for state in made.pods(name)]
