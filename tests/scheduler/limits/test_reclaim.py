"""GPUs that pods give back: for owners to whom they are guaranteed, and for all where the pods are preemptible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.reclaim import reclaimed
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import GIB, NODE, apply, gpu, inventory, new, pod, uuid, world

ONE, TWO = OwnerLimits(guaranteed=1000), OwnerLimits(guaranteed=2000)


def _of(name: str, state: PodState, *, preemptible: bool = False) -> PodState:
    requested = state.requested
    if preemptible and requested:
        requested = replace(requested, extra={"preemptible": True})
    return replace(state, owner=Owner("User", name), requested=requested)


def _reclaimed(
    gpus: int, pods: Iterable[PodState], limits: Mapping[str, OwnerLimits], *, guarantees: bool = True
) -> dict[str, int]:
    found = world(inventory(gpus, island=2, models=["A100", "H100"]), pods)
    return reclaimed(found, NODE, lambda owner: limits.get(owner.name, OwnerLimits()), guarantees=guarantees)


def _told_to_give_back(state: PodState) -> PodState:
    assert state.allocated
    return replace(state, allocated=replace(state.allocated, reason=Reason.LIMIT_EXCEEDED))


ANN = _of("ann", pod("a", wants=2, has=[0, 1]))
BOB = _of("bob", pod("b", wants=1, has=[], ticket=1))
JOB = _of("ann", pod("a", wants=2, has=[0, 1]), preemptible=True)

CASES: dict[str, tuple[int, list[PodState], dict[str, OwnerLimits], dict[str, int]]] = {
    "nothing is guaranteed": (2, [ANN, BOB], {}, {}),
    "a guaranteed GPU": (2, [ANN, BOB], {"bob": ONE}, {"a": 1000}),
    "no more than is guaranteed": (
        2,
        [ANN, _of("bob", pod("b", wants=2, has=[], ticket=1))],
        {"bob": ONE},
        {"a": 1000},
    ),
    "not below what is guaranteed to the other": (2, [ANN, BOB], {"ann": TWO, "bob": ONE}, {}),
    "not for one who does not wait": (2, [ANN, _of("bob", pod("b", wants=1))], {"bob": ONE}, {}),
    "not if a GPU is free": (3, [ANN, BOB], {"bob": ONE}, {}),
    "not if one drains already": (
        3,
        [ANN, BOB, _of("cid", pod("c", wants=0, has=[], draining=[2]))],
        {"bob": ONE},
        {"c": 1000},
    ),
    "what drains without that stays its pod's": (
        3,
        [ANN, BOB, _of("cid", pod("c", wants=0, has=[], draining=[2]))],
        {},
        {},
    ),
    "what drains because it was reclaimed is for any pod": (
        3,
        [ANN, BOB, _of("cid", _told_to_give_back(pod("c", wants=0, has=[], draining=[2])))],
        {},
        {"c": 1000},
    ),
    "of the one with the most for the weight": (
        5,
        [ANN, _of("cid", pod("c", wants=3, has=[2, 3, 4])), BOB],
        {"bob": ONE, "cid": OwnerLimits(weight=2)},
        {"a": 1000},
    ),
    "a preemptible pod, for any pod": (2, [JOB, BOB], {}, {"a": 1000}),
    "a preemptible pod first": (
        5,
        [
            _of("ann", pod("a", wants=1, has=[0]), preemptible=True),
            _of("cid", pod("c", wants=4, has=[1, 2, 3, 4])),
            BOB,
        ],
        {"bob": ONE},
        {"a": 1000},
    ),
    "a preemptible pod not below its guarantee": (2, [JOB, BOB], {"ann": TWO}, {}),
    "not for a preemptible pod": (2, [ANN, _of("bob", BOB, preemptible=True)], {"bob": ONE}, {}),
    "not for one's own pods": (2, [JOB, _of("ann", pod("b", wants=1, has=[], ticket=1))], {"ann": ONE}, {}),
    "not for a pod that waits for something else": (
        2,
        [ANN, _of("bob", new("b", wants=1, ticket=1, on=NODE, blocked=True))],
        {"bob": ONE},
        {},
    ),
    "not for one that wishes nothing any more": (
        2,
        [ANN, _of("bob", pod("b", wants=0, has=[], ticket=1)), _of("bob", pod("c", wants=None, has=[], ticket=2))],
        {"bob": ONE},
        {},
    ),
    "not for one whose limit permits nothing": (2, [ANN, replace(BOB, allowance=0)], {"bob": ONE}, {}),
    "idle ones first": (
        2,
        [
            _of("ann", pod("a", wants=1, has=[0], busy=[0])),
            _of("ann", pod("x", wants=1, has=[1])),
            BOB,
        ],
        {"bob": ONE},
        {"x": 1000},
    ),
    "then those that are open and rest": (
        2,
        [
            _of("ann", pod("a", wants=1, has=[0], busy=[0])),
            _of("ann", pod("x", wants=1, has=[1], busy=[1], resting=[1])),
            BOB,
        ],
        {"bob": ONE},
        {"x": 1000},
    ),
    "a GPU of the wished kind": (
        2,
        [
            _of("ann", pod("a", wants=1, has=[0], busy=[0])),
            _of("ann", pod("x", wants=1, has=[1])),
            _of("bob", pod("b", wants=1, has=[], ticket=1, model=("A100",))),
        ],
        {"bob": ONE},
        {"a": 1000},
    ),
    "not half of one for a whole": (
        1,
        [_of("ann", pod("a", wants=0.5, has={0: 500})), _of("cid", pod("c", wants=0.5, has={0: 500})), BOB],
        {"bob": ONE},
        {},
    ),
    "a part of one for a share": (
        1,
        [_of("ann", pod("a", wants=1, has=[0])), _of("bob", pod("b", wants=0.5, has=[], ticket=1))],
        {"bob": ONE},
        {"a": 500},
    ),
    "all of a new pod's wish": (2, [ANN, _of("bob", new("b", wants=2, ticket=1, on=NODE))], {"bob": TWO}, {"a": 2000}),
    "nothing where only a part could be had": (
        2,
        [ANN, _of("bob", new("b", wants=2, ticket=1, on=NODE))],
        {"bob": ONE},
        {},
    ),
    "an island": (
        4,
        [
            _of("ann", pod("a", wants=4, has=[0, 1, 2, 3])),
            _of("bob", pod("b", wants=2, has=[], ticket=1, topology="island")),
        ],
        {"bob": TWO},
        {"a": 2000},
    ),
    "the other island": (
        4,
        [
            _of("cid", pod("c", wants=1, has=[0])),
            _of("ann", pod("a", wants=3, has=[1, 2, 3])),
            _of("bob", pod("b", wants=2, has=[], ticket=1, topology="island")),
        ],
        {"bob": TWO, "cid": ONE},
        {"a": 2000},
    ),
    "no island": (
        2,
        [
            _of("cid", pod("c", wants=1, has=[0])),
            _of("ann", pod("a", wants=1, has=[1])),
            _of("bob", pod("b", wants=2, has=[], ticket=1, topology="island")),
        ],
        {"bob": TWO, "cid": ONE},
        {},
    ),
    "nothing for a share that grows where it is": (
        2,
        [
            _of("ann", pod("a", wants=1, has={0: 500, 1: 500})),
            _of("bob", pod("b", wants=1, has={0: 500}, busy=[0], ticket=1)),
        ],
        {"bob": ONE},
        {},
    ),
    "nothing that its containers lack": (
        2,
        [ANN, replace(BOB, lacks=frozenset([uuid(0), uuid(1)]))],
        {"bob": ONE},
        {},
    ),
    "what a pod has that ends": (
        2,
        [replace(ANN, gone=True), BOB],
        {"bob": ONE},
        {"a": 1000},
    ),
    "a vanished GPU is none": (
        1,
        [_of("ann", pod("a", wants=1, has=[7], draining=[8])), _of("cid", pod("c", wants=1, has=[0])), BOB],
        {"bob": ONE},
        {"c": 1000},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_reclaimed(name: str) -> None:
    """Pods give back what the rules say, and no more."""
    gpus, pods, limits, expected = CASES[name]
    assert _reclaimed(gpus, pods, limits) == expected


def test_guarantees_can_be_left_out() -> None:
    """Without reclaim, only preemptible pods give back."""
    assert _reclaimed(2, [ANN, BOB], {"bob": ONE}, guarantees=False) == {}
    assert _reclaimed(2, [JOB, BOB], {"bob": ONE}, guarantees=False) == {"a": 1000}


def test_reclaimed_terms() -> None:
    """Reclaimed GPUs are tolerated for the grace; then the allowance is less, until it is closed and beyond."""
    snapshot = world(2, [ANN])
    limits = OwnerLimits(reclaimed={"a": 1000, "elsewhere": 1000}, grace=60)
    first = terms(snapshot, [ANN], limits, stored=None, now=0)
    assert (first.pods["a"].allowance, first.reclaims_at) == (2000, 60)
    told = first.pods["a"].applied(ANN)
    snapshot.put_pod(told)
    after = terms(snapshot, [told], limits, stored=None, now=60)
    assert after.pods["a"].allowance == 1000
    drains = replace(_of("ann", pod("a", wants=2, has=[0], draining=[1])), pod_limit=told.pod_limit)
    closing = terms(world(2, [drains]), [drains], limits, stored=None, now=60)
    assert (closing.pods["a"].allowance, closing.grace.since) == (1000, None)
    both = terms(snapshot, [told], replace(limits, gpus=Maximum(1500)), stored=0, now=60)
    assert both.pods["a"].allowance == 1000


def test_reclaimed_pod_is_told() -> None:
    """If no limit is the reason, the message says who has the rest."""
    snapshot = world(2, [ANN])
    found = terms(snapshot, [ANN], OwnerLimits(reclaimed={"a": 1000}), stored=None, now=0)
    snapshot.put_pod(found.pods["a"].applied(ANN))
    (decision,) = decide(snapshot, NODE)
    assert decision.allocated.message.startswith("1 of 2 GPUs. The rest is for others")


def test_preemptible_wishes_come_last() -> None:
    """Above what is guaranteed they are served after all others, whatever their priority."""
    assert OwnerStanding(0, 1000).order(0, 1000, last=True) < OwnerStanding(0).order(9, 1000)
    assert OwnerStanding(1000, 1000).order(9, 1000, last=True) > OwnerStanding(9000).order(0, 1000)
    waiting = replace(JOB, standing=OwnerStanding(2000))
    assert waiting.rank > replace(ANN, standing=OwnerStanding(9000)).rank
    assert not pod("a").preemptible


users = st.sampled_from(["ann", "bob", "cid"])
many = st.lists(st.tuples(users, st.sampled_from([0, 500, 1000, 2000, 3000]), st.booleans()), min_size=1, max_size=5)


@example(
    [("ann", 1000, True), ("ann", 3000, True), ("ann", 2000, False), ("bob", 3000, False)],
    {"ann": 0, "bob": 0, "cid": 0},
)
@given(many, st.fixed_dictionaries({name: st.sampled_from([0, 1000, 2000]) for name in ("ann", "bob", "cid")}))
def test_reclaim_comes_to_rest_with_guarantees_kept(
    wishes: list[tuple[str, int, bool]], guaranteed: dict[str, int]
) -> None:
    """Pods that came first took all; later ones get what is guaranteed to them, and then nothing changes any more.

    Nobody who had what is guaranteed, and wants it, has less in the end.
    """
    limits = {Owner("User", name): OwnerLimits(guaranteed=milli) for name, milli in guaranteed.items()}
    snapshot = world(4)
    for number, (name, milli, preemptible) in enumerate(wishes):
        extra = {"preemptible": True} if preemptible else {}
        state = PodState(str(number), NODE, Requested(1, Wish(milli), extra), owner=Owner("User", name), created=number)
        snapshot.put_pod(state)
        _step(snapshot, {owner: OwnerLimits() for owner in limits})
    for _ in range(40):
        before = [(state.allocated, state.attached) for state in snapshot.pods(NODE)]
        _step(snapshot, limits)
        if before == [(state.allocated, state.attached) for state in snapshot.pods(NODE)]:
            break
    else:
        raise AssertionError("it does not come to rest")
    if sum(guaranteed.values()) <= 4000:
        for owner, own in limits.items():
            pods = [state for state in snapshot.owned(owner) if state.requested and not state.preemptible]
            wanted = sum(state.requested.milli for state in pods if state.requested)
            whole = all(state.requested.milli % 1000 == 0 for state in snapshot.pods(NODE) if state.requested)
            assert not whole or sum(state.has for state in snapshot.owned(owner)) >= min(own.guaranteed, wanted)


def _step(snapshot: ClusterSnapshot, limits: Mapping[Owner, OwnerLimits]) -> None:
    """Reclaim, divide, decide, and let the node close what is given back, one step later."""
    taken = reclaimed(snapshot, NODE, lambda owner: limits[owner])
    for owner, own in limits.items():
        pods = snapshot.owned(owner)
        found = terms(snapshot, pods, replace(own, reclaimed=taken), stored=None, now=0, fair=True).pods
        for state in pods:
            snapshot.put_pod(found[state.uid].applied(state))
    apply(snapshot, decide(snapshot, NODE))
    for state in snapshot.pods(NODE):
        now = state.allocated or Allocated(0)
        kept = {share.uuid for share in now.shares}
        had = state.attached.shares if state.attached else ()
        draining = tuple(DrainingShare(share.uuid, share.milli) for share in had if share.uuid not in kept)
        snapshot.put_pod(replace(state, attached=Attached(1, now.shares, draining, revision=now.revision)))


@pytest.mark.parametrize(("memory", "taken"), [(40, {}), (60, {"a": 500}), (0, {})])
def test_reclaims_memory_that_another_has_in_the_books(memory: int, taken: dict[str, int]) -> None:
    """Half of the time is free, but not the memory for it; nothing is reclaimed where that is free, or not enough."""
    share = GpuShare(uuid(0), 500, memory * GIB)
    giver = PodState("a", NODE, Requested(1, Wish(500, memory=memory * GIB or None)), Allocated(1, (share,)))
    wants = _of("bob", pod("b", wants=0.5, has=[], ticket=1, memory=45 * GIB if memory == 40 else None))
    snapshot = world([gpu(0, gate=True)], [_of("ann", giver, preemptible=True), wants])
    assert reclaimed(snapshot, NODE, lambda owner: OwnerLimits()) == taken


def test_memory_that_drains_is_room() -> None:
    """It is counted before anything is reclaimed: no second pod gives back for the same wish."""
    drains = PodState("d", NODE, attached=Attached(1, draining=(DrainingShare(uuid(0), 250, memory=60 * GIB),)))
    share = GpuShare(uuid(1), 250, 60 * GIB)
    giver = PodState("a", NODE, Requested(1, Wish(250, memory=60 * GIB)), Allocated(1, (share,)))
    wants = _of("bob", pod("b", wants=0.25, has=[], ticket=1, memory=60 * GIB))
    gpus = [gpu(0, gate=True), gpu(1, gate=True)]
    snapshot = world(gpus, [drains, _of("ann", giver, preemptible=True), wants])
    assert reclaimed(snapshot, NODE, lambda owner: OwnerLimits()) == {}
