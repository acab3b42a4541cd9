"""Which grants may be carried out: never one GPU to two, whatever the annotations say."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding, permitted

A, B, C = "GPU-a", "GPU-b", "GPU-c"


def whole(*uuids: str) -> tuple[GpuShare, ...]:
    return tuple(GpuShare(uuid, 1000) for uuid in uuids)


def holding(name: str, *, settled: bool = True, drains: dict[str, int] | None = None, **has: int) -> Holding:
    had = {f"GPU-{key}": milli for key, milli in has.items()}
    return Holding(("2026", name), had, drains or {}, settled, frozenset(had))


ME = holding("me")


def test_what_nobody_has_is_given() -> None:
    """Only this node's GPUs count."""
    assert permitted(whole(A, B, "GPU-elsewhere"), ME, [], {A, B}) == whole(A, B)


def test_what_another_has_or_drains_waits() -> None:
    """Also what it only may have still open."""
    others = [holding("x", a=1000), holding("y", drains={B: 1000})]
    assert permitted(whole(A, B, C), ME, others, {A, B, C}) == whole(C)


def test_shares_fit_up_to_a_whole() -> None:
    """Two halves go together, a third does not."""
    half = (GpuShare(A, 500),)
    assert permitted(half, ME, [holding("x", a=500)], {A}) == half
    assert permitted(half, ME, [holding("x", a=500), holding("y", a=250)], {A}) == ()


def test_nothing_new_while_somebody_is_not_known() -> None:
    """An earlier process guarded it: what it may open is not known yet. What one has already stays."""
    others = [holding("x", settled=False)]
    assert permitted(whole(A, B), holding("me", b=1000), others, {A, B}) == whole(B)


def test_of_two_that_both_had_it_the_first_keeps_it() -> None:
    """By age, then by uid: one keeps it, and only one."""
    old, new = (Holding((year, year[-1]), {A: 1000}, open=frozenset({A})) for year in ("2025", "2026"))
    assert permitted(whole(A), old, [new], {A}) == whole(A)
    assert permitted(whole(A), new, [old], {A}) == ()


def test_what_is_held_back_is_not_given_but_kept() -> None:
    """An intruder has it open: no pod gets it, and the rightful holder stays."""
    assert permitted(whole(A), ME, [], {A}, {A}) == ()
    assert permitted(whole(A), holding("me", a=1000), [], {A}, {A}) == whole(A)


millis = st.sampled_from([250, 500, 1000])
claims = st.dictionaries(st.sampled_from([A, B]), millis, max_size=2)
holdings = st.builds(
    Holding, st.tuples(st.sampled_from(["1", "2"]), st.uuids().map(str)), claims, claims, st.booleans()
)


@given(st.lists(holdings, max_size=4), claims)
def test_never_more_than_a_whole_gpu_is_given_anew(others: list[Holding], wanted: dict[str, int]) -> None:
    """For a grant that is new, the sum with all that others hold is at most one GPU."""
    shares = tuple(GpuShare(uuid, milli) for uuid, milli in wanted.items())
    for share in permitted(shares, ME, others, {A, B}):
        assert share.milli + sum(other.claim(share.uuid) for other in others) <= 1000
        assert all(other.settled for other in others)
