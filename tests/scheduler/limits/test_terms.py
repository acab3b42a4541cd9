"""The terms of an owner's pods, where several maxima hold: of GPUs, of a model, of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare, pieces
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import UNSET, Source, SourceKind
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import PodTerms, ends_stay_until, terms, unserved_terms, with_moved_end
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, cluster, gpu, inventory, new, pod, uuid

USER, GROUP = Source(SourceKind.USER, "ann"), Source(SourceKind.GROUP, "ml")


def _terms(
    snapshot: ClusterSnapshot, pods: Iterable[PodState], limits: OwnerLimits, now: float = 0
) -> Mapping[str, PodTerms]:
    return terms(snapshot, tuple(pods), limits, stored=None, now=now).pods


def _cluster() -> ClusterSnapshot:
    """One node with A100s, one with H100s of other memory, one with both."""
    return cluster(
        {
            "a": inventory(4, models=["NVIDIA A100-SXM4"], memory=[40]),
            "h": inventory(4, models=["H100 PCIe"], memory=[80]),
            "ah": inventory(4, models=["A100", "H100"], memory=[40, 80]),
        }
    )


def test_terms_without_limits() -> None:
    """Nothing bounds the pods; their panels say whose limit sets that."""
    found = _terms(_cluster(), [pod("x", wants=3, node="a")], OwnerLimits(source=USER))
    assert found == {"x": PodTerms(None, (), PodLimit(None, None, USER))}


def test_pods_without_a_maximum_keep_their_terms() -> None:
    """Those that lack GPUs may have what they wish, and what others hold moves no slider's end."""
    limits, one = OwnerLimits(source=USER), pod("x", wants=3, has=[0], node="a")
    assert unserved_terms(_cluster(), [one], limits, 1000, 1000) == _terms(_cluster(), [one], limits)
    shown = one.showing(PodLimit(2000, 3000, USER), one.allocated)
    assert with_moved_end(_cluster(), shown, limits, 9000) is shown


def test_pod_that_has_all_claims_no_more_of_a_model() -> None:
    """It has an H100, on a node that has A100s, too: the only A100 of the limit is for the pod behind it."""
    limits = OwnerLimits(models={"a100": Maximum(1000, USER)})
    pods = [pod("x", wants=1, has=[21], node="ah"), pod("y", wants=2, node="a")]
    assert _terms(_cluster(), pods, limits)["y"].allowance == 1000
    pods[0] = pod("x", wants=2, has=[21], node="ah")
    assert _terms(_cluster(), pods, limits)["y"].allowance == 0, "what it lacks may be one"


def test_worker_without_a_pod_is_counted_by_its_node() -> None:
    """It has no node yet; of those that the cluster has only its own counts."""
    promised = replace(new("w", wants=2, ticket=0, on="a"), notebook="x")
    found = _terms(_cluster(), [promised], OwnerLimits(memory=Maximum(80 * GIB, USER)))
    assert found["w"].allowance == 2000
    found = _terms(_cluster(), [replace(promised, notebook="")], OwnerLimits(memory=Maximum(80 * GIB, USER)))
    assert found["w"].allowance == 1000


def test_terms_of_a_maximum_of_gpus() -> None:
    """Each pod has its part, and its slider ends where the others' GPUs leave off."""
    pods = [pod("x", wants=3, has=[0], node="a"), pod("y", wants=1, has=[10], node="h")]
    found = _terms(_cluster(), pods, OwnerLimits(Maximum(3000, USER)))
    assert found["x"] == PodTerms(2000, (), PodLimit(2000, 3000, USER))
    assert found["y"] == PodTerms(1000, (), PodLimit(2000, 3000, USER))
    state = found["x"].applied(pods[0])
    assert (state.allowance, state.model_allowances, state.pod_limit) == (2000, (), found["x"].pod_limit)
    assert PodTerms.of(state) == found["x"]


def test_ends_of_sliders_stay_until_the_rest_is_less_than_a_node_has() -> None:
    """Each node has four GPUs; a pod without a node sees every change, and without a maximum none is seen."""
    found = {
        name: ends_stay_until(_cluster(), pods, limits)
        for name, pods, limits in (
            ("nodes", (pod("x", node="a"), pod("y", node="?")), OwnerLimits(Maximum(9000))),
            ("unknown node", (pod("y", node="?"),), OwnerLimits(Maximum(9000))),
            ("no pod", (), OwnerLimits(Maximum(9000))),
            ("new pod", (pod("x", node="a"), new("z", wants=1)), OwnerLimits(Maximum(9000))),
            ("no maximum", (new("z", wants=1),), OwnerLimits()),
        )
    }
    assert found == {"nodes": 5000, "unknown node": 9000, "no pod": 9000, "new pod": 0, "no maximum": inf}


def test_slider_that_is_longer_than_the_node_ignores_other_pods() -> None:
    """If the others leave more than the node has, the slider's end does not change with each of them."""
    pods = [pod("x", wants=1, node="a"), pod("y", wants=1, has=[10], node="h"), new("z", wants=1)]
    found = _terms(_cluster(), pods, OwnerLimits(Maximum(9000, USER)))
    assert [found[uid].pod_limit.milli for uid in "xyz"] == [9000, 9000, 8000]
    found = _terms(_cluster(), [*pods, pod("v", wants=6, node="a")], OwnerLimits(Maximum(4500, USER)))
    assert [found[uid].pod_limit.milli for uid in "xyz"] == [3500, 4500, 3500]


@given(
    st.lists(
        st.builds(
            lambda uid, wants, has, gone: pod(uid, wants=wants, has=has, node="a", gone=gone),
            st.uuids().map(str),
            st.none() | st.sampled_from([0, 0.5, 1, 2, 3]),
            st.lists(st.integers(0, 3), unique=True),
            st.booleans(),
        ),
        max_size=4,
    ),
    st.none() | st.sampled_from([0, 500, 1000, 2000, 3500, 5000]),
    st.booleans(),
)
def test_terms_within_a_maximum_are_those_of_a_division(pods: list[PodState], most: int | None, fair: bool) -> None:
    """Most owners have no more than they may; the short way comes to the same as the long one."""
    if most is None:
        most = sum(max(one.holds, one.wished) for one in pods)
    short, long = (
        terms(_cluster(), pods, OwnerLimits(Maximum(most, USER), models=models), stored=None, now=0, fair=fair)
        for models in ({}, {"none": Maximum(0)})
    )
    assert (short.pods, short.grace) == (long.pods, long.grace)
    assert short.is_within == (sum(one.has for one in pods if not one.gone) <= most)
    assert not long.is_within


MODELS = {
    "the pod can get no other GPUs": (pod("x", wants=3, node="a"), 1000, ()),
    "the pod can't get such GPUs": (pod("x", wants=3, node="h"), 3000, ()),
    "the node has others, too": (pod("x", wants=3, node="ah"), 3000, (("a100", 1000),)),
    "the wish is for such GPUs only": (pod("x", wants=3, node="ah", model=("A100",)), 1000, ()),
    "a new pod may go to any node": (new("x", wants=3), 3000, (("a100", 1000),)),
    "a new pod wishes for such GPUs": (new("x", wants=3, model=("A100 SXM4",)), 1000, ()),
    "the node is not known": (pod("x", wants=3, node="?"), 3000, ()),
}


@pytest.mark.parametrize("name", MODELS)
def test_terms_of_a_maximum_of_a_model(name: str) -> None:
    """It bounds the pod as a whole where the pod can get no other GPUs, else only GPU by GPU."""
    state, allowance, models = MODELS[name]
    found = _terms(_cluster(), [state], OwnerLimits(Maximum(3000, USER), {"a100": Maximum(1000, GROUP)}))
    assert (found["x"].allowance, found["x"].model_allowances) == (allowance, models)
    assert found["x"].pod_limit == (PodLimit(1000, 1000, GROUP) if allowance < 3000 else PodLimit(3000, 3000, USER))


def test_maximum_of_a_model_counts_all_pods() -> None:
    """An A100 of one pod leaves less to the other, and what is not known any more counts as one."""
    pods = [pod("x", wants=1, has=[0], node="a"), pod("y", wants=2, node="a")]
    limits = OwnerLimits(models={"a100": Maximum(2000, GROUP)})
    assert _terms(_cluster(), pods, limits)["y"].allowance == 1000
    other = replace(pods[0], node="h")
    assert _terms(_cluster(), [other, pods[1]], limits)["y"].allowance == 1000, "GPU-0 is not there"
    known = pod("x", wants=1, has=[10], node="h")
    assert _terms(_cluster(), [known, pods[1]], limits)["y"].allowance == 2000


MEMORY = {
    "on small GPUs": (pod("x", wants=3, node="a"), 2000),
    "on large GPUs": (pod("x", wants=3, node="h"), 1000),
    "the largest that it can get counts": (pod("x", wants=3, node="ah"), 1000),
    "what it has counts as it is": (pod("x", wants=3, has=[20], node="ah"), 1000),
    "all that it lacks, though it is no whole GPU": (pod("x", wants=1.5, has=[20], node="ah"), 1500),
    "more than the maximum: it shrinks": (pod("x", wants=3, has=[10, 11], node="h"), 1000),
    "by what its smallest GPU has": (pod("x", wants=3, has=[21, 20], node="ah"), 1000),
    "a vanished GPU counts as the largest": (pod("x", wants=3, has=[19], node="h"), 1000),
    "the wish excludes large ones": (new("x", wants=3, model=("A100",)), 2000),
    "a new pod may get a large one": (new("x", wants=3), 1000),
    "no node is known": (pod("x", wants=3, node="?"), None),
    "no wish": (pod("x", node="a"), 0),
}


@pytest.mark.parametrize("name", MEMORY)
def test_terms_of_a_maximum_of_memory(name: str) -> None:
    """80 GiB are as many milli as the largest GPU leaves that the pod can get."""
    state, allowance = MEMORY[name]
    found = _terms(_cluster(), [state], OwnerLimits(memory=Maximum(80 * GIB, GROUP)))
    assert found["x"].allowance == allowance


@pytest.mark.parametrize(
    ("wish", "has", "most", "allowance"),
    [
        (Wish(1, memory=60 * GIB), None, 90, 1),
        (Wish(1, memory=60 * GIB), None, 50, 0),
        (Wish(500, each=250, memory=60 * GIB), None, 90, 250),
        (Wish(1250, memory=10 * GIB), None, 90, 1250),
        (Wish(1250, memory=10 * GIB), None, 85, 1000),
        (Wish(500, each=250, memory=60 * GIB), [60, 60], 90, 250),
        (Wish(500), [60], 90, 250),
        (Wish(250), None, 90, 250),
    ],
)
def test_a_maximum_of_memory_counts_what_is_in_the_books(
    wish: Wish, has: list[int] | None, most: int, allowance: int
) -> None:
    """As many whole ones as so many GiB permit, if shares record their memory."""
    snapshot = cluster({"g": [gpu(index, gate=True, memory=80 * GIB) for index in range(4)]})
    shares = tuple(GpuShare(uuid(index), 250, memory * GIB) for index, memory in enumerate(has or ()))
    decided = Allocated(1, shares) if has else None
    state = PodState("x", "g", Requested(1, wish), decided, Attached(1, shares) if has else None)
    found = _terms(snapshot, [state], OwnerLimits(memory=Maximum(most * GIB, GROUP)))
    assert found["x"].allowance == allowance


def test_slider_of_a_maximum_of_memory() -> None:
    """The slider ends at as many milli, and so does the maximum that it shows."""
    pods = [pod("x", wants=1, node="a"), pod("y", wants=1, has=[11], node="h")]
    found = _terms(_cluster(), pods, OwnerLimits(memory=Maximum(160 * GIB, GROUP)))
    assert found["x"].pod_limit == PodLimit(2000, 4000, GROUP)
    assert found["y"].pod_limit == PodLimit(2000, 2000, GROUP)


@pytest.mark.parametrize(
    ("wish", "gates", "most", "milli", "whole"),
    [
        (Wish(1, memory=60 * GIB), (True,), 90, 0, 1000),
        (Wish(1, memory=10 * GIB), (True,), 90, 999, 1999),
        (Wish(1, memory=20 * GIB), (True, False), 160, 1500, 2000),
        (Wish(250, each=250, memory=10 * GIB), (True,), 90, 1250, 2250),
        (Wish(1000, each=1000, memory=10 * GIB), (True,), 170, 1000, 2000),
    ],
)
def test_slider_goes_beyond_the_shares_that_a_pod_has(
    wish: Wish, gates: tuple[bool, ...], most: int, milli: int, whole: int
) -> None:
    """It ends with the last that has room, if shares record their memory; another pod of the user has 40 GiB."""
    gpus = [gpu(index, gate=gates[index % len(gates)], memory=80 * GIB) for index in range(4)]
    other = PodState("y", "g", Requested(1, Wish(500)), Allocated(1, (GpuShare(uuid(3), 500),)))
    pods = [PodState("x", "g", Requested(1, wish)), other]
    found = _terms(cluster({"g": gpus}), pods, OwnerLimits(memory=Maximum(most * GIB, GROUP)))
    assert found["x"].pod_limit.milli == milli
    assert found["x"].pod_limit.max == whole


@given(st.integers(1, 90), st.sampled_from([None, 250, 500, 1000]), st.integers(0, 400))
def test_slider_ends_where_the_next_share_has_no_room(memory: int, each: int | None, most: int) -> None:
    """Every amount up to there has room, in the books of the largest GPU, and none above it."""
    wish = Wish(each or 1, each=each, memory=memory * GIB)
    pods = [PodState("x", "g", Requested(1, wish))]
    snapshot = cluster({"g": [gpu(index, gate=True, memory=90 * GIB) for index in range(4)]})
    end = _terms(snapshot, pods, OwnerLimits(memory=Maximum(most * GIB, GROUP)))["x"].pod_limit.milli
    assert end is not None

    def used(milli: int) -> int:
        return sum(90 if piece == 1000 else memory for piece in pieces(milli, each))

    step = each or 1
    assert used(end) <= most < used(end + step)


@pytest.mark.parametrize(("most", "memory"), [(120, [None, None]), (119, [None, 79]), (79, [None, 39]), (39, [39, 0])])
def test_the_panel_is_told_the_memory_that_is_left_where_a_gpu_has_more(most: int, memory: list[int | None]) -> None:
    """Otherwise each change of the owner's other pods would be written to each pod."""
    pods = [pod("x", wants=1, has=[0], node="a"), pod("y", wants=1, node="h")]
    found = _terms(_cluster(), pods, OwnerLimits(memory=Maximum(most * GIB, GROUP)))
    assert [found[uid].pod_limit.memory for uid in "xy"] == [left if left is None else left * GIB for left in memory]


def test_smallest_maximum_bounds_the_others() -> None:
    """GPUs that one pod can't use for want of memory go to the next one."""
    pods = [pod("x", wants=3, has=[], ticket=1, node="h"), pod("y", wants=3, node="a")]
    limits = OwnerLimits(Maximum(3000, USER), {"h100": Maximum(1000, GROUP)})
    found = _terms(_cluster(), pods, limits)
    assert [found[uid].allowance for uid in "xy"] == [1000, 2000]
    assert [found[uid].pod_limit for uid in "xy"] == [PodLimit(1000, 1000, GROUP), PodLimit(3000, 3000, USER)]


def test_shares_of_a_fixed_size_leave_the_rest() -> None:
    """A pod that wishes for whole GPUs only leaves the half to the next one."""
    pods = [pod("x", wants=2, each=1000, has=[], ticket=1, node="h"), pod("y", wants=1, node="a")]
    found = _terms(_cluster(), pods, OwnerLimits(Maximum(1500, USER)))
    assert [found[uid].allowance for uid in "xy"] == [1000, 500]


LAST = {
    "its wish is too large for its node": pod("x", wants=9, ticket=1, has=[], node="a"),
    "no GPU there is of its kind": pod("x", wants=3, ticket=1, has=[], node="a", model=("H100",)),
    "its containers lack the devices": replace(
        pod("x", wants=4, ticket=1, has=[], node="a"), lacks=frozenset(["GPU-0"])
    ),
    "its node is not known": pod("x", wants=1, ticket=1, has=[], node="?"),
    "no node can serve it": new("x", wants=9, ticket=1),
    "it waits for something other than GPUs": new("x", wants=3, ticket=1, blocked=True),
}


@pytest.mark.parametrize("name", LAST)
def test_pod_that_could_use_nothing_more_comes_last(name: str) -> None:
    """It keeps nothing from the pod behind it in line; what is left is its allowance."""
    limits = OwnerLimits(Maximum(3000, USER))
    other = pod("y", wants=3, ticket=2, has=[], node="h")
    snapshot = _cluster()
    for _ in range(2):  # answers of nodes are kept
        found = _terms(snapshot, [LAST[name], other], limits)
        assert [found[uid].allowance for uid in "xy"] == [0, 3000]
    able = _terms(_cluster(), [pod("x", wants=3, ticket=1, has=[], node="a"), other], limits)
    assert [able[uid].allowance for uid in "xy"] == [3000, 0]
    new_one = _terms(_cluster(), [new("x", wants=3, ticket=1), other], limits)
    assert [new_one[uid].allowance for uid in "xy"] == [3000, 0]


def test_grace_of_terms() -> None:
    """More than any of the maxima is tolerated for the grace; the pods hear when it is taken back."""
    pods = [pod("x", wants=2, has=[0, 1], node="a")]
    limits = [
        OwnerLimits(Maximum(1000, USER), grace=600),
        OwnerLimits(models={"a100": Maximum(1000, USER)}, grace=600),
        OwnerLimits(memory=Maximum(40 * GIB, USER), grace=600),
    ]
    for one in limits:
        first = terms(_cluster(), pods, one, stored=None, now=100)
        assert (first.grace.since, first.pods["x"].allowance) == (100, 2000)
        assert first.pods["x"].pod_limit.give_back_at == 700
        after = terms(_cluster(), pods, one, stored=100, now=700)
        assert after.pods["x"].allowance == 1000
    within = terms(_cluster(), pods, OwnerLimits(Maximum(2000, USER), grace=600), stored=100, now=700)
    assert within.grace.since is None
    assert within.pods["x"].pod_limit == PodLimit(2000, 2000, USER)
    assert OwnerLimits().source == UNSET
