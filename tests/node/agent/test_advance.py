"""A pod's next step after a scan: what is attached, what still drains, and what is written."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu.model.annotations import Allocated, Attached, Reason
from jupyter_gpu.model.gpu import DrainingShare, GpuShare, Holder
from jupyter_gpu_node.agent.next_state import (
    NAMES_PAUSE,
    advance,
    found_holders,
    to_prove_closed,
    wanted,
    worth_writing,
)
from jupyter_gpu_node.agent.pod import ManagedPod, ServerRecord
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.agent.rules.use_class import UseScans
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.holders.rules.rights import Rights, Suspect
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.kubelet.rules.slots import PodRef

A, B, C = "GPU-a", "GPU-b", "GPU-c"
REF = PodRef("me", "team", "notebook")
RIGHTS = Rights({"me": {A, B}, "other": {B}})
ME = Suspect(2**30, 500, "python", "me")
"""A process of the pod; no process has its number."""
HOLDER = Holder(0, "python")
UNSEEN = HolderScan()
"""No scan yet."""


def shares(*uuids: str, milli: int = 1000) -> tuple[GpuShare, ...]:
    return tuple(GpuShare(uuid, milli) for uuid in uuids)


def drains(*uuids: str, holders: tuple[Holder, ...] = ()) -> tuple[DrainingShare, ...]:
    return tuple(DrainingShare(uuid, 1000, holders) for uuid in uuids)


def member(
    decided: tuple[str, ...] | None = None,
    has: tuple[str, ...] | None = None,
    draining: tuple[str, ...] = (),
    **more: Any,
) -> ManagedPod:
    """With generation 2 decided and generation 1 attached."""
    allocated = None if decided is None else Allocated(2, shares(*decided))
    attached = None if has is None else Attached(1, shares(*has), drains(*draining))
    usual = {"granted": {share.uuid: share for share in shares(*(has or ()))}, "holdings_known": True, "began": 100}
    return ManagedPod("me", PodView(REF, allocated=allocated), attached=attached, **{**usual, **more})


def step(one: ManagedPod, *given: str, scan: HolderScan = UNSEEN, **more: Any) -> Attached | None:
    """With rules in force that allow these."""
    return advance(one, shares(*given), scan, RIGHTS, **more)


def scanned(*uuids: str, hidden: tuple[Suspect, ...] = (), **holders: tuple[Suspect, ...]) -> HolderScan:
    """A scan for these; ``a=``: the processes that have GPU-a open."""
    return HolderScan({f"GPU-{key}": some for key, some in holders.items()}, hidden, frozenset(uuids))


def test_grant_taken_back_before_it_was_known_is_answered() -> None:
    """The scheduler keeps the GPU from others until the node follows that decision; it is answered once."""
    one = member(())
    assert one.view
    one.view = PodView(REF, allocated=Allocated(2, revision=1, revoked=shares(A)))
    said = step(one)
    assert said == Attached(2, revision=1)
    one.attached = said
    assert worth_writing(one, 0)
    one.record.attached = said
    assert not worth_writing(one, NAMES_PAUSE + 1)
    one.view = PodView(REF, problem="it cannot be read")
    assert step(one) == said


def test_grant_is_attached() -> None:
    """A granted GPU is attached as soon as the rules allow it, with the generation of the decision."""
    assert step(member((A,)), A) == Attached(2, shares(A))
    assert step(member((A, B), has=(A,)), A, B) == Attached(2, shares(A, B))


def test_memory_of_a_share_stays_with_it() -> None:
    """Attached, draining, and where the decision can't be read."""
    share = GpuShare(A, 250, 40 * 2**30)
    drains_with_it = DrainingShare(A, 250, memory=share.memory)
    had = member(None, granted={A: share})
    had.attached = Attached(1, (share,))
    assert step(had) == Attached(1, (), (drains_with_it,), Reason.DRAINING)
    had.attached = Attached(1, (), (drains_with_it,))
    assert step(had) == Attached(1, (), (drains_with_it,), Reason.DRAINING)
    had.view = PodView(REF, problem="nonsense")
    found = wanted(had)
    assert found
    assert found.shares == (share,)
    assert had.holding.has == {A: 250}


def test_pod_that_never_had_anything_has_no_record() -> None:
    """Neither without a decision nor with an empty one; a pod that had something gets a record of its end."""
    assert step(member()) is None
    assert step(member(())) is None
    assert step(member((), has=())) == Attached(2)
    assert step(member(None, has=(A,)), scan=scanned(A)) == Attached(1)


def test_revoked_gpu_is_free_only_after_a_scan() -> None:
    """Not scanned for: not proven. Scanned for and no holder found: free."""
    assert step(member((), has=(A,))) == Attached(2, (), drains(A), Reason.DRAINING)
    assert step(member((), has=(A,)), scan=scanned(B)) == Attached(2, (), drains(A), Reason.DRAINING)
    assert step(member((), has=(A,)), scan=scanned(A)) == Attached(2)
    assert step(member((), has=(), draining=(A,)), scan=scanned(A)) == Attached(2)


def test_any_holder_keeps_the_gpu_draining() -> None:
    """One of the pod's own, a stranger, or one that could not be inspected; not one that was there before the pod."""
    own = step(member((B,), has=(A, B)), B, scan=scanned(A, a=(ME,)))
    assert own == Attached(2, shares(B), drains(A, holders=(HOLDER,)), Reason.DRAINING)
    stranger = Suspect(2**30, 500, "python", "other")
    foreign = step(member((), has=(A,)), scan=scanned(A, a=(stranger,)))
    assert foreign == Attached(2, (), drains(A, holders=(Holder(0, "python", True),)), Reason.DRAINING)
    for start, left in ((99, ()), (100, drains(A, holders=(Holder(0, "hidden", True),)))):
        hidden = (Suspect(2**30, start, "hidden"),)
        found = step(member((), has=(A,)), scan=scanned(A, hidden=hidden, a=()))
        assert found is not None
        assert found.draining == left


def test_partly_permitted_decision_keeps_the_old_generation() -> None:
    """Only what may be open is attached, and the old generation says that there is more to come."""
    assert step(member((A, B), has=(A,)), A) == Attached(1, shares(A))
    assert step(member((A, B)), A) == Attached(0, shares(A))
    assert step(member((A, B), has=(A, B)), A, B) == Attached(2, shares(A, B))


def test_unrecorded_rules_count_as_held() -> None:
    """The process that made them died before it wrote: taken back, the GPU drains until a scan."""
    cut_off: dict[str, Any] = {"granted": {A: GpuShare(A, 500)}}
    assert step(member((), has=(), **cut_off)) == Attached(2, (), drains(A), Reason.DRAINING)
    assert step(member((), has=(), **cut_off), scan=scanned(A)) == Attached(2)
    assert step(member((A,), has=(), **cut_off), A) == Attached(2, shares(A))


def test_unrecorded_open_gpu_drains() -> None:
    """An open GPU without a record drains; not one that the pod rightly has, or another pod or a stranger."""
    scan = scanned(A, B, C, a=(ME,), b=(ME,), c=(Suspect(2**30, 500, "python", "other"),))
    new: dict[str, Any] = {"holdings_known": False}
    assert step(member(**new), scan=scan) == Attached(
        0, (), drains(A, holders=(HOLDER,)) + drains(B, holders=(HOLDER,)), Reason.DRAINING
    )
    assert step(member((A,), **new), A, scan=scan, claimed={B}) == Attached(2, shares(A))
    known = step(member((), has=(A,), **new), scan=scan, claimed={B})
    assert known == Attached(2, (), drains(A, holders=(HOLDER,)), Reason.DRAINING)
    draining = step(member((), has=(), draining=(A, B), **new), scan=scan)
    assert draining is not None
    assert [item.uuid for item in draining.draining] == [A, B]
    assert step(member(), scan=scan) is None


def test_unhealthy_gpu_stays_attached_with_a_reason() -> None:
    """Programs that run on it end in their own way."""
    found = step(member((A,), has=(A,)), A, unhealthy=frozenset({A}))
    assert found == Attached(2, shares(A), reason=Reason.UNHEALTHY)


def test_scan_covers_all_that_the_pod_may_have_had() -> None:
    """All that it had and has no more; for a pod that is not known yet all that it may have."""
    one = member((), has=(A,), draining=(B,), granted={C: GpuShare(C, 1000)})
    assert to_prove_closed(one, {C}, {A, B, C}) == {A, B}
    assert to_prove_closed(member((B,)), {B}, {A, B, C}) == frozenset()
    assert to_prove_closed(member((B,), holdings_known=False), {B}, {A, B, C}) == {A, C}


@pytest.mark.parametrize(
    ("view", "known", "found"),
    [
        (None, True, None),
        (PodView(REF, finished=True, allocated=Allocated(2, shares(A))), True, None),
        (PodView(REF, allocated=Allocated(2, shares(A))), True, Allocated(2, shares(A))),
        (PodView(REF, problem="nonsense"), True, Allocated(1, shares(B))),
        (PodView(REF, problem="nonsense"), False, Allocated(1, shares(C))),
    ],
)
def test_wanted_state_of_a_pod(view: PodView | None, known: bool, found: Allocated | None) -> None:
    """The decision; nothing when it ended; its present state where the decision cannot be read."""
    assert (
        wanted(
            ManagedPod(
                "me", view, attached=Attached(1, shares(C)), granted={B: GpuShare(B, 1000)}, holdings_known=known
            )
        )
        == found
    )


def test_holders_are_limited_to_scanned_gpus() -> None:
    """A pod with the right to a GPU is no holder of what others drain."""
    scan = scanned(A, B, a=(ME,), b=(Suspect(2**30, 500, "python", "other"),), c=(ME,))
    assert found_holders(member(), scan, RIGHTS) == {A: (HOLDER,), B: ()}


def test_holder_names_alone_are_written_later() -> None:
    """A change is written at once; other names of holders alone after a while."""
    said = Attached(1, (), drains(A, holders=(HOLDER,)))
    renamed = Attached(1, (), drains(A, holders=(Holder(7, "other"),)))
    one = ManagedPod("me", attached=said, record=ServerRecord(said, written=50.0))
    assert not worth_writing(ManagedPod("me"), 1000)
    assert not worth_writing(one, 1000)
    one.record.attached = None
    assert worth_writing(one, 50)
    one.record.attached = Attached(1, shares(A))
    assert worth_writing(one, 50)
    one.record.attached = renamed
    assert not worth_writing(one, 50 + NAMES_PAUSE - 0.1)
    assert worth_writing(one, 50 + NAMES_PAUSE)


def test_only_records_newer_than_our_write_count() -> None:
    """At first what is recorded; after a write of ours only what is newer than that."""
    first, second = Attached(1, shares(A)), Attached(2, shares(B))
    one = ManagedPod("me")
    one.take_over(PodView(REF, attached=first, version="5"))
    assert (one.attached, one.record.attached) == (first, first)
    one.attached, one.record = second, ServerRecord(second, "8")
    one.take_over(PodView(REF, attached=first, version="7"))
    assert (one.attached, one.record.attached) == (second, second)
    one.take_over(PodView(REF, attached=first, version="8"))
    assert one.record.attached == second
    one.take_over(PodView(REF, attached=first, version="10"))
    assert (one.attached, one.record.attached) == (second, first)


def test_holding_follows_the_rules_in_force() -> None:
    """Others may rely on its rules, else its record, and what drains. While these are unknown, anything may be open."""
    one = member((A,), has=(A, B), draining=(C,), granted={A: GpuShare(A, 250)})
    held = one.holding
    assert (held.claimed_milli(A), held.claimed_milli(B), held.claimed_milli(C), held.known) == (250, 1000, 1000, True)
    assert not member(holdings_known=False).holding.known
    assert one.drains
    assert not member(has=(A,)).drains


@pytest.mark.parametrize("known", [True, False])
def test_stale_record_is_no_claim(known: bool) -> None:
    """The rules in force decide what the pod has; its record does while there are none, or they can't be read."""
    one = member(has=(A,), granted={})
    assert set(one.claimed_uuids) == {A}
    one.guard = cast("GuardedPod", SimpleNamespace(known=known, allowed=frozenset({B})))
    assert set(one.claimed_uuids) == ({B} if known else {A})


def test_open_gpus_are_recorded_with_the_attached_ones() -> None:
    """As an earlier process recorded it until it was observed; never for a GPU that is not attached any more."""
    one = member((A, B), has=(A, B))
    assert one.attached
    one.attached = replace(one.attached, open=(B, C))
    assert step(one, A, B) == Attached(2, shares(A, B), open=(B,))
    one.use.open = frozenset({A})
    after = step(one, A, B)
    assert after == Attached(2, shares(A, B), open=(A,))
    one.attached, one.record.attached = after, Attached(2, shares(A, B), open=(B,))
    assert worth_writing(one, 0)
    two = member((B,), has=(A, B), use=UseScans(frozenset({A})))
    assert step(two, B, scan=scanned(A)) == Attached(2, shares(B))


def test_resting_gpus_are_recorded_with_the_open_ones() -> None:
    """As an earlier process recorded it until it was observed; one that is given back or closed does not rest."""
    one = member((A, B), has=(A, B))
    assert one.attached
    one.attached = replace(one.attached, open=(A, B), rests=(B, C))
    assert step(one, A, B) == Attached(2, shares(A, B), open=(A, B), rests=(B,))
    one.use = UseScans(frozenset({A, B}), frozenset({A}))
    after = step(one, A, B)
    assert after == Attached(2, shares(A, B), open=(A, B), rests=(A,))
    one.attached, one.record.attached = after, Attached(2, shares(A, B), open=(A, B))
    assert worth_writing(one, 0)
    two = member((B,), has=(A, B), use=UseScans(frozenset({A}), frozenset({A, B})))
    assert step(two, B, scan=scanned(A)) == Attached(2, shares(B))


def test_missing_devices_are_recorded_for_a_pod_that_has_nothing() -> None:
    """So that nothing is decided for it which it could never open."""
    lacks = frozenset({C})
    assert step(member(lacks=lacks)) == Attached(0, lacks=(C,))
    assert step(member((A,), lacks=lacks), A) == Attached(2, shares(A), lacks=(C,))
    assert step(member((A, C), has=(A,), lacks=lacks), A) == Attached(1, shares(A), lacks=(C,)), "not all of it is done"
