"""The limit that a notebook is told: to it, its workers on other nodes are no other servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.pod_limit import LimitWithWorkers, PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms, with_moved_end
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, cluster, gpu, inventory, pod, uuid

USER, GROUP = Source(SourceKind.USER, "ann"), Source(SourceKind.GROUP, "ml")


def _cluster() -> ClusterSnapshot:
    """One node with A100s, and one with H100s of twice the memory."""
    return cluster(
        {
            "a": inventory(4, models=["A100"], memory=[40]),
            "h": inventory(4, models=["H100"], memory=[80]),
        }
    )


def _told(pods: Sequence[PodState], limits: OwnerLimits) -> Mapping[str, PodLimit]:
    found = terms(_cluster(), pods, limits, stored=None, now=0).pods
    return {uid: one.pod_limit for uid, one in found.items()}


def _worker(uid: str, has: Sequence[int] = (), closes: Sequence[int] = (), **fields: object) -> PodState:
    return replace(pod(uid, wants=len(has), has=has, draining=closes, node="h", **fields), notebook="x")  # type: ignore[arg-type]


numbers = st.lists(st.integers(0, 3), unique=True)


@given(numbers, st.permutations([10, 11, 12, 13]), st.lists(st.integers(0, 4), min_size=2, max_size=2), numbers)
def test_a_notebook_alone_with_its_workers_may_wish_up_to_its_limit(
    own: list[int], there: Sequence[int], cuts: list[int], others: list[int]
) -> None:
    """GPUs that workers have or still close count for nothing; only what other servers hold is taken off."""
    first, second = sorted(cuts)
    workers = [_worker("w1", there[:first]), _worker("w2", there[first:second], there[second:])]
    mine = [pod("x", wants=len(own), has=own, node="a"), *workers]
    most = 1000 * (len(own) + 4)
    for limits in (OwnerLimits(Maximum(most, USER)), OwnerLimits(Maximum(most, USER), models={"none": Maximum(0)})):
        alone = _told(mine, limits)["x"].together()
        assert (alone.milli, alone.max, alone.source) == (most, most, USER)
    beside = [pod(f"y{number}", wants=1, has=[number], node="?") for number in others]
    held = 1000 * len(others)
    for limits in (
        OwnerLimits(Maximum(most + held, USER)),
        OwnerLimits(Maximum(most + held, USER), models={"none": Maximum(0)}),
    ):
        limit = _told([*mine, *beside], limits)["x"]
        # Others are not counted where its node ends before, if nothing is taken back.
        near = limit.milli == most + held and limit.give_back_at is None
        assert limit.together().milli == (most + held if near else most)


def test_a_worker_that_closes_is_no_other_server() -> None:
    """To `milli` it is one, for servers that add their workers' GPUs themselves."""
    pods = [pod("x", wants=0, has=[], node="a"), _worker("w", [10], [11])]
    assert _told(pods, OwnerLimits(Maximum(2000, USER)))["x"] == PodLimit(
        0, 2000, USER, with_workers=LimitWithWorkers(2000, 2000, USER)
    )
    assert _told(pods, OwnerLimits(Maximum(2000, USER)))["w"] == PodLimit(2000, 2000, USER)
    shown = replace(pods[0], pod_limit=PodLimit(2000, 2000, USER))
    moved = with_moved_end(_cluster(), shown, OwnerLimits(Maximum(2000, USER)), 2000, {"x": 2000})
    assert moved.pod_limit == PodLimit(0, 2000, USER, with_workers=LimitWithWorkers(2000, 2000, USER))
    assert with_moved_end(_cluster(), moved, OwnerLimits(Maximum(2000, USER)), 2000, {"x": 2000}) is moved


def test_a_maximum_of_a_model_bounds_both_where_neither_can_get_others() -> None:
    """The worker has GPUs of another model: so the two together may have more."""
    pods = [pod("x", wants=1, has=[0], node="a"), _worker("w", [10])]
    told = _told(pods, OwnerLimits(models={"A100": Maximum(2000, GROUP)}, source=USER))["x"]
    assert told == PodLimit(2000, 2000, GROUP, with_workers=LimitWithWorkers(None, None, USER))
    told = _told(pods, OwnerLimits(Maximum(3000, USER), models={"A100": Maximum(2000, GROUP)}))["x"]
    assert told == PodLimit(2000, 3000, USER, with_workers=LimitWithWorkers(3000, 3000, USER))
    near = [pods[0], replace(pod("w", wants=1, has=[1], draining=[2], node="a"), notebook="x")]
    told = _told(near, OwnerLimits(models={"A100": Maximum(3000, GROUP)}))["x"]
    assert told == PodLimit(1000, 3000, GROUP, with_workers=LimitWithWorkers(3000, 3000, GROUP))


@pytest.mark.parametrize(
    ("pods", "most", "milli"),
    [
        ([pod("x", wants=0, has=[], node="a"), _worker("w", [], [10])], 80, 2000),
        ([pod("x", wants=1, has=[0], node="a"), _worker("w", [10])], 160, 3000),
        ([pod("x", wants=1, has=[0], node="a"), _worker("w", [10, 11])], 100, 3000),
        ([pod("x", wants=0, node="?"), _worker("w", [10])], 160, 2000),
        ([pod("x", wants=0, node="?"), replace(_worker("w", [10]), node="!")], 160, None),
    ],
)
def test_a_maximum_of_memory_counts_for_both(pods: list[PodState], most: int, milli: int | None) -> None:
    """As many milli as the smallest GPUs that either can get have so much memory, beside those that they have."""
    told = _told(pods, OwnerLimits(memory=Maximum(most * GIB, GROUP)))["x"].together()
    assert told.milli == milli


def test_what_is_taken_back_of_a_worker_alone_is_told() -> None:
    """Also where the own node has no GPU, so that other servers are else not counted."""
    pods = [pod("x", node="?"), _worker("w", [10]), pod("y", wants=1, has=[11], node="h")]
    told = _told(pods, OwnerLimits(Maximum(1000, USER), grace=60))["x"]
    assert (told.milli, told.give_back_at, told.together().milli) == (1000, 60, 0)
    assert _told(pods, OwnerLimits(Maximum(2000, USER), grace=60))["x"] == PodLimit(2000, 2000, USER)


def test_memory_that_is_left_counts_for_both() -> None:
    """A worker's memory is no other server's."""
    pods = [pod("x", wants=1, has=[0], node="a"), _worker("w", [10])]
    assert _told(pods, OwnerLimits(memory=Maximum(120 * GIB, GROUP)))["x"].memory is None
    pods = [*pods, pod("y", wants=1, has=[11], node="h")]
    assert _told(pods, OwnerLimits(memory=Maximum(110 * GIB, GROUP)))["x"].memory == 30 * GIB


def test_shares_that_name_their_memory_are_counted_whole() -> None:
    """The worker closes one of 60 GiB; of 130 two can be."""
    snapshot = cluster({"g": [gpu(index, gate=True, memory=80 * GIB) for index in range(4)]})
    share = (GpuShare(uuid(0), 250, 60 * GIB),)
    wish = Requested(1, Wish(250, each=250, memory=60 * GIB))
    notebook = PodState("x", "g", wish, Allocated(1), Attached(1))
    worker = PodState("w", "g", wish, Allocated(1, share), Attached(1, share), notebook="x")
    for pods in ([notebook, worker], [replace(notebook, requested=Requested(1, Wish(250, memory=60 * GIB))), worker]):
        found = terms(snapshot, pods, OwnerLimits(memory=Maximum(130 * GIB, GROUP)), stored=None, now=0).pods["x"]
        each = 250 if pods[0] is notebook else 1000
        assert found.pod_limit.together().milli == 250 + each
