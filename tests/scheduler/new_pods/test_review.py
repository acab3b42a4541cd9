"""The review of nominations: it finds what a scan of every pod would, without one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.new_pods.nominate import fits_at, is_void, leave, may_go, must_leave, nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review, review_in_steps
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import cluster, facts, new, pod

POLICY = Policy()
NODES = ("n", "m", "k")


def each_in_turn(snapshot: ClusterSnapshot, changed: Iterable[str]) -> list[Decision]:
    """The simplest way: every pod in line order, each with a look at every node with room. Changes the snapshot."""
    dirty = {*changed, ""}
    with_room = [name for name in NODES if name in dirty and any(map(snapshot.free, _uuids(snapshot, name)))]
    decisions = []
    for state in snapshot.pending():
        if state.ticket is None or state.gone:
            continue
        found = _moved(snapshot, state, dirty, with_room)
        if found:
            decisions.append(found)
            snapshot.put_pod(replace(state, allocated=found.allocated))
    return decisions


def _moved(snapshot: ClusterSnapshot, state: PodState, dirty: set[str], with_room: list[str]) -> Decision | None:
    offered = any(name in (state.offered or ()) for name in dirty)  # a pod in no line goes to nodes that changed
    if state.nominated in dirty and (state.nominated or is_void(state) or offered) and must_leave(snapshot, state):
        return leave(snapshot, state, POLICY, dirty)
    if fits_at(snapshot, state, state.nominated):
        return None
    able = [name for name in with_room if name != state.nominated and may_go(snapshot, state, name)]
    able = [name for name in able if fits_at(snapshot, state, name)]
    return nominate(snapshot, state, able, POLICY) if able else None


def _uuids(snapshot: ClusterSnapshot, node: str) -> list[str]:
    return [gpu.uuid for gpu in snapshot.gpus(node) or ()]


wishes = st.sampled_from(
    [Wish(250), Wish(500), Wish(1000), Wish(1000, priority=1), Wish(2000), Wish(2000, topology="island"), Wish(9000)]
)
places = st.sampled_from([*NODES, "gone", ""])
offers = st.sampled_from([NODES, NODES, ("n", "k"), None])
waiting = st.tuples(wishes, places, st.sampled_from([{}, {}, {"pool": "a"}]), offers)
held = st.lists(st.sampled_from([0, 250, 500, 1000, 1000]), min_size=2, max_size=2)


@given(
    rooms=st.lists(held, min_size=3, max_size=3),
    pods=st.lists(waiting, max_size=12),
    changed=st.sets(st.sampled_from([*NODES, "gone"])),
    cordoned=st.sets(st.sampled_from(NODES), max_size=1),
)
def test_review_agrees_with_a_scan_of_every_pod(
    rooms: list[list[int]],
    pods: list[tuple[Wish, str, dict[str, str], tuple[str, ...] | None]],
    changed: set[str],
    cordoned: set[str],
) -> None:
    """The result is the same in any cluster after any change, and leaves nothing in the snapshot."""
    about = {
        name: facts(3, schedulable=name not in cordoned, labels={"pool": "a"} if name == "m" else {}) for name in NODES
    }
    owners = [
        pod(f"{name}{number}", wants=f"{milli}m", has={10 * place + number: milli}, node=name)
        for place, (name, gpus) in enumerate(zip(NODES, rooms, strict=True))
        for number, milli in enumerate(gpus)
        if milli
    ]
    line = [
        new(f"p{number:02}", wants=wish, ticket=number + 1, on=on, selector=selector, offered=offered)
        for number, (wish, on, selector, offered) in enumerate(pods)
    ]
    snapshot = cluster(dict.fromkeys(NODES, 2), (*owners, *line), about)
    before = snapshot.pending()
    found = review(snapshot, POLICY, changed)
    assert snapshot.pending() == before
    assert list(found) == each_in_turn(snapshot, changed)


def test_unchanged_nodes_cost_nothing() -> None:
    """The cost does not grow with the waiting pods; for a part that fits none, one pod of each kind is examined."""
    line = [new(f"p{number:04}", wants=1, ticket=number + 1, on="n", offered=NODES) for number in range(1000)]
    owners = [pod("a", wants=1, has=[0], node="n"), pod("b", wants="750m", has={10: 750}, node="m")]
    snapshot = cluster({"n": 1, "m": 1}, (*owners, *line))
    assert list(review_in_steps(snapshot, POLICY, ())) == []
    assert len(list(review_in_steps(snapshot, POLICY, ("m",)))) <= 3
    assert len(list(review_in_steps(snapshot, POLICY, ("n", "m")))) <= 5


def test_changes_between_two_steps_do_no_harm() -> None:
    """Pods come, go and change meanwhile: no decision is about a missing pod, and none comes twice."""
    line = [new(f"p{number}", wants=number % 2 + 1, ticket=number + 1, on="gone", offered=NODES) for number in range(8)]
    snapshot = cluster({"n": 2, "m": 2}, line)
    told = []
    for number, found in enumerate(review_in_steps(snapshot, POLICY)):
        if found:
            state = snapshot.pod(found.uid)
            assert state
            told.append(found.uid)
            snapshot.put_pod(replace(state, allocated=found.allocated))
        if number < 5:
            snapshot.remove_pod(f"p{7 - number}")
            snapshot.put_pod(new(f"late{number}", wants=1, ticket=100 + number, on="n", offered=NODES))
    assert len(told) == len(set(told))


def test_last_pod_of_a_kind_may_go_during_the_review() -> None:
    """A kind whose last pod was deleted just before it would have been examined is no error."""
    line = [new(f"p{wants}", wants=wants, ticket=wants, on="n", offered=NODES) for wants in (1, 2)]
    snapshot = cluster({"n": 2}, line)
    steps = review_in_steps(snapshot, POLICY, ("n",))
    assert [next(steps) for _ in range(3)] == [None] * 3, "two kinds where they wait, and the first where room is"
    snapshot.remove_pod("p2")
    assert list(steps) == [None] * 2


def test_pods_move_until_the_room_is_taken() -> None:
    """The first two of three move, past a node that has too little, and the third stays."""
    line = [new(f"p{number}", wants=1, ticket=number + 1, on="n", offered=NODES) for number in range(3)]
    owners = [pod("a", wants=1, has=[0], node="n"), pod("b", wants="750m", has={10: 750}, node="m")]
    snapshot = cluster({"n": 1, "m": 1, "k": 2}, (*owners, *line))
    found = review(snapshot, POLICY, ("m", "k"))
    assert [(step.uid, step.allocated.extra[NOMINATED]) for step in found] == [("p0", "k"), ("p1", "k")]


def test_pod_without_a_wish_loses_its_ticket() -> None:
    """A pod that stands in no line loses it too, whatever nodes changed."""
    snapshot = cluster({"n": 1}, [new("p", wants=0, ticket=1)])
    (found,) = review(snapshot, POLICY, ())
    assert (found.uid, found.allocated.ticket) == ("p", None)
