"""The plan of one pod: tables for the cases that have names, and the rules on anything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Reason
from jupyter_gpu.model.gpu import DrainingShare, GpuShare, Holder
from jupyter_gpu_node.agent.rules.plan import MAX_HOLDERS, Observation, Plan, plan

KERNEL = Holder(7, "python")
A, B, C = "GPU-a", "GPU-b", "GPU-c"


def allocated(*shares: GpuShare, generation: int = 2) -> Allocated:
    return Allocated(generation, shares)


def attached(*shares: GpuShare, draining: tuple[DrainingShare, ...] = ()) -> Attached:
    return Attached(1, shares, draining)


def whole(uuid: str) -> GpuShare:
    return GpuShare(uuid, 1000)


def seen(*allowed: str, **holders: Holder) -> Observation:
    return Observation(frozenset(allowed), {f"GPU-{letter}": (holder,) for letter, holder in holders.items()})


def test_nothing_decided_yet() -> None:
    """No decision: nothing may be opened, nothing is attached."""
    assert plan(None, None, Observation()) == Plan(frozenset(), Attached(0))


def test_grow() -> None:
    """Allocated GPUs are allowed and attached in one step, in the order of the decision."""
    step = plan(allocated(whole(B), whole(A)), attached(whole(B)), seen(B))
    assert step == Plan(frozenset({A, B}), Attached(2, (whole(B), whole(A))))


def test_shrink_denies_before_it_looks() -> None:
    """A GPU that could still be opened during the scan is draining even if no holder was seen."""
    step = plan(allocated(), attached(whole(A)), seen(A))
    assert step == Plan(frozenset(), Attached(2, draining=(DrainingShare(A, 1000),), reason=Reason.DRAINING))


def test_shrink_waits_for_the_holder() -> None:
    """Denied, but a process has it open: draining, and its holders are named."""
    step = plan(allocated(), attached(draining=(DrainingShare(A, 1000),)), seen(a=KERNEL))
    assert step.attached.draining == (DrainingShare(A, 1000, (KERNEL,)),)
    assert step.attached.reason is Reason.DRAINING


def test_shrink_ends_with_proof() -> None:
    """Denied before the scan, and the scan found no holder: free."""
    step = plan(allocated(), attached(draining=(DrainingShare(A, 1000, (KERNEL,)),)), seen(b=KERNEL))
    assert step == Plan(frozenset(), Attached(2))


def test_cancelled_shrink() -> None:
    """A GPU that comes back while it drains is attached, and drains no longer."""
    step = plan(allocated(whole(A)), attached(draining=(DrainingShare(A, 1000, (KERNEL,)),)), seen(a=KERNEL))
    assert step == Plan(frozenset({A}), Attached(2, (whole(A),)))


def test_smaller_share_of_the_same_gpu() -> None:
    """Half of a GPU instead of all of it needs no draining: its device stays open to the pod."""
    step = plan(allocated(GpuShare(A, 500)), attached(whole(A)), seen(A, a=KERNEL))
    assert step == Plan(frozenset({A}), Attached(2, (GpuShare(A, 500),)))


def test_unhealthy_stays_attached() -> None:
    """Programs on a failing GPU may end in their own way; the reason is more urgent than draining."""
    step = plan(allocated(whole(A)), attached(whole(A), whole(B)), seen(A, B), frozenset({A, C}))
    assert step.allowed == {A}
    assert step.attached.reason is Reason.UNHEALTHY
    assert plan(allocated(whole(A)), None, Observation(), frozenset({C})).attached.reason is None


def test_step_that_was_cut_off() -> None:
    """Rules in force that no record knows of: whatever was meant, that GPU drains as a whole."""
    step = plan(allocated(), attached(), seen(A))
    assert step.attached.draining == (DrainingShare(A, 1000),)


def test_decision_lost() -> None:
    """Without a decision everything is revoked, and the generation stays what it was."""
    step = plan(None, attached(whole(A)), seen(A, a=KERNEL))
    assert step.allowed == frozenset()
    assert step.attached.draining == (DrainingShare(A, 1000, (KERNEL,)),)
    assert step.attached.observed_generation == 1


def test_keeps_fields_of_a_newer_version() -> None:
    """Unknown fields of the record are not dropped."""
    before = Attached(1, extra={"lease": "x"})
    assert plan(None, before, Observation()).attached.extra == {"lease": "x"}


def test_names_a_sample_of_the_holders() -> None:
    """Many holders make no record that its reader refuses."""
    crowd = tuple(Holder(pid, "python") for pid in range(1, 200))
    step = plan(None, attached(whole(A)), Observation(frozenset(), {A: crowd}))
    assert len(step.attached.draining[0].holders) == MAX_HOLDERS
    assert Attached.from_json(step.attached.to_json()) == step.attached


def in_hand(record: Attached | None) -> dict[str, int]:
    """Milli by GPU of all that the record says the pod may have open."""
    held: dict[str, int] = {}
    for share in (*record.shares, *(item.share for item in record.draining)) if record else ():
        held[share.uuid] = max(share.milli, held.get(share.uuid, 0))
    return held


uuids = st.sampled_from([A, B, C, "GPU-d"])
shares = st.lists(st.builds(GpuShare, uuids, st.sampled_from([250, 500, 1000])), max_size=4, unique_by=lambda s: s.uuid)
leaving = st.lists(
    st.builds(DrainingShare, uuids, st.sampled_from([250, 1000]), st.lists(st.just(KERNEL), max_size=1).map(tuple)),
    max_size=4,
    unique_by=lambda s: s.uuid,
)
decisions = st.none() | st.builds(Allocated, st.integers(0, 9), shares.map(tuple))
records = st.none() | st.builds(Attached, st.integers(0, 9), shares.map(tuple), leaving.map(tuple))
observations = st.builds(
    Observation, st.frozensets(uuids), st.dictionaries(uuids, st.lists(st.just(KERNEL), max_size=2).map(tuple))
)


@settings(deadline=None, max_examples=300)
@given(decisions, records, observations, st.frozensets(uuids))
def test_rules(
    decision: Allocated | None, record: Attached | None, observed: Observation, unhealthy: frozenset[str]
) -> None:
    """Rules that hold after every step, whatever came before."""
    step = plan(decision, record, observed, unhealthy)
    wanted = {share.uuid for share in decision.shares} if decision else set()
    had = in_hand(record)
    usable = {share.uuid for share in step.attached.shares}
    draining = {item.uuid for item in step.attached.draining}

    assert step.allowed == wanted == usable, "attached is what may be opened, and that is what was decided"
    assert not usable & draining, "a GPU is never both in use and on its way out"
    for uuid in {*had, *observed.not_provable} - usable - draining:
        assert uuid not in observed.not_provable, f"{uuid} vanished without proof"
        assert not observed.holders.get(uuid), f"{uuid} vanished without proof"
    assert draining <= {*had, *observed.not_provable}, "what the pod never had does not drain"
    for item in step.attached.draining:
        assert item.milli == had.get(item.uuid, 1000), "a draining GPU is held as far as it was"
    if decision:
        assert step.attached.observed_generation == decision.observed_generation
    assert plan(decision, step.attached, observed, unhealthy) == step, "the same step again changes nothing"


@pytest.mark.parametrize("crash_at", [0, 1, 2])
@settings(deadline=None, max_examples=60)
@given(decisions=st.lists(decisions, min_size=1, max_size=5), data=st.data())
def test_killed_at_any_point(crash_at: int, decisions: list[Allocated | None], data: st.DataObject) -> None:
    """A pod whose agent is killed between any two steps of any resize: nothing is free while it can be used.

    The kernel's side is played: rules in force, and processes that open and close what the rules let them.
    """
    rules: frozenset[str] = frozenset()
    record: Attached | None = None
    open_now: set[str] = set()
    for number, decision in enumerate(decisions):
        for round_ in range(3):
            open_now |= data.draw(st.frozensets(st.sampled_from(sorted(rules)))) if rules else frozenset()
            open_now -= data.draw(st.frozensets(st.sampled_from(sorted(open_now)))) if open_now else frozenset()
            observed = Observation(rules, dict.fromkeys(open_now, (KERNEL,)))
            step = plan(decision, record, observed)
            dies = number % 3 == crash_at and round_ == 0
            if dies and data.draw(st.booleans()):
                break  # before the rules
            rules = step.allowed
            if dies:
                break  # after the rules, before the record
            record = step.attached
            assert rules | open_now <= set(in_hand(record))
