"""Guests on a node: they open beside shares, never beside a whole GPU, and with memory that others leave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding, permitted
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_node.agent.sharing import served_shares
from jupyter_gpu_node.agent.sharing.rules.served import served
from jupyter_gpu_node.shares.rules.apportionment import memory_limit
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse, is_divided, limits
from jupyter_gpu_node.shares.rules.turns.terms import Terms

A = "GPU-a"
ALL = 80
GUEST = GpuShare(A, 0, 30)


def holding(name: str, share: GpuShare | None = None, *, drains: GpuShare | None = None) -> Holding:
    """Return the holding of a pod with one share of the GPU, or one that drains."""
    return Holding(
        ("2026", name),
        {A: share.milli} if share else {},
        {A: drains.milli} if drains else {},
        True,
        frozenset({A} if share else ()),
        {A: share.memory} if share and share.memory else {},
        {A: drains.memory} if drains and drains.memory else {},
    )


ANN, BOB = holding("ann", GpuShare(A, 600, 25)), holding("bob", GpuShare(A, 400, 25))


def grant(
    share: GpuShare, own: Holding, *others: Holding, held_back: bool = False, **used: int
) -> tuple[GpuShare, ...]:
    """Return what may be open of ``share`` on a GPU of which ``others`` use so much."""
    withheld = {A} if held_back else set[str]()
    return permitted((share,), own, others, {A}, withheld, {A: MemoryUse(ALL, used)})


def test_a_guest_opens_beside_shares_of_the_whole_time() -> None:
    """As its memory is free, in the books and in use; else it waits."""
    assert grant(GUEST, holding("eve"), ANN, BOB, ann=10, bob=25) == (GUEST,)
    assert grant(GUEST, holding("eve"), ANN, BOB, ann=10, bob=26) == ()
    assert grant(GUEST._replace(memory=31), holding("eve"), ANN, BOB, ann=0, bob=0) == ()
    assert grant(GUEST, holding("eve"), ANN, BOB, held_back=True, ann=0, bob=0) == ()


def test_no_guest_beside_a_whole_gpu() -> None:
    """That is not lendable, nor such a one beside a guest, also one that drains; whatever the books of memory say."""
    whole = GpuShare(A, 1000)
    assert permitted((GUEST,), holding("eve"), [holding("ann", whole)], {A}) == ()
    for guest in (holding("eve", GUEST), holding("eve", drains=GUEST)):
        assert permitted((whole,), holding("ann"), [guest], {A}) == ()
        assert permitted((GpuShare(A, 999),), holding("ann"), [guest], {A}) == (GpuShare(A, 999),)


OWNER = GpuShare(A, 1000, 50)
"""A whole GPU whose owner leaves as much memory as the guest has."""


def test_a_guest_opens_beside_a_lendable_gpu() -> None:
    """As the memory that the owner leaves is enough, in the books and in use; and the owner opens beside the guest."""
    ann = holding("ann", OWNER)
    assert grant(GUEST, holding("eve"), ann, ann=50) == (GUEST,)
    assert grant(GUEST, holding("eve"), ann, ann=51) == (), "it was given more before it was lendable"
    assert grant(GUEST._replace(memory=31), holding("eve"), ann, ann=0) == ()
    assert grant(GpuShare(A, 1, 10), holding("eve"), ann, ann=0) == (), "a share has time of its own, a guest has none"
    for guest in (holding("eve", GUEST), holding("eve", drains=GUEST)):
        assert grant(OWNER, holding("ann"), guest, eve=30) == (OWNER,)
        assert grant(OWNER._replace(memory=51), holding("ann"), guest, eve=30) == ()


def test_a_lendable_gpu_is_whole_again_once_its_guest_has_closed_it() -> None:
    """Till then its owner keeps what it has; lending it again takes effect at once, though it uses more."""
    whole, ann = GpuShare(A, 1000), holding("ann", OWNER)
    assert grant(whole, ann, holding("eve", GUEST), eve=0) == (OWNER,)
    assert grant(whole, ann, holding("eve", drains=GUEST), eve=0) == (OWNER,)
    assert grant(whole, ann, holding("eve")) == (whole,)
    assert permitted((OWNER,), holding("ann", whole), [], {A}) == (OWNER,)


def test_an_owner_of_a_lendable_gpu_is_served_with_its_memory_and_before_a_guest() -> None:
    """All of the time, and no more memory than it keeps; alone it has that limit, too."""
    ann, eve = holding("ann", OWNER), holding("eve", GUEST)
    assert served({"ann": ann, "eve": eve}) == {A: {"ann": 1000, "eve": 0}}
    assert served({"eve": eve, "ann": holding("ann", drains=OWNER)}) == {A: {"ann": 1000, "eve": 0}}
    assert memory_limit(1000, None, ALL, parted=True, recorded=OWNER.memory) == 50
    assert memory_limit(1000, 10, ALL, parted=True) is None
    both = {"ann": OWNER, "eve": GUEST}
    assert limits(ALL, both, {}) == {"ann": 50, "eve": 30}
    assert limits(ALL, both, {"ann": GpuShare(A, 1000)}) == {"ann": 50, "eve": 30}


def test_a_guest_stays_until_there_is_room_for_its_share() -> None:
    """It gets time where it is; while memory is missing it keeps what it has."""
    own, share = holding("eve", GUEST), GpuShare(A, 400, 50)
    assert grant(share, own, ANN, ann=0) == (share,)
    assert grant(share, own, ANN, ann=40) == (GUEST,)


def test_memory_of_others_is_limited_beside_a_guest() -> None:
    """Each has what it has in the books, together no more than there is."""
    shares = {"ann": GpuShare(A, 600, 25), "bob": GpuShare(A, 400, 25), "eve": GUEST}
    assert is_divided(ALL, shares.values())
    assert limits(ALL, shares, {}) == {"ann": 25, "bob": 25, "eve": 30}


def test_a_guest_is_served_beside_shares_and_while_it_drains() -> None:
    """With no time of its own; not where one pod has all of the GPU."""
    assert served({"ann": ANN, "bob": BOB, "eve": holding("eve", GUEST)}) == {A: {"ann": 600, "bob": 400, "eve": 0}}
    assert served({"ann": ANN, "eve": holding("eve", drains=GUEST)}) == {A: {"ann": 600, "eve": 0}}
    assert served({"ann": holding("ann", GpuShare(A, 1000)), "eve": holding("eve", drains=GUEST)}) == {A: {"ann": 1000}}
    assert holding("eve", GUEST, drains=GpuShare(A, 400)).served(A) == GUEST


def test_a_guest_that_goes_drains_with_its_memory() -> None:
    """Until its programs have closed the GPU."""
    after = plan(Allocated(2), Attached(1, (GUEST,)), Observation(frozenset({A})))
    assert [item.share for item in after.attached.draining] == [GUEST]


def test_guests_are_served_again_after_a_restart() -> None:
    """With their limits; a guest without one is no guest."""
    known = {A: {"ann": Terms(1000 - 1), "eve": Terms(0, 30)}, "GPU-b": {"ann": Terms(1000, 50), "eve": Terms(0, 30)}}
    assert served_shares.parse(served_shares.serialize(known, "boot"), "boot") == known


_shares = st.sampled_from(
    [GpuShare(A, 1000), OWNER, GpuShare(A, 1000, 60), GpuShare(A, 600, 25), GpuShare(A, 400), GUEST, GpuShare(A, 0, 50)]
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | _shares), max_size=12))
def test_nothing_is_open_twice(steps: list[tuple[str, GpuShare | None]]) -> None:
    """Time and memory of what is open are at most the GPU in any order of decisions; a whole GPU is alone."""
    have: dict[str, GpuShare] = {}
    for pod, wanted in steps:
        others = [holding(name, share) for name, share in have.items() if name != pod]
        own = holding(pod, have.pop(pod, None))
        used = dict.fromkeys("abcd", 0)
        divided = {A: MemoryUse(ALL, used)} if is_divided(ALL, [*have.values(), *([wanted] if wanted else [])]) else {}
        for share in permitted((wanted,), own, others, {A}, divided=divided) if wanted else ():
            have[pod] = share
        assert sum(share.milli for share in have.values()) <= 1000
        assert len(have) == 1 or not any(share.exclusive for share in have.values())
        if any(share.guest for share in have.values()):
            assert sum(share.memory or ALL * share.milli // 1000 for share in have.values()) <= ALL
