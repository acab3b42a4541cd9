"""The node in whose line a new pod waits, and when it moves to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu_scheduler.rules.new_pods.nominate import is_early, nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import allocated, apply, cluster, facts, inventory, new, pod, requested

POLICY = Policy()


def waits(
    snapshot: ClusterSnapshot, me: PodState, names: str | list[str] = "", policy: Policy = POLICY
) -> Allocated | None:
    """Return the pod with the `allocated` that it waits with; names are single letters."""
    found = nominate(snapshot, me, list(names or snapshot.nodes()), policy)
    if found is None:
        return None
    snapshot.put_pod(replace(me, allocated=found.allocated))
    return found.allocated


def reviewed(snapshot: ClusterSnapshot, changed: str | None = None) -> dict[str, str]:
    """Return the pods that are nominated anew, and their nodes, applied. A second review changes nothing."""
    before = snapshot.pending()
    found = review(snapshot, POLICY, None if changed is None else list(changed))
    assert snapshot.pending() == before
    apply(snapshot, found)
    assert review(snapshot, POLICY, None if changed is None else list(changed)) == ()
    return {step.uid: str(step.allocated.extra.get(NOMINATED, "")) for step in found}


def test_new_pod_takes_a_ticket_and_stands_in_one_line() -> None:
    """The ticket is the next of the cluster; all is in the pod's own `allocated`, and nothing is allocated."""
    snapshot = cluster({"n": 2, "m": 2}, [pod("a", wants=3, has=[0, 1], ticket=7, node="n")])
    assert waits(snapshot, new("me", wants=2), "n") == Allocated(
        1,
        (),
        Reason.DEFERRED,
        "Waiting for 2 GPUs on n; not enough is free now.",
        ticket=8,
        position=2,
        extra={NOMINATED: "n"},
    )
    assert [state.uid for state in snapshot.line("n")] == ["a", "me"]
    assert snapshot.line("m") == ()


def test_repeated_question_changes_nothing() -> None:
    """The pod keeps its ticket and its node; a new wish is noted."""
    snapshot = cluster({"n": 2}, [pod("a", wants=2, has=[0, 1], node="n")])
    assert waits(snapshot, new("me", wants=2))
    me = snapshot.pod("me")
    assert me is not None
    assert nominate(snapshot, me, ["n"], POLICY) is None
    found = waits(snapshot, replace(me, requested=requested(1, 2)))
    assert found is not None
    assert (found.ticket, found.observed_generation) == (1, 2)


def test_no_ticket_is_taken_before_those_that_come_before_have_theirs() -> None:
    """A running pod whose newest wish is not decided yet has no ticket: one taken now would overtake it."""
    undecided = replace(pod("d", wants=1, has=[], node="k"), created=1.0, requested=requested(1, 2))
    others = [pod("a", wants=1, has=[10], node="m"), pod("c", wants=2, has=[20, 21], node="n")]
    snapshot = cluster({"k": 2, "m": 2, "n": 2}, [*others, undecided])
    me = new("me", wants=2, created=2.0)
    assert waits(snapshot, me, "kmn") is None
    assert is_early(snapshot, me, "kmn")
    assert not is_early(snapshot, me, "mn"), "what it can't go to does not matter"
    assert not is_early(snapshot, new("me", wants=2, created=0.5), "kmn"), "it comes before the other one"
    assert not is_early(snapshot, new("me", wants=2, created=2.0, priority=1), "kmn"), "with or without a ticket"
    snapshot.put_pod(replace(undecided, requested=None))
    assert not is_early(snapshot, me, "kmn")
    snapshot.put_pod(undecided)
    apply(snapshot, decide(snapshot, "k"))
    found = waits(snapshot, me, "kmn")
    assert found
    assert (found.ticket, found.extra[NOMINATED]) == (1, "k")
    assert waits(snapshot, replace(me, allocated=found), "kmn") is None


def test_node_is_chosen_as_for_a_pod_with_a_ticket() -> None:
    """One whose limit was raised waits without a ticket, so it comes first only until others have theirs."""
    raised = replace(pod("d", wants=1, node="k"), allocated=allocated(reason=Reason.LIMIT_EXCEEDED))
    snapshot = cluster({"k": 2, "m": 2}, [raised, pod("a", wants=1, has=[10], node="m")])
    me = new("me", wants=2, created=2.0)
    found = waits(snapshot, me, "km")
    assert found
    assert (found.ticket, found.extra[NOMINATED]) == (1, "k")
    assert waits(snapshot, replace(me, allocated=found), "km") is None


def test_pod_waits_where_it_has_the_best_prospect() -> None:
    """The best is a node where it fits, then where it lacks least, then the shortest line, then the score; never one
    that can't serve it.
    """
    pods = [
        pod("a", wants=4, has=[0, 1, 2, 3], node="a"),
        pod("b", wants=3, has=[10, 11, 12], node="b"),
        pod("c", wants=4, has=[20, 21, 22, 23], node="c"),
        new("x", wants=4, ticket=1, on="a"),
    ]
    snapshot = cluster({"a": 4, "b": 4, "c": 4, "d": 1, "e": 4}, pods)
    me = new("me", wants=2)

    def where(names: str) -> str:
        found = nominate(snapshot, me, list(names), POLICY)
        assert found is not None
        return str(found.allocated.extra[NOMINATED])

    assert where("abcde") == "e"
    assert where("abcd") == "b"
    assert where("acd") == "c"
    assert where("ad") == "a"
    spread = Policy(weights={"cpu_free": 1.0})
    snapshot.put_node("c", snapshot.gpus("c") or (), facts(cpu=1))
    snapshot.put_node("a", snapshot.gpus("a") or (), facts(cpu=1, used={"cpu": 900}))
    snapshot.remove_pod("x")
    found = nominate(snapshot, me, ["a", "c"], spread)
    assert found is not None
    assert found.allocated.extra[NOMINATED] == "c"


def test_equal_pods_wait_on_different_nodes() -> None:
    """Equal pods do not all stand in one line while another is empty."""
    pods = [pod("a", wants=2, has=[0, 1], node="n"), pod("b", wants=2, has=[10, 11], node="m")]
    snapshot = cluster({"n": 2, "m": 2}, pods)
    for uid in "wxyz":
        assert waits(snapshot, new(uid, wants=2))
    assert [len(snapshot.line(node)) for node in ("n", "m")] == [2, 2]


def test_pod_that_no_node_can_serve_says_so() -> None:
    """It stands in no line, and its `allocated` says what is missing where; likewise beyond its limit."""
    snapshot = cluster({"n": 2, "m": 2, "k": 0})
    found = waits(snapshot, new("me", wants=3))
    assert found == Allocated(
        1,
        reason=Reason.INFEASIBLE,
        message="None of 3 nodes can serve this (2: only 2 GPUs, 3 wanted; 1: the node has no GPU).",
    )
    found = waits(snapshot, new("me", wants=3, limit=2))
    assert found is not None
    assert (found.reason, found.ticket) == (Reason.LIMIT_EXCEEDED, None)
    found = waits(snapshot, replace(new("me"), fault="It can't be read."))
    assert found == Allocated(0, reason=Reason.INFEASIBLE, message="It can't be read.")
    found = waits(ClusterSnapshot(), new("me", wants=1))
    assert found is not None
    assert found.message == "No node can serve this."


def test_pod_without_a_wish_stands_in_no_line() -> None:
    """Such a pod waits for something else; if it stood in a line, it leaves."""
    snapshot = cluster({"n": 2})
    assert waits(snapshot, new("me")) is None
    assert waits(snapshot, replace(new("me"), allocated=allocated())) is None
    assert waits(snapshot, new("me", wants=0, ticket=1, on="n")) == Allocated(1)


def test_pod_moves_to_a_node_where_it_fits() -> None:
    """A node where room came free takes the pod that has waited longest, wherever it waits; the rest stay."""
    pods = [
        pod("a", wants=2, has=[0, 1], node="n"),
        new("x", wants=2, ticket=1, on="n", offered="nmk"),
        new("y", wants=2, ticket=2, on="n", offered="nmk"),
    ]
    snapshot = cluster({"n": 2, "m": 2, "k": 2}, [*pods, pod("b", wants=2, has=[20, 21], node="k")])
    assert reviewed(snapshot, "n") == {}
    assert reviewed(snapshot, "mk") == {"x": "m"}
    assert reviewed(snapshot) == {}
    assert [state.uid for state in snapshot.line("n")] == ["y"]


def test_pod_does_not_move_behind_others() -> None:
    """Room that is kept for other pods is no room; and priority counts on every node."""
    pods = [
        pod("a", wants=2, has=[0, 1], node="n"),
        new("x", wants=2, ticket=1, on="n", offered="nm"),
        new("y", wants=2, ticket=2, priority=5, on="n", offered="nm"),
        new("z", wants=1, ticket=3, on="m"),
    ]
    snapshot = cluster({"n": 2, "m": 2}, pods)
    assert reviewed(snapshot) == {"y": "m"}


def test_repeated_question_moves_the_pod_where_it_lacks_less() -> None:
    """The pod returns to a better node that was gone for a while, and does not follow a GPU that comes free behind
    others.
    """
    pods = [
        pod("a", wants=4, has=[0, 1, 2, 3], node="n"),
        pod("b", wants=2, has=[10, 11], node="m"),
        new("x", wants=4, ticket=1, on="n"),
        new("y", wants=4, ticket=2, on="n"),
    ]
    snapshot = cluster({"n": 4, "m": 4}, pods)

    def goes(uid: str, names: str) -> str:
        me = snapshot.pod(uid)
        assert me
        waits(snapshot, me, names)
        asked = snapshot.pod(uid)
        assert asked
        return asked.nominated

    assert goes("x", "n") == goes("y", "n") == "n"
    assert goes("x", "nm") == "m"
    assert goes("y", "nm") == "n", "It is the first there now, and would be the second on m."
    assert goes("x", "nm") == "m"


def test_pods_leave_a_node_that_can_serve_no_more() -> None:
    """If a node is gone, lost GPUs, is cordoned or lost its labels, its pods wait elsewhere, with their tickets."""
    wants: dict[str, Any] = {"wants": 2, "selector": {"gpu": "yes"}}
    labelled = facts(labels={"gpu": "yes"})
    losses: dict[str, Callable[[ClusterSnapshot], None]] = {
        "gone": lambda snapshot: snapshot.remove_node("n"),
        "smaller": lambda snapshot: snapshot.put_node("n", inventory(1), labelled),
        "cordoned": lambda snapshot: snapshot.put_node("n", inventory(2), replace(labelled, schedulable=False)),
        "other labels": lambda snapshot: snapshot.put_node("n", inventory(2), facts()),
    }
    for name, lose in losses.items():
        pods = [new("x", ticket=4, on="n", offered="nm", **wants), pod("a", wants=1, has=[10], node="m")]
        snapshot = cluster({"n": 2, "m": 2, "k": 4}, pods, {"n": labelled, "m": labelled})
        assert reviewed(snapshot, "n") == {}, name
        lose(snapshot)
        assert reviewed(snapshot, "n") == {"x": "m"}, name
        state = snapshot.pod("x")
        assert state is not None
        assert state.ticket == 4, name


def test_pod_does_not_move_where_other_resources_are_missing() -> None:
    """A pod does not move to a node that lacks what else it asks for."""
    pods = [
        pod("a", wants=2, has=[0, 1], node="n"),
        new("x", wants=2, ticket=1, on="n", offered="nm", asks={"cpu": 2000}),
    ]
    snapshot = cluster({"n": 2, "m": 2}, pods, {"m": facts(cpu=4, used={"cpu": 3000})})
    assert reviewed(snapshot) == {}
    snapshot.put_node("m", snapshot.gpus("m") or (), facts(cpu=4, used={"cpu": 2000}))
    assert reviewed(snapshot, "m") == {"x": "m"}


def test_pod_that_can_be_served_nowhere_leaves_the_line() -> None:
    """It keeps its ticket until kube-scheduler asks again. A pod that wants nothing any more, or too much, loses it;
    finished pods and those in no line are left alone.
    """
    pods = [
        new("x", wants=2, ticket=1, on="n", offered="n"),
        new("zero", wants=0, ticket=2, on="n"),
        new("over", wants=2, limit=1, ticket=3, on="n"),
        new("dead", wants=9, ticket=4, on="n", gone=True),
        new("no ticket", wants=9),
        new("lost", wants=1, ticket=5, offered="n"),
    ]
    snapshot = cluster({"n": 1}, pods)
    assert reviewed(snapshot, "n") == {"x": "", "zero": "", "over": "", "lost": "n"}
    reasons = {state.uid: state.allocated.reason for state in snapshot.pending() if state.allocated}
    assert reasons == {
        "x": Reason.DEFERRED, "zero": None, "over": Reason.LIMIT_EXCEEDED, "dead": None, "lost": Reason.DEFERRED,
    }  # fmt: skip
    assert [state.uid for state in snapshot.line("n")] == ["lost"]
    x = snapshot.pod("x")
    assert x
    assert x.allocated
    assert (x.ticket, x.allocated.position) == (1, None)
    assert x.allocated.message == "Waiting for 2 GPUs; no node that could serve it takes the pod now."
    found = waits(snapshot, x, "n")
    assert found
    assert (found.reason, found.ticket) == (Reason.INFEASIBLE, None)


def test_pod_waits_only_on_offered_nodes() -> None:
    """Room on a node that was not offered, for whatever reason, changes nothing; nor does any before it is known."""
    full = pod("a", wants=2, has=[0, 1], node="n")
    for offered in ("n", None):
        snapshot = cluster({"n": 2, "m": 2}, [full, new("x", wants=2, ticket=1, on="n", offered=offered)])
        assert reviewed(snapshot) == {}, "there is room on m"
    snapshot = cluster({"n": 2, "m": 2, "k": 2}, [full, new("x", wants=2, ticket=1, on="n", offered="kn")])
    assert reviewed(snapshot) == {"x": "k"}


def test_pod_keeps_its_ticket_while_its_only_node_is_closed() -> None:
    """It keeps nothing back there; when the node is open again, the pod is in its line again."""
    busy = [pod("a", wants=1, has=[0], node="n"), pod("b", wants=1, has=[], node="n", ticket=2)]
    for offered in ("n", None):
        snapshot = cluster({"n": 2, "m": 2}, [*busy, new("x", wants=2, ticket=1, on="n", offered=offered)])
        assert not any(step.added for step in decide(snapshot, "n"))
        snapshot.put_node("n", snapshot.gpus("n") or (), facts(schedulable=False))
        assert reviewed(snapshot) == {"x": ""}
        assert [step.uid for step in decide(snapshot, "n") if step.added] == ["b"]
        me = snapshot.pod("x")
        assert me
        assert nominate(snapshot, me, ["n"], POLICY) is None, "it tolerates the cordon: we do not"
        snapshot.put_node("n", snapshot.gpus("n") or (), facts())
        assert reviewed(snapshot) == ({"x": "n"} if offered else {})
        assert me.ticket == 1


def test_pod_keeps_its_place_while_the_right_node_is_not_offered() -> None:
    """A tainted node may come back: that those offered now can never serve the pod says nothing of later."""
    labelled = facts(labels={"gpu": "yes"})
    snapshot = cluster({"big": 4, "small": 1}, about={"big": labelled, "small": labelled})
    for selector in ({}, {"gpu": "yes"}):
        me = new("me", wants=2, ticket=1, on="big", offered=["big", "small"], selector=selector)
        snapshot.put_pod(me)
        found = waits(snapshot, me, ["small"])
        assert found
        assert (found.reason, found.ticket, found.position, found.extra) == (Reason.DEFERRED, 1, None, {})
    found = waits(snapshot, new("me", wants=2, ticket=1, on="big", selector={"gpu": "no"}), ["small"])
    assert found
    assert found.reason == Reason.INFEASIBLE, "the other one is not for it"


def test_pod_waits_for_a_node_without_inventory() -> None:
    """A node without inventory may serve one day: the pod has a ticket, and no line to stand in."""
    found = waits(cluster({"n": 0}), new("me", wants=1), "ns")
    assert found
    assert (found.reason, found.ticket, found.position, found.extra) == (Reason.DEFERRED, 1, None, {})


@given(data=st.data())
def test_questions_and_reviews_come_to_rest(data: st.DataObject) -> None:
    """Whatever nodes are offered and however the cluster is, a question and looks after it write once each, no more."""
    names = "abcd"
    about = {name: facts(data.draw(st.integers(0, 2)), schedulable=data.draw(st.booleans())) for name in names}
    owners = [pod(f"on-{n}", wants=1, has=[10 * n], node=n_) for n, n_ in enumerate(names) if data.draw(st.booleans())]
    gpus = {name: data.draw(st.integers(0, 3)) for name in names}
    snapshot = cluster(gpus, [one for one in owners if gpus[one.node]], about)
    offered = data.draw(st.sets(st.sampled_from("abcdx"), min_size=1))
    me = new("me", wants=data.draw(st.integers(1, 3)), offered=offered)
    waits(snapshot, me, sorted(offered))
    for _ in range(2):
        reviewed(snapshot)
        state = snapshot.pod("me")
        assert state
        if state.nominated:
            assert state.nominated in offered
        if state.ticket is not None:
            assert nominate(snapshot, state, sorted(offered), POLICY) is None


def test_pod_is_examined_only_if_its_outlook_may_have_changed() -> None:
    """A pod that waits where nothing changed is left alone, unless a node that did change has room."""
    pods = [
        pod("a", wants=2, has=[0, 1], node="n"),
        pod("b", wants=2, has=[10, 11], node="m"),
        new("x", wants=3, ticket=1, on="n", offered="nm"),
        new("y", wants=2, ticket=2, offered="nm"),
    ]
    snapshot = cluster({"n": 2, "m": 2}, pods)
    assert reviewed(snapshot, "m") == {"y": "m"}
    assert reviewed(snapshot, "n") == {"x": ""}
    assert reviewed(snapshot, "nm") == {}


def test_pod_learns_its_place_and_that_there_is_room() -> None:
    """The write that says so makes kube-scheduler try again; nothing is allocated before it binds."""
    snapshot = cluster({"n": 2}, [pod("a", wants=2, has=[0, 1], node="n")])
    waits(snapshot, new("me", wants=2))
    waits(snapshot, new("next", wants=2))
    assert decide(snapshot, "n") == ()
    snapshot.put_pod(pod("a", wants=0, has=[0, 1], node="n"))
    steps = decide(snapshot, "n")
    assert [step.uid for step in steps] == ["a"], "what is only revoked is not free yet"
    apply(snapshot, steps)
    snapshot.put_pod(pod("a", wants=0, has=[], node="n"))
    steps = decide(snapshot, "n")
    assert steps == (Decision("me", replace(_allocated(snapshot, "me"), message=_ROOM)),)
    apply(snapshot, steps)
    snapshot.remove_pod("me")
    steps = decide(snapshot, "n")
    assert [(step.uid, step.allocated.position, step.allocated.message) for step in steps] == [("next", 1, _ROOM)]


_ROOM = "There is room for 2 GPUs on n now; the pod is about to start."


def _allocated(snapshot: ClusterSnapshot, uid: str) -> Allocated:
    state = snapshot.pod(uid)
    assert state is not None
    assert state.allocated is not None
    return state.allocated


def test_resize_does_not_overtake_a_pod_that_waits_to_start() -> None:
    """GPUs are kept for the pod that waits, so that it starts; a pod of higher priority goes before it."""
    grows = pod("a", wants=2, has=[0], node="n")
    snapshot = cluster({"n": 3}, [grows, new("me", wants=3, ticket=1, on="n")])
    assert [step.added for step in decide(snapshot, "n") if step.uid == "a"] == [()]
    snapshot.put_pod(pod("a", wants=2, has=[0], node="n", priority=1))
    assert [len(step.added) for step in decide(snapshot, "n") if step.uid == "a"] == [1]


def test_pod_that_lacks_something_else_keeps_only_its_place() -> None:
    """Its ticket stands, and others are served meanwhile."""
    snapshot = cluster(
        {"n": 2}, [pod("a", wants=2, has=[0], node="n"), new("me", wants=2, ticket=1, on="n", blocked=True)]
    )
    apply(snapshot, decide(snapshot, "n"))
    assert _allocated(snapshot, "a").reason is None
    assert (_allocated(snapshot, "me").ticket, _allocated(snapshot, "me").position) == (1, 1)


def test_decision_leaves_refused_pending_pods_to_the_review() -> None:
    """A pending pod that its node refuses is not written, as another node may serve it."""
    snapshot = cluster({"n": 1, "m": 4}, [new("me", wants=2, ticket=1, on="n", offered="nm")])
    assert decide(snapshot, "n") == ()
    assert reviewed(snapshot) == {"me": "m"}
