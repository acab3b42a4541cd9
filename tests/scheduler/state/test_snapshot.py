"""The cluster snapshot stays right in whatever order changes come."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts
from tests.builders import (
    allocated,
    attached,
    cluster,
    decided,
    facts,
    gpus_of,
    inventory,
    new,
    pod,
    requested,
    uuid,
    world,
)


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
    """The index of holders follows every change; removing twice is no error."""
    snapshot = world(2, [pod("a", wants=1, has=[0])])
    snapshot.put_pod(pod("a", wants=1, has=[1]))
    assert (snapshot.free(uuid(0)), snapshot.free(uuid(1))) == (1000, 0)
    snapshot.remove_pod("a")
    snapshot.remove_pod("a")
    assert snapshot.free(uuid(1)) == 1000
    assert snapshot.pod("a") is None
    assert snapshot.pods("node") == ()


def test_shown_pod_replaces_the_one_before_wherever_it_is_found() -> None:
    """Among all, on its node and of its owner; and where it lacks GPUs, among those that do."""
    for wants in (1, 2):
        snapshot = world(1, [pod("a", wants=wants, has=[0])])
        before = snapshot.pod("a")
        assert before
        assert before.lacks_gpus is (wants == 2)
        after = replace(before, pod_limit=PodLimit(1000, 1000, Source(SourceKind.USER, "ann")))
        snapshot.show(after)
        found = (
            snapshot.pod("a"),
            *snapshot.pods("node"),
            *snapshot.owned(after.owner),
            *snapshot.unserved(after.owner),
        )
        assert found == (after,) * (2 + wants)


def test_a_pod_that_changes_its_node_is_on_one_node_only() -> None:
    """A record with another node replaces the old one there too."""
    snapshot = world(1, [pod("a", has=[0])])
    snapshot.put_pod(pod("a", has=[0], node="other"))
    assert snapshot.pods("node") == ()
    assert [state.uid for state in snapshot.pods("other")] == ["a"]


def test_unknown_node_is_not_an_empty_one() -> None:
    """Nodes come and go; an unknown one has no inventory, which is not an empty one."""
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


def test_line_is_sorted_by_priority_then_ticket() -> None:
    """Ended pods and pods without a ticket are not in line."""
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


def test_pod_without_records_holds_nothing() -> None:
    """A pod of which nothing is known yet has a rank all the same."""
    bare = PodState("a", "n")
    assert (bare.priority, bare.ticket, bare.held) == (0, None, {})
    assert bare.rank > replace(bare, allocated=allocated(ticket=5)).rank
    assert replace(bare, requested=requested(1, priority=2)).rank < bare.rank
    assert replace(bare, attached=attached({0: 100}, draining={1: 200})).held == {uuid(0): 100, uuid(1): 200}


def test_pending_pod_holds_nothing() -> None:
    """No pod gets a GPU before its node is decided, whatever its record says."""
    snapshot = world(1, [PodState("a", allocated=allocated([0]), attached=attached([0]))])
    assert snapshot.free(uuid(0)) == 1000
    assert [state.uid for state in snapshot.pending()] == ["a"]


def test_finished_pod_holds_its_gpus_until_they_are_closed() -> None:
    """A finished pod's promises are void; a pod that is only being deleted may still open what it was promised."""
    leaving = replace(pod("a", has=[0]), gone=True)
    for attaches, free in ((None, 1000), (attached([0]), 0), (attached(draining=[0]), 0), (attached(), 1000)):
        assert world(1, [replace(leaving, attached=attaches)]).free(uuid(0)) == 0
        assert world(1, [replace(leaving, attached=attaches, finished=True)]).free(uuid(0)) == free
    assert world(1, [replace(leaving, attached=attached(), gone=False)]).free(uuid(0)) == 0


def test_nominated_pods_are_in_the_line_of_their_node_only() -> None:
    """Their own record names the node; without a ticket, or once bound, they are in no line."""
    waiting = new("a", wants=1, ticket=2, on="n")
    snapshot = cluster({"n": 1, "m": 1}, [waiting, pod("b", wants=2, has=[0], ticket=1, node="n")])
    assert [state.uid for state in snapshot.line("n")] == ["b", "a"]
    assert [state.uid for state in snapshot.nominated("n")] == ["a"]
    assert snapshot.nominated("m") == snapshot.line("m") == ()
    snapshot.put_pod(new("a", wants=1, ticket=2, on="m"))
    assert (snapshot.nominated("n"), [state.uid for state in snapshot.line("m")]) == ((), ["a"])
    snapshot.remove_pod("a")
    assert snapshot.line("m") == ()
    for extra in ({NOMINATED: 7}, {}):
        assert replace(waiting, allocated=allocated(ticket=1, extra=extra)).nominated == ""
    assert replace(waiting, allocated=allocated(extra={NOMINATED: "n"})).nominated == ""
    assert replace(waiting, node="n").nominated == ""


def test_pod_waits_until_its_newest_wish_is_decided() -> None:
    """A pod counts as waiting until its newest wish is decided."""
    assert [state.waits for state in (pod("a"), pod("b", wants=1), pod("c", wants=1, has=[0]))] == [False, True, False]
    assert pod("a", wants=1, has=[0], ticket=1).waits
    assert not pod("a", wants=1, ticket=1, gone=True).waits
    assert replace(pod("a", has=[0]), requested=requested(1, 2)).waits


def test_last_ticket_is_that_of_the_whole_cluster() -> None:
    """It counts all nodes and pending pods, so that lines can be compared."""
    snapshot = cluster({"n": 1, "m": 1}, [pod("a", wants=1, ticket=3, node="n"), new("b", wants=1, ticket=7)])
    assert snapshot.last_ticket == 7
    snapshot.put_pod(new("b", wants=1))
    assert snapshot.last_ticket == 3
    snapshot.remove_pod("a")
    assert snapshot.last_ticket == 0


def test_facts_and_slots_are_counted() -> None:
    """Unknown facts are empty; the snapshot counts slots, and so do the facts."""
    snapshot = cluster(
        {"n": 1}, [pod("a", node="n"), replace(pod("b", node="n"), slots=2), pod("c", node="n", gone=True)]
    )
    assert snapshot.slots_taken("n") == 3
    snapshot.put_node("n", gpus_of(snapshot, "n"), facts(9, used={SLOT: 5}))
    assert snapshot.slots_taken("n") == 5
    assert snapshot.facts("unknown") == NodeFacts()


def test_gpu_is_found_on_the_nodes_that_report_it() -> None:
    """The order in which nodes come does not matter; several may report it, and that is known."""
    snapshot = cluster({"n": 2})
    assert [snapshot.homes(uuid(index)) for index in range(3)] == [("n",), ("n",), ()]
    snapshot.put_node("m", inventory(2)[1:])
    assert [snapshot.homes(uuid(index)) for index in range(2)] == [("n",), ("m", "n")]
    assert snapshot.claimed_twice() == (uuid(1),)
    snapshot.put_node("n", inventory(1))
    assert (snapshot.homes(uuid(1)), snapshot.claimed_twice()) == (("m",), ())
    snapshot.put_node("n", inventory(2))
    snapshot.remove_node("n")
    assert [snapshot.homes(uuid(index)) for index in range(2)] == [(), ("m",)]
    assert snapshot.claimed_twice() == ()
    for name in ("a", "b"):
        snapshot.put_node(name, inventory(2))
    snapshot.remove_node("a")
    assert (snapshot.homes(uuid(1)), snapshot.claimed_twice()) == (("b", "m"), (uuid(1),)), "two are left of three"


def test_gpu_belongs_to_its_node() -> None:
    """Records of pods on another node, attached or draining, take nothing of it; they count for their own node."""
    snapshot = cluster({"old": 2})
    snapshot.put_node("new", inventory(2), facts())
    snapshot.put_pod(pod("stuck", wants=1, has=[0], draining=[1], node="old"))
    assert [snapshot.free(uuid(index), "new") for index in range(2)] == [1000, 1000]
    assert [snapshot.free(uuid(index), "old") for index in range(2)] == [0, 0]
    assert [dict(snapshot.holders(uuid(0), node)) for node in ("old", "new", "other")] == [{"stuck": 1000}, {}, {}]
    snapshot.put_pod(pod("mine", wants=2, node="new"))
    for node, has in (("new", {"mine": {0: 1000, 1: 1000}}), ("old", {"stuck": {0: 1000}})):
        assert decided(snapshot, node) == has
    assert snapshot.contested("new") == snapshot.contested("old") == ()
    assert repair(snapshot, "new") == ()
    assert filter_nodes(snapshot, new("next", wants=1), ("new", "old")).fitting == ()


def test_answers_are_kept_until_the_node_changes() -> None:
    """Equal records change nothing, nor does what a pod of another node says of its GPUs."""
    snapshot = cluster({"n": 1, "m": 1}, [pod("a", has=[0], node="n")])

    def kept() -> list[str]:
        found = sorted(snapshot.memo("question"))
        snapshot.memo("question").update({"n": 1, "m": 1})
        return found

    kept()
    snapshot.put_pod(pod("a", has=[0], node="n"))
    snapshot.put_node("n", gpus_of(snapshot, "n"), facts())
    assert kept() == ["m", "n"]
    snapshot.put_pod(pod("a", has=[], node="n"))
    assert kept() == ["m"]
    snapshot.put_pod(pod("b", has=[10], node="elsewhere"))
    assert kept() == ["m", "n"]
    snapshot.put_node("n", gpus_of(snapshot, "n"), facts(1))
    assert kept() == ["m"]
    snapshot.put_pod(new("c", wants=1, ticket=1, on="m"))
    assert kept() == ["n"]
    snapshot.remove_node("n")
    assert kept() == ["m"]


def test_number_of_kept_answers_is_limited() -> None:
    """Those asked least recently are forgotten, so that odd wishes don't fill the memory."""
    snapshot = cluster({"n": 1})
    snapshot.memo("first")["n"] = snapshot.memo("second")["n"] = 1
    for number in range(254):
        snapshot.memo(number)
    assert snapshot.memo("first") == {"n": 1}
    snapshot.memo("one more")
    assert snapshot.memo("first") == {"n": 1}
    assert snapshot.memo("second") == {}


def test_contested_gpu_is_found() -> None:
    """A GPU is contested if more than all of it is held."""
    snapshot = world(2, [pod("a", has={0: 500, 1: 500}), pod("b", has={0: 501, 1: 500})])
    assert snapshot.contested("node") == (uuid(0),)
    assert snapshot.contested("elsewhere") == ()


def test_answers_about_gpus_outlive_changes_of_pods() -> None:
    """Answers that follow from a node's inventory alone are asked for again once that is another, or unknown."""
    snapshot = world(1)
    snapshot.put_node("m", inventory(1))
    snapshot.gpu_memo("question").update({"node": 1, "m": 1})
    snapshot.put_pod(pod("a", wants=1, has=[0]))
    snapshot.put_node("node", gpus_of(snapshot), facts(slots=3))
    assert snapshot.gpu_memo("question") == {"node": 1, "m": 1}
    snapshot.put_node("node", inventory(2), facts(slots=3))
    assert snapshot.gpu_memo("question") == {"m": 1}
    snapshot.remove_node("m")
    assert snapshot.gpu_memo("question") == {}
