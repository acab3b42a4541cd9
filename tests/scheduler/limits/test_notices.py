"""Events about GPUs that will be taken back."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.pod_limit import PodLimit, Reclaim
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.limits.notices import limit_notice, pod_notice
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

AT = 1777896600.0  # 12:10 UTC on 4 May 2026
LIMIT = PodLimit(1000, 1000, Source(SourceKind.GROUP, "ml", "root", object="ml"), AT)
RECORD = Allocated(1, (GpuShare("g0", 1000), GpuShare("g1", 1000)), limit=LIMIT)
POD = PodState("uid", "n0", allocated=RECORD, name="jupyter-ann")


def with_limit(limit: PodLimit | None) -> PodState:
    """Return the pod with another limit in its record."""
    return replace(POD, allocated=replace(RECORD, limit=limit))


def test_pod_is_told_when_how_much_and_by_which_limit() -> None:
    """All of it is in the one sentence that the panel shows, too."""
    notice = pod_notice(POD)
    assert notice
    assert "Your limit is 1 GPU, set for group ml by root." in notice.message
    assert "1 GPU will be taken back at 12:10 UTC on 4 May" in notice.message
    assert (notice.limit, notice.over, notice.give_back_at) == ("ml", 1000, AT)


def test_pod_that_keeps_what_it_has_is_told_nothing() -> None:
    """Without a time, or with no more than the limit, there is no news."""
    assert pod_notice(replace(POD, allocated=None)) is None
    for limit in (None, replace(LIMIT, give_back_at=None), replace(LIMIT, milli=2000, max=2000), PodLimit(None, None)):
        assert pod_notice(with_limit(limit)) is None


def test_name_follows_from_what_is_told() -> None:
    """The next process makes the same one; another pod or another time is another Event."""
    first, parts = pod_notice(POD), pod_notice(with_limit(replace(LIMIT, give_back_at=AT + 0.4)))
    assert first
    assert parts
    assert first.name == parts.name
    assert first.name.startswith("jupyter-ann.")
    later, other = pod_notice(with_limit(replace(LIMIT, give_back_at=AT + 1))), pod_notice(replace(POD, uid="other"))
    assert later
    assert other
    assert len({first.name, later.name, other.name}) == 3


def test_long_names_stay_valid() -> None:
    """An Event's name has at most 253 letters."""
    notice = pod_notice(replace(POD, name="p" * 253))
    assert notice
    assert len(notice.name) <= 253


def test_reclaimed_pod_is_told_each_time() -> None:
    """No limit is behind it; another amount later is another Event."""
    first = pod_notice(with_limit(PodLimit(None, None, reclaimed=(Reclaim(1000, AT),))))
    assert first
    assert "1 GPU at 12:10 UTC on 4 May will be taken back from this server" in first.message
    assert first.limit == ""
    second = pod_notice(with_limit(PodLimit(None, None, reclaimed=(Reclaim(1000, AT), Reclaim(500, AT + 60)))))
    assert second
    assert "1 GPU at 12:10 UTC on 4 May and 0.5 GPU at 12:11 UTC" in second.message
    assert second.name != first.name


def test_pod_of_a_preemptible_job_is_told_that_it_is_ended() -> None:
    """It is told so only where it is: a notebook with the same wish is not ended, nor a Job that is not preemptible."""
    reclaimed = with_limit(PodLimit(None, None, reclaimed=(Reclaim(1000, AT),)))
    job = replace(reclaimed, requested=Requested(1, Wish(1000), extra={"preemptible": True}))
    told = pod_notice(job, 30)
    assert told
    assert told.message.endswith("This is one: it gets SIGTERM up to 30 s before, unless it has closed them.")
    for other in (pod_notice(job), pod_notice(reclaimed, 30), pod_notice(POD, 30)):
        assert other
        assert "SIGTERM" not in other.message


def test_limit_names_owners_and_amounts() -> None:
    """Some owners are named, the others counted; odd names are shown so that they make no line lie."""
    over = {Owner("User", "ann", "hub"): 1000, Owner("Namespace", "jobs"): 2500}
    assert limit_notice("ml", "uid", over, AT).message == (
        "GPUs above this limit will be taken back at 12:10 UTC on 4 May: 2.5 GPUs of namespace jobs, "
        "1 GPU of user ann of hub hub."
    )
    many = {Owner("User", f"u{number}\n", "hub"): 1000 for number in range(7)}
    message = limit_notice("ml", "uid", many, AT).message
    assert message.endswith(", 2 GPUs of 2 others.")
    assert "\n" not in message
