"""A plugin that starts anew trusts what is in force, not what is recorded: nothing is opened without proof."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.next_state import wanted
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.holdings import Holding, permitted
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.kubelet.rules.slots import PodRef

A = "GPU-a"
WHOLE = (GpuShare(A, 1000),)


def adopted(name: str, *, has: bool, allowed: bool = False) -> Holding:
    """A pod as the next process finds it: what is recorded of it, and what its rules allow."""
    return Holding(("2026", name), {A: 1000} if has else {}, {}, False, frozenset({A} if allowed else ()))


def test_rules_in_force_stay_at_once() -> None:
    """A restart takes nothing away, and waits for no pod."""
    assert permitted(WHOLE, adopted("a", has=True, allowed=True), [adopted("b", has=False)], {A}) == WHOLE


def test_recorded_gpu_waits_until_all_pods_are_known() -> None:
    """The record may be older than a release that was proven, and the GPU be in another pod's hands."""
    stale = adopted("a", has=True)
    assert permitted(WHOLE, stale, [adopted("b", has=False, allowed=True)], {A}) == ()
    known = Holding(("2026", "b"))
    assert permitted(WHOLE, stale, [known], {A}) == WHOLE
    assert permitted(WHOLE, stale, [Holding(("2026", "b"), {}, {A: 1000})], {A}) == ()


def test_stale_record_opens_no_gpu_that_another_pod_has() -> None:
    """The record of the first pod is in force for the second: only one of them gets it, and none by its record."""
    first = adopted("a", has=True)
    second = adopted("b", has=False, allowed=True)
    assert permitted(WHOLE, first, [second], {A}) == ()
    assert permitted(WHOLE, second, [first], {A}) == ()


pods = st.lists(
    st.builds(
        Holding,
        st.tuples(st.just("2026"), st.sampled_from("xyz")),
        st.sampled_from([{}, {A: 500}, {A: 1000}]),
        st.sampled_from([{}, {A: 1000}]),
        st.booleans(),
        st.sampled_from([frozenset[str](), frozenset({A})]),
    ),
    max_size=3,
)


@given(st.sampled_from([{}, {A: 500}, {A: 1000}]), st.sampled_from([500, 1000]), pods)
def test_nothing_new_is_opened_beside_an_unknown_pod(
    recorded: dict[str, int], milli: int, others: list[Holding]
) -> None:
    """Whatever is recorded: what the rules do not allow now is opened only if all others are known, and have room."""
    own = Holding(("2026", "me"), recorded, {}, False, frozenset())
    for share in permitted((GpuShare(A, milli),), own, others, {A}):
        assert all(other.known for other in others)
        assert share.milli + sum(other.claimed_milli(A) for other in others) <= 1000


def test_unscanned_pod_may_have_anything() -> None:
    """Also one that was reported just now: nothing new is granted until it is guarded."""
    assert permitted(WHOLE, ManagedPod("me").holding, [ManagedPod("new").holding], {A}) == ()
    assert permitted(WHOLE, ManagedPod("me").holding, [ManagedPod("new", holdings_known=True).holding], {A}) == WHOLE


def test_unreadable_decision_changes_nothing() -> None:
    """A process that just started has granted nothing yet; later what it granted counts."""
    view = PodView(PodRef("u", "n", "p"), problem="It is no JSON.")
    pod = ManagedPod("u", view, attached=Attached(3, WHOLE))
    assert wanted(pod) == Allocated(3, WHOLE)
    pod.holdings_known = True
    assert wanted(pod) == Allocated(3)
