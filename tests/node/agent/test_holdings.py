"""Grants are carried out only if no GPU goes to two pods, whatever the annotations say."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding, permitted

A, B, C = "GPU-a", "GPU-b", "GPU-c"


def whole(*uuids: str) -> tuple[GpuShare, ...]:
    return tuple(GpuShare(uuid, 1000) for uuid in uuids)


def holding(name: str, *, known: bool = True, drains: dict[str, int] | None = None, **has: int) -> Holding:
    had = {f"GPU-{key}": milli for key, milli in has.items()}
    return Holding(("2026", name), had, drains or {}, known, frozenset(had))


ME = holding("me")


def test_free_gpus_are_granted() -> None:
    """Only this node's GPUs count."""
    assert permitted(whole(A, B, "GPU-elsewhere"), ME, [], {A, B}) == whole(A, B)


def test_grant_waits_for_a_gpu_that_another_pod_has_or_drains() -> None:
    """Also for one that the other only may have open still."""
    others = [holding("x", a=1000), holding("y", drains={B: 1000})]
    assert permitted(whole(A, B, C), ME, others, {A, B, C}) == whole(C)


def test_shares_fit_up_to_a_whole() -> None:
    """Two halves go together, a third does not."""
    half = (GpuShare(A, 500),)
    assert permitted(half, ME, [holding("x", a=500)], {A}) == half
    assert permitted(half, ME, [holding("x", a=500), holding("y", a=250)], {A}) == ()


def test_nothing_new_is_granted_beside_a_pod_of_unknown_holdings() -> None:
    """An earlier process guarded it: what it may open is not known yet. What a pod has already stays."""
    others = [holding("x", known=False)]
    assert permitted(whole(A, B), holding("me", b=1000), others, {A, B}) == whole(B)


def test_older_of_two_pods_with_the_same_gpu_keeps_it() -> None:
    """By age, then by uid: one keeps it, and only one."""
    old, new = (Holding((year, year[-1]), {A: 1000}, open=frozenset({A})) for year in ("2025", "2026"))
    assert permitted(whole(A), old, [new], {A}) == whole(A)
    assert permitted(whole(A), new, [old], {A}) == ()


def test_withheld_gpu_is_kept_but_not_granted() -> None:
    """An intruder has it open: no pod gets it, and the rightful holder stays."""
    assert permitted(whole(A), ME, [], {A}, {A}) == ()
    assert permitted(whole(A), holding("me", a=1000), [], {A}, {A}) == whole(A)


millis = st.sampled_from([250, 500, 1000])
claims = st.dictionaries(st.sampled_from([A, B]), millis, max_size=2)
holdings = st.builds(
    Holding, st.tuples(st.sampled_from(["1", "2"]), st.uuids().map(str)), claims, claims, st.booleans()
)


@given(st.lists(holdings, max_size=4), claims)
def test_new_grants_never_exceed_a_whole_gpu(others: list[Holding], wanted: dict[str, int]) -> None:
    """For a grant that is new, the sum with all that others hold is at most one GPU."""
    shares = tuple(GpuShare(uuid, milli) for uuid, milli in wanted.items())
    for share in permitted(shares, ME, others, {A, B}):
        assert share.milli + sum(other.claimed_milli(share.uuid) for other in others) <= 1000
        assert all(other.known for other in others)
