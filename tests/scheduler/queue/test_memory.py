"""Decisions about memory: what a share has in the books beside its milli, and who waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.errors import NoCapacity
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.status import Phase, status
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import GIB, NODE, apply, facts, gpu, new, uuid

ENFORCED = gpu(0, gate=True)
"""80 GiB."""


def _pod(uid: str, milli: int, memory: int | None = None, *shares: GpuShare, busy: bool = False) -> PodState:
    """Return a pod with a wish, and with ``shares`` allocated and attached; ``memory`` in GiB."""
    wish = Wish(milli, memory=memory and memory * GIB)
    has = Allocated(1, shares) if shares else None
    attached = Attached(1, shares) if shares else None
    used = frozenset(share.uuid for share in shares) if busy else frozenset()
    return PodState(uid, NODE, Requested(2, wish), has, attached, busy=used, created=float(ord(uid[0])))


def _share(milli: int, memory: int = 0, index: int = 0) -> GpuShare:
    return GpuShare(uuid(index), milli, memory * GIB)


def _world(*pods: PodState, gpus: int = 1, enforced: bool = True) -> ClusterSnapshot:
    snapshot = ClusterSnapshot()
    snapshot.put_node(NODE, tuple(gpu(index, gate=enforced) for index in range(gpus)), facts())
    for pod in pods:
        snapshot.put_pod(pod)
    return snapshot


def _decided(snapshot: ClusterSnapshot) -> dict[str, tuple[GpuShare, ...]]:
    apply(snapshot, decide(snapshot, NODE))
    return {pod.uid: pod.allocated.shares if pod.allocated else () for pod in snapshot.pods(NODE)}


@pytest.mark.parametrize(
    ("other", "served"),
    [((500, None), True), ((750, None), False), ((750, 40), True), ((750, 41), False), ((1, 40), True)],
)
def test_a_quarter_with_half_of_the_memory_leaves_the_rest(other: tuple[int, int | None], served: bool) -> None:
    """750 of time and 40 GiB: for more time than goes with that, the memory must be named."""
    found = _decided(_world(_pod("a", 250, 40), _pod("b", *other)))
    assert found["a"] == (_share(250, 40),)
    assert found["b"] == ((_share(other[0], other[1] or 0),) if served else ())


def test_memory_alone_takes_the_least_time() -> None:
    """Two of these use all of the memory; the rest of the time is nobody's."""
    snapshot = _world(_pod("a", 1, 40), _pod("b", 1, 40), _pod("c", 100))
    assert _decided(snapshot) == {"a": (_share(1, 40),), "b": (_share(1, 40),), "c": ()}
    assert snapshot.free(uuid(0)) == 998
    assert snapshot.free_memory(ENFORCED, NODE) == 0


def test_without_enforcement_a_share_has_its_part() -> None:
    """More is refused; less is a condition on the GPU, as before, and changes nothing in the books."""
    snapshot = _world(_pod("a", 250, 40), _pod("b", 500, 10), enforced=False)
    assert _decided(snapshot) == {"a": (), "b": (_share(500),)}
    refused = snapshot.pod("a")
    assert refused
    assert refused.allocated
    assert refused.allocated.reason is Reason.INFEASIBLE
    assert "Memory is not enforced here" in refused.allocated.message


def test_a_share_in_use_waits_for_memory_where_it_is() -> None:
    """Nothing of it is lost, and what it waits for is kept for it; a share that is not open moves."""
    has = _share(250)
    waiting, other = _pod("a", 250, 50, has, busy=True), _pod("b", 500, None, _share(500), busy=True)
    snapshot = _world(waiting, other, _pod("c", 100, 15), gpus=1)
    assert _decided(snapshot) == {"a": (has,), "b": (_share(500),), "c": ()}
    pod = snapshot.pod("a")
    assert pod
    assert pod.allocated
    assert (pod.allocated.reason, pod.allocated.position) == (Reason.PARTIAL, 1)
    assert pod.allocated.message == "0.25 GPU; 30 GiB more of memory is owed."
    assert status(pod.requested, pod.allocated, pod.attached)[:2] == (Phase.WAITING, Reason.PARTIAL)
    snapshot.remove_pod("b")
    assert _decided(snapshot) == {"a": (_share(250, 50),), "c": (_share(100, 15),)}
    moves = _world(replace(waiting, busy=frozenset()), other, gpus=2)
    assert _decided(moves)["a"] == (_share(250, 50, index=1),)


def test_a_share_that_waits_for_memory_gives_back_time() -> None:
    """It has no more of either than is wished, and waits for the memory alone behind one who came first."""
    first, smaller = _pod("a", 750), _pod("b", 250, None, _share(500, 5), busy=True)
    assert _decided(_world(first, smaller)) == {"a": (), "b": (_share(250, 5),)}


def test_memory_shrinks_in_place_and_drains_until_the_node_has_followed() -> None:
    """The part that it had stays in the books until then."""
    snapshot = _world(_pod("a", 500, 10, _share(500), busy=True))
    assert _decided(snapshot) == {"a": (_share(500, 10),)}
    assert snapshot.free_memory(ENFORCED, NODE) == 40 * GIB
    pod = snapshot.pod("a")
    assert pod
    assert pod.allocated
    snapshot.put_pod(replace(pod, attached=Attached(2, pod.allocated.shares, revision=pod.allocated.revision)))
    assert snapshot.free_memory(ENFORCED, NODE) == 70 * GIB


def test_a_share_on_a_broken_gpu_gives_memory_back_and_gets_none() -> None:
    """It stays as it is, or becomes less."""
    for now, wished, after in [(40, 60, 40), (40, 20, 20)]:
        snapshot = _world(_pod("a", 250, wished, _share(250, now), busy=True))
        snapshot.put_node(NODE, (replace(ENFORCED, healthy=False),), facts())
        assert _decided(snapshot) == {"a": (_share(250, after),)}


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(250, memory=50 * GIB), "no GPU with 0.25 free has 50 GiB of memory free, the most is 40 GiB"),
        (Wish(1, memory=50 * GIB), "no GPU with room has 50 GiB of memory free, the most is 40 GiB"),
        (Wish(750), "no GPU with 0.75 free has 60 GiB of memory free, the most is 40 GiB"),
        (Wish(800, memory=GIB), "no GPU (1 GiB in each share) has 0.8 free, the most is 0.75"),
    ],
)
def test_a_new_pod_hears_which_of_the_two_is_missing(wish: Wish, why: str) -> None:
    """Time or memory; the pod is bound with what it named."""
    snapshot = _world(_pod("a", 250, 40, _share(250, 40)))
    found = allocate(snapshot, new("n", wish), NODE)
    assert isinstance(found, NoCapacity)
    assert why in found.message
    bound = allocate(snapshot, new("m", Wish(250, memory=30 * GIB)), NODE)
    assert isinstance(bound, Allocated)
    assert bound.shares == (_share(250, 30),)


def test_of_two_records_beyond_the_memory_the_first_keeps_its_share() -> None:
    """Their milli fit together, their memory does not."""
    first, second = (_pod(uid, 250, 50, _share(250, 50)) for uid in "ab")
    snapshot = _world(first, second)
    assert snapshot.contested(NODE) == (uuid(0),)
    apply(snapshot, repair(snapshot, NODE))
    found = {pod.uid: pod.allocated.shares for pod in snapshot.pods(NODE) if pod.allocated}
    assert found == {"a": (_share(250, 50),), "b": ()}


def test_repair_leaves_to_a_pod_what_it_can_open() -> None:
    """A share that is only allocated goes if the memory that others can open leaves no room for it, else it stays."""
    opened = _pod("b", 250, 50, _share(250, 50))
    promised = replace(_pod("a", 250, 50, _share(250, 50)), attached=None)
    for other, kept in [(opened, ()), (replace(opened, allocated=Allocated(1), attached=None), (_share(250, 50),))]:
        snapshot = _world(promised, other, _pod("c", 100, 20, _share(100, 20)))
        apply(snapshot, repair(snapshot, NODE))
        found = snapshot.pod("a")
        assert found
        assert found.allocated
        assert found.allocated.shares == kept


def test_memory_counts_in_a_fair_line() -> None:
    """New pods that are served in steps get no memory twice, and one that waited too long gets it back."""
    standing = OwnerStanding()
    pending = [
        replace(new(uid, Wish(1, memory=50 * GIB), ticket=number, on=NODE), standing=standing)
        for number, uid in enumerate("xy", start=1)
    ]
    snapshot = _world(*pending, replace(_pod("r", 2500, 10), standing=standing), gpus=3)
    apply(snapshot, decide(snapshot, NODE))
    assert decide(snapshot, NODE) == ()
    gained = replace(
        _pod("b", 500, 60, _share(250, 60)), standing=standing, allocated=Allocated(1, (_share(250, 60),), ticket=2)
    )
    gained = replace(gained, allocated=replace(gained.allocated or Allocated(1), extra={"had": 0}))
    first = replace(_pod("a", 500), standing=standing, overdue=True, allocated=Allocated(1, ticket=1))
    found = _world(first, gained, replace(_pod("c", 100, 30, _share(100, 30)), standing=standing))
    assert _decided(found)["a"] == ()
