"""New pods whose limit permits less than they wish: they start with what it permits."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import leave, nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import apply, cluster, new, pod

POLICY = Policy()
LIMIT = PodLimit(2000, 2000, Source(SourceKind.DEFAULT))
SENTENCE = "Your limit is 2 GPUs for all your servers together, the default for everyone."


def _limited(state: PodState, allowance: int | None) -> PodState:
    return replace(state, allowance=allowance, pod_limit=LIMIT)


def test_new_pod_starts_with_its_allowance() -> None:
    """The profile says three, the limit says two: it fits where two are free, and is bound with two."""
    snapshot = cluster({"n": 2})
    asks = _limited(new("a", wants=3), 2000)
    assert filter_nodes(snapshot, asks, ("n",)).fitting == ("n",)
    found = allocate(snapshot, asks, "n")
    assert isinstance(found, Allocated)
    assert (total(found.shares), found.reason, found.limit) == (2000, Reason.LIMIT_EXCEEDED, LIMIT)
    assert found.message == f"2 of 3 GPUs. {SENTENCE}"
    snapshot.put_pod(replace(asks, node="n", allocated=found))
    assert decide(snapshot, "n") == (), "the decision after the Binding has nothing to add"


def test_new_pod_without_an_allowance_starts_with_none() -> None:
    """It fits everywhere, also where there is no GPU or none is free, and prefers a node with free ones."""
    snapshot = cluster({"full": 1, "none": 0, "free": 4}, [pod("b", wants=1, has=[0], node="full")])
    asks = _limited(new("a", wants=3), 0)
    fitting = filter_nodes(snapshot, asks, ("full", "none", "free")).fitting
    assert fitting == ("full", "none", "free")
    scores = prioritize(snapshot, asks, fitting, POLICY)
    assert max(scores, key=lambda name: scores[name]) == "free"
    found = allocate(snapshot, asks, "none")
    assert isinstance(found, Allocated)
    assert (found.shares, found.reason) == ((), Reason.LIMIT_EXCEEDED)
    wants_none = replace(new("c", wants=0), allowance=0)
    assert filter_nodes(snapshot, wants_none, ("none",)).never, "a pod that wishes nothing yet may wish some later"
    assert filter_nodes(snapshot, asks, ("none",)).fitting == ("none",)


def test_permitted_part_waits_in_line() -> None:
    """Without room for the permitted part, the pod waits in line for that, and its message has both reasons."""
    snapshot = cluster({"n": 2}, [pod("b", wants=2, has=[0, 1], node="n")])
    asks = _limited(new("a", wants=3, offered=["n"]), 2000)
    snapshot.put_pod(asks)
    found = nominate(snapshot, asks, ("n",), POLICY)
    assert found is not None
    assert (found.allocated.ticket, found.allocated.position, found.allocated.limit) == (1, 1, LIMIT)
    assert found.allocated.message == f"Waiting for 2 GPUs on n; not enough is free now. {SENTENCE}"
    apply(snapshot, [found])
    assert decide(snapshot, "n") == ()


def test_new_limit_is_written_to_a_pod_in_line() -> None:
    """A pod in line whose limit changes gets the new one, although it waits as before."""
    snapshot = cluster({"n": 1}, [pod("b", wants=1, has=[0], node="n")])
    asks = replace(_limited(new("a", wants=1, offered=["n"]), 1000), pod_limit=None)
    snapshot.put_pod(asks)
    found = nominate(snapshot, asks, ("n",), POLICY)
    assert found is not None
    apply(snapshot, [found])
    assert decide(snapshot, "n") == ()
    state = snapshot.pod("a")
    assert state is not None
    snapshot.put_pod(replace(state, pod_limit=LIMIT))
    assert [one.allocated.limit for one in decide(snapshot, "n")] == [LIMIT]


def test_pod_in_line_whose_allowance_becomes_nothing_leaves_it() -> None:
    """It stands in no line any more, as room would not help it; that write has kube-scheduler ask again."""
    snapshot = cluster({"n": 1}, [pod("b", wants=1, has=[0], node="n")])
    asks = _limited(new("a", wants=1, ticket=1, on="n", offered=["n"]), 0)
    snapshot.put_pod(asks)
    (found,) = review(snapshot, POLICY, ("n",))
    assert found == leave(snapshot, asks, POLICY, ("n",))
    assert (found.allocated.ticket, found.allocated.reason, found.allocated.limit) == (
        None,
        Reason.LIMIT_EXCEEDED,
        LIMIT,
    )
    assert found.allocated.message == f"0 of 1 GPUs. {SENTENCE}"
    apply(snapshot, [found])
    assert review(snapshot, POLICY, ("n",)) == ()
    assert filter_nodes(snapshot, asks, ("n",)).fitting == ("n",)


def test_raised_allowance_of_a_pod_in_line() -> None:
    """A pod that waits for two waits for three once its limit is raised, and keeps its ticket."""
    snapshot = cluster(
        {"n": 2, "m": 4}, [pod("b", wants=2, has=[0, 1], node="n"), pod("c", wants=2, has=[10, 11], node="m")]
    )
    asks = _limited(new("a", wants=3, ticket=7, on="n", offered=["n", "m"]), 2000)
    snapshot.put_pod(replace(asks, allowance=3000))
    (found,) = review(snapshot, POLICY)
    assert found.allocated.ticket == 7
    assert found.allocated.extra["nominated"] == "m"
    assert "Waiting for 3 GPUs on m" in found.allocated.message


def test_pod_held_by_its_limit_wants_no_more() -> None:
    """For the rating of nodes, a pod at its limit takes no more there; one without a limit may."""
    at_limit = replace(pod("b", wants=1, has={0: 500}, node="n"), allowance=500)
    other = pod("d", wants=0.5, has={10: 500}, node="m")
    ratings = prioritize(cluster({"n": 2, "m": 2}, [at_limit, other]), new("a", wants=0), ("n", "m"), POLICY)
    assert ratings["n"] > ratings["m"]
