"""What is known, and that it stays right however changes come."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu_scheduler.snapshot import ClusterSnapshot, PodState
from tests.builders import allocated, attached, gpus_of, inventory, pod, requested, uuid, world


def test_free_counts_the_most_of_allocated_attached_and_draining() -> None:
    """A share is taken from the moment it is decided until its device is proven closed."""
    snapshot = world(
        gpus=4,
        pods=[
            pod("decided", has={0: 500}, attaches=()),
            pod("shrinking", has={1: 250}, attaches={1: 750}),
            pod("draining", has=(), draining={2: 400}),
        ],
    )
    assert [snapshot.free(uuid(i)) for i in range(4)] == [500, 250, 600, 1000]
    assert snapshot.holders(uuid(1)) == {"shrinking": 750}
    assert snapshot.holders(uuid(3)) == {}


def test_free_is_never_negative() -> None:
    """Records that contradict each other leave nothing free, not less than nothing."""
    assert world(1, [pod("a", has=[0]), pod("b", has=[0])]).free(uuid(0)) == 0


def test_replacing_and_removing_a_pod_leaves_nothing_behind() -> None:
    """The index of who holds what follows every change; removing twice is no error."""
    snapshot = world(2, [pod("a", wants=1, has=[0])])
    snapshot.put_pod(pod("a", wants=1, has=[1]))
    assert (snapshot.free(uuid(0)), snapshot.free(uuid(1))) == (1000, 0)
    snapshot.remove_pod("a")
    snapshot.remove_pod("a")
    assert snapshot.free(uuid(1)) == 1000
    assert snapshot.pod("a") is None
    assert snapshot.pods("node") == ()


def test_a_pod_that_changes_its_node_is_on_one_node_only() -> None:
    """A record with another node replaces the old one there too."""
    snapshot = world(1, [pod("a", has=[0])])
    snapshot.put_pod(pod("a", has=[0], node="other"))
    assert snapshot.pods("node") == ()
    assert [state.uid for state in snapshot.pods("other")] == ["a"]


def test_nodes_come_and_go() -> None:
    """Unknown is not the same as empty."""
    snapshot = ClusterSnapshot()
    assert snapshot.gpus("n") is None
    snapshot.put_node("n", ())
    assert snapshot.gpus("n") == ()
    snapshot.put_node("n", inventory(2)[::-1])
    assert [gpu.index for gpu in gpus_of(snapshot, "n")] == [0, 1]
    assert list(snapshot.nodes()) == ["n"]
    snapshot.remove_node("n")
    snapshot.remove_node("n")
    assert snapshot.gpus("n") is None


def test_the_line_is_by_priority_then_ticket_and_without_the_dead() -> None:
    """Who has no ticket is not in line."""
    snapshot = world(
        1,
        [
            pod("late", wants=1, ticket=7),
            pod("early", wants=1, ticket=3),
            pod("urgent", wants=1, ticket=9, priority=5),
            pod("served", wants=1, has=[0]),
            pod("dead", wants=1, ticket=1, gone=True),
        ],
    )
    assert [state.uid for state in snapshot.line("node")] == ["urgent", "early", "late"]


def test_a_bare_pod_holds_nothing() -> None:
    """A pod of which nothing is known yet has a rank all the same."""
    bare = PodState("a", "n")
    assert (bare.priority, bare.ticket, bare.held) == (0, None, {})
    assert bare.rank > replace(bare, allocated=allocated(ticket=5)).rank
    assert replace(bare, requested=requested(1, priority=2)).rank < bare.rank
    assert replace(bare, attached=attached({0: 100}, draining={1: 200})).held == {uuid(0): 100, uuid(1): 200}
