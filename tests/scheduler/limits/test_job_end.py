"""The end of a preemptible Job's pod: when its programs get SIGTERM, and how long they have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.limits.pod_limit import PodLimit, Reclaim
from jupyter_gpu_scheduler.rules.limits.job_end import LEAST_SECONDS, PROOF_SECONDS, JobEnd, job_end
from jupyter_gpu_scheduler.rules.state.pod_state import PodState


def job(*reclaims: Reclaim, gpus: int = 2, busy: int = 2, draining: int = 0) -> PodState:
    """Return a pod with GPUs, of which it has the first ``busy`` open, and ``draining`` more."""
    limit = PodLimit(None, None, reclaimed=reclaims)
    closing = tuple(DrainingShare(f"d{number}", 1000) for number in range(draining))
    return PodState(
        "uid",
        "n0",
        requested=Requested(1, Wish(4000), extra={"preemptible": True}),
        allocated=Allocated(1, tuple(GpuShare(f"g{number}", 1000) for number in range(gpus)), limit=limit),
        attached=Attached(1, (), closing),
        busy=frozenset(f"g{number}" for number in range(busy)),
    )


ONE = Reclaim(1000, 600)


def test_programs_have_their_grace_before_the_gpus_go() -> None:
    """SIGTERM comes so early that the pod has ended, or is killed, when its GPUs were announced to go."""
    assert job_end(job(ONE), 45, now=0) == JobEnd(555, 45)
    assert job_end(job(ONE), 45, now=560) == JobEnd(560, 40)


def test_grace_that_is_longer_than_the_notice_is_cut() -> None:
    """No pod keeps GPUs from others by a long termination grace, but each has the time that it wants up to 30 s."""
    assert job_end(job(ONE), 86_400, now=0) == JobEnd(0, 600)
    assert job_end(job(ONE), 86_400, now=599) == JobEnd(599, LEAST_SECONDS)
    assert job_end(job(ONE), 5, now=599) == JobEnd(599, 5)


def test_pod_is_never_removed_while_it_runs() -> None:
    """A grace of 0 would remove the object at once, whatever its programs still do."""
    assert job_end(job(ONE), 0, now=0) == JobEnd(600, 1)


KEPT: dict[str, tuple[PodState, int | None]] = {
    "no Job's": (job(ONE), None),
    "nothing is reclaimed": (job(), 30),
    "it has the GPU closed": (job(ONE, gpus=2, busy=1), 30),
    "it has all of them closed": (job(ONE, Reclaim(1000, 700), busy=0), 30),
    "no record": (replace(job(ONE), allocated=None), 30),
    "no limits": (replace(job(ONE), allocated=Allocated(1)), 30),
    "it is not preemptible": (replace(job(ONE), requested=Requested(1, Wish(4000))), 30),
    "no wish": (replace(job(ONE), requested=None), 30),
    "it ends already": (replace(job(ONE), gone=True), 30),
    "it has no node": (replace(job(ONE), node=""), 30),
    "its node is still to close what was taken": (job(Reclaim(1000, 0), draining=1, busy=0), 30),
    "all that was taken is closed": (replace(job(Reclaim(1000, -60)), attached=Attached(1)), 30),
    "what its node says is not known": (replace(job(Reclaim(1000, -60)), attached=None), 30),
}


@pytest.mark.parametrize("why", KEPT)
def test_pod_is_not_ended(why: str) -> None:
    """A pod goes on that says nothing about being preemptible, is of no Job, or has nothing open that goes."""
    pod, termination = KEPT[why]
    assert job_end(pod, termination, now=0) is None


def test_pod_that_opened_an_idle_gpu_at_the_last_moment_is_ended() -> None:
    """A GPU that was idle when it was taken and is open all the same drains: its pod has its grace from then on."""
    late = job(Reclaim(1000, 100), draining=1)
    assert job_end(late, 86_400, now=100 + PROOF_SECONDS) == JobEnd(103, LEAST_SECONDS)


def test_first_gpu_that_is_open_counts() -> None:
    """Idle GPUs go first, so the end comes with the notice that idle ones do not cover."""
    pod = job(Reclaim(1000, 100), Reclaim(1000, 200), Reclaim(1000, 300), gpus=4, busy=2)
    assert job_end(pod, 30, now=0) == JobEnd(270, 30)


@given(
    st.lists(st.builds(Reclaim, st.integers(1, 4000), st.integers(0, 1000).map(float)), max_size=4),
    st.integers(0, 4),
    st.integers(0, 2000),
    st.floats(0, 1100),
)
def test_end_never_comes_late_nor_before_its_time(
    reclaims: list[Reclaim], busy: int, termination: int, now: float
) -> None:
    """With the notice that there is, programs have their whole grace, or 30 s of it, and no more."""
    end = job_end(job(*reclaims, gpus=4, busy=busy), termination, now)
    assert job_end(job(*reclaims, gpus=4, busy=busy), None, now) is None
    if end is None:
        ahead = sum(item.milli for item in reclaims if item.at > now)
        assert ahead <= 1000 * (4 - busy)
        return
    assert end.at >= now
    goes_at = {item.at for item in reclaims if item.at > now}
    assert any(at - end.at <= end.seconds or end.seconds == LEAST_SECONDS or termination == 0 for at in goes_at)
    assert end.seconds >= min(termination, LEAST_SECONDS)
    assert end.seconds <= max(1, termination)
    if end.at > now:
        assert end.seconds == max(1, termination)
