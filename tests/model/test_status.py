"""The phase is computed, and agrees with the amounts whatever the three states say."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model import status as module
from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.parking import ParkedShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.status import Phase, Status, status

from . import strategies as any_

A = GpuShare("a", 1000)
HALF = GpuShare("a", 500)
B = GpuShare("b", 1000)
OLD, NEW = 3, 4


def pod(wanted: int, granted: tuple[GpuShare, ...], usable: tuple[GpuShare, ...], *, draining: int = 0) -> Status:
    """The status of a pod whose wish has been seen."""
    leaving = tuple(DrainingShare(f"d{i}", 1000) for i in range(draining))
    return status(Requested(NEW, Wish(wanted)), Allocated(NEW, granted), Attached(NEW, usable, leaving))


TABLE = [
    (pod(0, (), ()), Phase.IDLE, None),
    (pod(1000, (A,), (A,)), Phase.READY, None),
    (pod(1000, (A,), (A,), draining=1), Phase.RELEASING, Reason.DRAINING),
    (pod(0, (), (), draining=1), Phase.RELEASING, Reason.DRAINING),
    (pod(0, (), (A,)), Phase.RELEASING, Reason.DRAINING),
    (pod(500, (HALF,), (A,)), Phase.RELEASING, Reason.DRAINING),
    (pod(2000, (A,), (A,)), Phase.WAITING, Reason.PARTIAL),
    (pod(2000, (), ()), Phase.WAITING, Reason.DEFERRED),
    (pod(2000, (A,), (A,), draining=1), Phase.WAITING, Reason.PARTIAL),
    (pod(2000, (A, B), (A,)), Phase.ATTACHING, None),
    (pod(1000, (A,), (HALF,)), Phase.ATTACHING, None),
    (pod(1000, (B,), (A,)), Phase.ATTACHING, None),
    (pod(3000, (A, B), (A,), draining=1), Phase.ATTACHING, None),
]


@pytest.mark.parametrize(("now", "phase", "reason"), TABLE)
def test_phase_follows_the_first_rule_that_applies(now: Status, phase: Phase, reason: Reason | None) -> None:
    """One line for each case, the first rule that applies."""
    assert (now.phase, now.reason) == (phase, reason)


@pytest.mark.parametrize("usable", [(), (HALF,), (HALF._replace(memory=10),)])
def test_share_that_waits_for_memory_is_attaching(usable: tuple[GpuShare, ...]) -> None:
    """Also one that is there, and is to have more: the node says that others still use it."""
    wish, granted = Requested(NEW, Wish(500, memory=20)), Allocated(NEW, (HALF._replace(memory=20),))
    now = status(wish, granted, Attached(OLD, usable, reason=Reason.DRAINING))
    assert (now.phase, now.reason, now.settled) == (Phase.ATTACHING, Reason.DRAINING, False)


@pytest.mark.parametrize("reason", [Reason.LIMIT_EXCEEDED, Reason.INFEASIBLE])
def test_refusal_counts_for_its_own_wish(reason: Reason) -> None:
    """A refusal counts once the scheduler has seen the wish that it refuses, and not after the next one."""
    wish = Requested(NEW, Wish(9000))
    held = Attached(NEW, (A,))
    assert status(wish, Allocated(NEW, (A,), reason), held).phase is Phase.REFUSED
    assert status(wish, Allocated(OLD, (A,), reason), held).phase is Phase.PENDING


def limited(
    wanted: int, has: int, milli: int | None, *, attaches: int | None = None, draining: int = 0, **decided: Any
) -> Status:
    """The status of a pod that has ``has`` whole GPUs, with a limit of its user that allows ``milli``."""
    usable = has if attaches is None else attaches
    shares = tuple(GpuShare(f"g{i}", 1000) for i in range(max(has, usable)))
    leaving = tuple(DrainingShare(f"d{i}", 1000) for i in range(draining))
    allowed = Allocated(NEW, shares[:has], limit=PodLimit(milli, milli), **decided)
    return status(Requested(NEW, Wish(wanted)), allowed, Attached(NEW, shares[:usable], leaving))


OVER = Reason.LIMIT_EXCEEDED
LIMITED = [
    (limited(3000, 2, 2000, reason=OVER), Phase.WAITING, OVER, True),
    (limited(3000, 2, 2000), Phase.WAITING, OVER, True),  # the amounts say it, whatever the reason
    (limited(3000, 2, 2000, reason=Reason.PARTIAL, ticket=3), Phase.WAITING, OVER, True),
    (limited(1000, 0, 0, reason=OVER), Phase.WAITING, OVER, True),
    (limited(2000, 1, 4000, reason=OVER), Phase.WAITING, OVER, True),  # a limit on a model
    (limited(2000, 1, None, reason=OVER), Phase.WAITING, OVER, True),
    (limited(4000, 1, 2000, reason=OVER, ticket=3), Phase.WAITING, Reason.PARTIAL, False),  # room is missing as well
    (limited(4000, 0, 2000, reason=OVER, ticket=3), Phase.WAITING, Reason.DEFERRED, False),
    (limited(4000, 1, 2000, reason=Reason.PARTIAL, ticket=3), Phase.WAITING, Reason.PARTIAL, False),
    (limited(3000, 2, 2000, reason=OVER, attaches=1), Phase.ATTACHING, None, False),
    (limited(3000, 2, 2000, reason=OVER, draining=1), Phase.WAITING, OVER, False),
    (limited(3000, 2, 2000, reason=OVER, attaches=3), Phase.WAITING, OVER, False),  # revoked, not yet closed
    (limited(3000, 3, 2000), Phase.READY, None, True),  # lowered, and nothing is taken back yet
    (limited(2000, 2, 2000), Phase.READY, None, True),
    (limited(3000, 0, 2000, reason=Reason.INFEASIBLE), Phase.REFUSED, Reason.INFEASIBLE, True),
]


@pytest.mark.parametrize(("now", "phase", "reason", "settled"), LIMITED)
def test_wish_above_the_users_limit_waits(now: Status, phase: Phase, reason: Reason | None, settled: bool) -> None:
    """It is not refused, as it is served when the limit is raised; nothing more happens by itself until then."""
    assert (now.phase, now.reason, now.settled) == (phase, reason, settled)
    assert now.limited is (phase is Phase.WAITING and reason is OVER)


def test_unseen_wish_is_pending() -> None:
    """A wish that the scheduler has not seen is pending, unless nothing is wanted and nothing held."""
    assert status(Requested(1, Wish(1000)), None, None).phase is Phase.PENDING
    assert status(Requested(1, Wish(0)), None, None).phase is Phase.IDLE
    assert status(Requested(NEW, Wish(0)), Allocated(OLD, (A,)), Attached(OLD, (A,))).phase is Phase.PENDING
    assert status(Requested(NEW, Wish(0)), None, Attached(OLD, (A,))).phase is Phase.PENDING
    assert status(None, None, None).phase is Phase.IDLE
    bare = Requested(0, Wish(1000))  # a bare quantity has generation 0
    assert status(bare, Allocated(0, (A,)), Attached(0, (A,))).phase is Phase.READY
    assert status(bare, Allocated(NEW, (A, B)), Attached(NEW, (A, B))).phase is Phase.PENDING  # by hand, after others


def far(milli: int, *gpus: GpuShare, stage: Stage = Stage.READY) -> PodWorker:
    """Return a worker on another node."""
    return PodWorker("w1", "n2", Relation.SWITCH, stage, milli, gpus)


def with_workers(wanted: int, own: tuple[GpuShare, ...], *workers: PodWorker) -> Status:
    """The status of a pod that has all that its own node gives it, and these workers."""
    return status(Requested(NEW, Wish(wanted)), Allocated(NEW, own), Attached(NEW, own), workers)


WORKERS = [
    (with_workers(2000, (A,), far(1000, B)), Phase.READY, None, 2000),
    (with_workers(1000, (), far(1000, B)), Phase.READY, None, 1000),
    (with_workers(0, (), far(0)), Phase.IDLE, None, 0),
    (with_workers(2000, (A,), far(1000)), Phase.ATTACHING, None, 1000),
    (with_workers(2000, (A,), far(1000, B, stage=Stage.CONNECTING)), Phase.ATTACHING, None, 1000),
    (with_workers(3000, (A,), far(1000, B)), Phase.WAITING, Reason.PARTIAL, 2000),
    (with_workers(2000, (A,), far(1000, stage=Stage.REFUSED)), Phase.WAITING, Reason.PARTIAL, 1000),
    (with_workers(1000, (), far(1000, B, stage=Stage.FAILED)), Phase.WAITING, Reason.DEFERRED, 0),
    (with_workers(2000, (), far(1000, B), far(1000, stage=Stage.FAILED)), Phase.WAITING, Reason.PARTIAL, 1000),
    (with_workers(2000, (), far(1000), far(1000, stage=Stage.FAILED)), Phase.ATTACHING, None, 0),
    (with_workers(1000, (A,), far(0, B)), Phase.RELEASING, Reason.DRAINING, 2000),
    (with_workers(1000, (A,), far(0, B, stage=Stage.FAILED)), Phase.RELEASING, Reason.DRAINING, 1000),
]


@pytest.mark.parametrize(("now", "phase", "reason", "attached"), WORKERS)
def test_workers_count_as_own_gpus(now: Status, phase: Phase, reason: Reason | None, attached: int) -> None:
    """GPUs of other nodes are part of the amounts, and a worker that cannot run is waited for."""
    assert (now.phase, now.reason, now.attached) == (phase, reason, attached)
    assert now.settled is (phase in (Phase.READY, Phase.IDLE))


def parking(
    wanted: int, granted: tuple[GpuShare, ...], usable: tuple[GpuShare, ...], *parked: ParkedShare, draining: int = 0
) -> Status:
    """The status of a pod with something parked."""
    leaving = tuple(DrainingShare(f"d{i}", 1000) for i in range(draining))
    return status(Requested(NEW, Wish(wanted)), Allocated(NEW, granted), Attached(NEW, usable, leaving, parked=parked))


IN_A = ParkedShare("a", 1000, "one", 10, 5)
IN_A_TOO = IN_A._replace(bundle="two")
IN_B = IN_A._replace(uuid="b")
NEEDED = IN_A._replace(needed=True)
SWAPPED = IN_A._replace(kept=True)
PARKED = [
    (parking(1000, (), (), IN_A), Phase.PARKED, None, 1000),
    (parking(2000, (B,), (B,), IN_A), Phase.PARKED, None, 1000),
    (parking(1000, (B,), (B,), IN_A), Phase.PARKED, None, 1000),  # more than the wish
    (parking(2000, (), (), IN_A, IN_A_TOO), Phase.PARKED, None, 2000),
    (parking(1000, (A,), (), IN_A), Phase.PARKED, None, 1000),  # granted until the scheduler has seen it
    (parking(2000, (A,), (), IN_A), Phase.WAITING, Reason.PARTIAL, 1000),
    (parking(2000, (A, B), (), IN_A), Phase.ATTACHING, None, 1000),
    (parking(2000, (), (), IN_A), Phase.WAITING, Reason.DEFERRED, 1000),
    (parking(3000, (B,), (B,), IN_A), Phase.WAITING, Reason.PARTIAL, 1000),
    (parking(1000, (), (), IN_A, draining=1), Phase.RELEASING, Reason.DRAINING, 1000),
    (parking(1000, (), (), NEEDED), Phase.WAITING, Reason.DEFERRED, 1000),
    (parking(0, (), (), NEEDED), Phase.WAITING, Reason.DEFERRED, 1000),
    (parking(2000, (), (), NEEDED, IN_B), Phase.WAITING, Reason.DEFERRED, 2000),
    (parking(1000, (A,), (), NEEDED), Phase.ATTACHING, None, 1000),
    (parking(1000, (), (A,), NEEDED), Phase.ATTACHING, None, 1000),
    (parking(1000, (A,), (A,), NEEDED), Phase.ATTACHING, None, 1000),  # recorded before it runs
    (parking(1000, (A,), (A,), SWAPPED), Phase.READY, None, 0),
    (parking(1000, (A,), (A,), SWAPPED._replace(needed=True)), Phase.READY, None, 0),
]


@pytest.mark.parametrize(("now", "phase", "reason", "parked"), PARKED)
def test_what_is_parked_lacks_nothing_until_it_is_needed(
    now: Status, phase: Phase, reason: Reason | None, parked: int
) -> None:
    """It counts as what is wanted, and nothing more happens by itself; what is needed waits or attaches."""
    assert (now.phase, now.reason, now.parked) == (phase, reason, parked)
    assert now.settled is (phase in (Phase.PARKED, Phase.READY))


def test_what_is_parked_counts_for_the_users_limit() -> None:
    """One of two that are wanted is parked, and the limit is one: the other waits until it is raised."""
    decided = Allocated(NEW, reason=Reason.DEFERRED, ticket=3, limit=PodLimit(1000, 1000))
    now = status(Requested(NEW, Wish(2000)), decided, Attached(NEW, parked=(IN_A,)))
    assert (now.phase, now.reason, now.settled) == (Phase.WAITING, OVER, True)


def test_unseen_wish_with_a_worker_is_pending() -> None:
    """A worker's GPU is given back only once the scheduler has seen that."""
    wish, before = Requested(NEW, Wish(0)), Allocated(OLD, ())
    assert status(wish, before, None, [far(1000, B)]).phase is Phase.PENDING
    assert status(wish, before, None, [far(0, B)]).phase is Phase.PENDING
    assert status(wish, before, None, [far(0)]).phase is Phase.IDLE


def test_broken_gpu_comes_before_other_phases() -> None:
    """A GPU that does not work is reported before anything else."""
    broken = Attached(OLD, (A,), (), Reason.UNHEALTHY)
    for wish, decision in product((None, Requested(NEW, Wish(2000))), (None, Allocated(NEW, (A,), Reason.INFEASIBLE))):
        now = status(wish, decision, broken)
        assert (now.phase, now.reason) == (Phase.DEGRADED, Reason.UNHEALTHY)
        now = status(wish, decision, None, [far(1000), far(1000, B)._replace(health=("broken",))])
        assert (now.phase, now.reason) == (Phase.DEGRADED, Reason.UNHEALTHY), "also of a worker"


@given(
    st.none() | any_.requested,
    st.none() | any_.allocated,
    st.none() | any_.attached,
    st.just(()) | st.lists(any_.pod_workers, max_size=2).map(tuple),
)
@example(None, None, None, ())
def test_phase_agrees_with_amounts(
    requested: Requested | None,
    allocated: Allocated | None,
    attached: Attached | None,
    workers: tuple[PodWorker, ...],
) -> None:
    """Whatever the three states and the workers say, a phase never claims what the amounts deny."""
    now = status(requested, allocated, attached, workers)
    own = sum(share.milli for share in (allocated.shares if allocated else ()))
    here = sum(share.milli for share in (attached.shares if attached else ()))
    has_some = bool(attached and attached.shares)  # a guest's amount is 0
    gets_some = bool(allocated and allocated.shares)
    assert now.requested == (requested.milli if requested else 0)
    assert now.allocated == own + sum(worker.milli for worker in workers)
    assert now.attached == here + sum(worker.usable for worker in workers)
    assert now.draining == sum(share.milli for share in (attached.draining if attached else ()))
    if now.phase is Phase.IDLE:
        assert now == Status(Phase.IDLE, None, 0, 0, 0, 0)
    parked = [share for share in (attached.parked if attached else ()) if not share.kept]
    assert now.parked == sum(share.milli for share in parked)
    if now.phase is Phase.PARKED:
        assert parked
        assert not any(share.needed for share in parked)
        assert now.requested <= now.allocated + now.parked
        assert now.draining == 0
    if now.phase is Phase.READY:
        assert not parked
        assert now.requested <= now.allocated == now.attached
        assert now.attached or has_some
        assert not any(worker.missing or worker.leaving for worker in workers)
        assert now.draining == 0
    if now.phase is Phase.WAITING:
        short = now.allocated < now.requested
        hindered = any(worker.hindered and worker.missing for worker in workers)
        needed = any(share.needed for share in parked)
        memory = now.requested and allocated and allocated.reason is Reason.PARTIAL
        assert short or hindered or needed or memory
        has = now.allocated if short or needed or not hindered else now.attached or has_some
        lack = Reason.PARTIAL if has else Reason.DEFERRED
        assert now.reason is lack or (now.reason is OVER and allocated and allocated.limit)
    if now.phase is Phase.RELEASING:
        assert now.requested <= now.allocated + now.parked
        drains = attached and attached.draining
        more = now.attached > now.allocated or (has_some and not gets_some)
        assert drains or more or any(worker.leaving for worker in workers)
    if now.phase is Phase.ATTACHING:
        assert now.allocated or gets_some or (now.parked and has_some)
    if now.phase is Phase.PENDING:
        assert requested
        assert now.requested or now.allocated or gets_some or has_some or any(worker.held for worker in workers)
    if now.phase is Phase.REFUSED:
        assert now.reason in (Reason.LIMIT_EXCEEDED, Reason.INFEASIBLE)
        assert not (now.reason is OVER and allocated and allocated.limit)
    settled = (Phase.IDLE, Phase.READY, Phase.PARKED, Phase.DEGRADED, Phase.REFUSED)
    assert now.settled is (now.phase in settled or (now.limited and not now.draining and now.attached == now.allocated))


def test_docstring_names_every_phase() -> None:
    """The table in the docstring names every phase once."""
    rows = re.findall(r"^\| `(\w+)`", module.__doc__ or "", re.MULTILINE)
    assert sorted(rows) == sorted(Phase)
