"""The shares that the arbiter of a node serves, whatever pods have in their hands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.agent.sharing.rules.served import TakenShare, served
from jupyter_gpu_node.shares.rules.apportionment import memory_limit

GPUS = ("GPU-0", "GPU-1")
PODS = ("a", "b", "c")
GIB = 2**30
millis = st.sampled_from([1, 250, 500, 999, 1000])
amounts = st.dictionaries(st.sampled_from(GPUS), millis)


def holding(
    has: dict[str, int] | None = None,
    drains: dict[str, int] | None = None,
    opened: tuple[str, ...] = (),
    order: str = "",
) -> Holding:
    """Return the holding of one pod."""
    return Holding((order, ""), has or {}, drains or {}, True, frozenset(opened))


holdings = st.builds(
    lambda order, has, drains, opened: Holding((order, ""), has, drains, True, frozenset(opened)),
    st.text("12", max_size=1),
    amounts,
    amounts,
    st.sets(st.sampled_from(GPUS)),
)


@given(
    st.dictionaries(st.sampled_from(PODS), holdings), st.sets(st.tuples(st.sampled_from(GPUS), st.sampled_from(PODS)))
)
def test_served_shares_never_exceed_a_gpu(pods: dict[str, Holding], taken: set[tuple[str, str]]) -> None:
    """Whatever is recorded; no pod gets more than it has, or a share that was taken from it."""
    for gpu, shares in served(pods, taken).items():
        assert sum(shares.values()) <= 1000
        for pod, milli in shares.items():
            assert (gpu, pod) not in taken
            assert 1 <= milli <= pods[pod].claimed_milli(gpu)


@given(st.dictionaries(st.sampled_from(PODS), holdings))
def test_claims_that_fit_are_served_wholly(pods: dict[str, Holding]) -> None:
    """Rules see to it that they fit: no pod waits without need."""
    found = served(pods)
    for gpu in GPUS:
        claims = {
            pod: one.has.get(gpu) or one.drains[gpu] for pod, one in pods.items() if gpu in one.has or gpu in one.drains
        }
        if sum(claims.values()) <= 1000:
            assert found.get(gpu, {}) == claims


def test_draining_share_keeps_its_turns() -> None:
    """Beside the pod that has the rest; a share whose size is unknown gets what is left."""
    pods = {"a": holding({"GPU-0": 500}, opened=("GPU-0",)), "b": holding(drains={"GPU-0": 250})}
    assert served(pods) == {"GPU-0": {"a": 500, "b": 250}}
    pods["b"] = holding(drains={"GPU-0": 1000})
    assert served(pods) == {"GPU-0": {"a": 500, "b": 500}}
    pods["a"] = holding({"GPU-0": 1000}, opened=("GPU-0",))
    assert served(pods) == {"GPU-0": {"a": 1000}}


def test_rules_in_force_come_before_records() -> None:
    """A record of an earlier time is no right; of two records the older pod's counts."""
    pods = {"a": holding({"GPU-0": 1000}, order="1"), "b": holding({"GPU-0": 500}, opened=("GPU-0",), order="2")}
    assert served(pods) == {"GPU-0": {"b": 500}}
    pods["b"] = holding({"GPU-0": 500}, order="2")
    assert served(pods) == {"GPU-0": {"a": 1000}}


@pytest.mark.parametrize(
    ("generation", "milli", "allocated", "stands"),
    [
        (3, 250, Allocated(3, (GpuShare("GPU-0", 250),)), True),
        (3, 250, Allocated(4, (GpuShare("GPU-0", 250),)), False),
        (3, 250, Allocated(3, (GpuShare("GPU-0", 500),)), False),
        (3, 250, Allocated(3, (GpuShare("GPU-1", 250),)), False),
        (3, 250, Allocated(3), False),
        (3, 250, None, False),
        (3, None, Allocated(3, (GpuShare("GPU-0", 500),)), True),
        (None, None, Allocated(9, (GpuShare("GPU-0", 500),)), True),
    ],
)
def test_revoked_share_comes_back_by_a_new_decision(
    generation: int | None, milli: int | None, allocated: Allocated | None, stands: bool
) -> None:
    """Another wish, another amount, or none of that GPU any more."""
    assert TakenShare("It was late.", generation, milli).is_in_force("GPU-0", allocated) == stands


def test_recorded_memory_is_the_limit() -> None:
    """As the books say, whatever its part; a whole GPU has all of it, if it leaves none to a guest."""
    for parted in (True, False):
        assert memory_limit(250, 4 * GIB, 80 * GIB, parted=parted, recorded=40 * GIB) == 40 * GIB
        assert memory_limit(1000, None, 80 * GIB, parted=parted, recorded=60 * GIB) == 60 * GIB
        assert memory_limit(1000, 40 * GIB, 80 * GIB, parted=parted) is None


@pytest.mark.parametrize(
    ("milli", "asked", "memory", "parted", "expected"),
    [
        (250, None, 80 * GIB, False, None),
        (250, 4 * GIB, 80 * GIB, False, 4 * GIB),
        (250, None, 80 * GIB, True, 20 * GIB),
        (250, 4 * GIB, 80 * GIB, True, 4 * GIB),
        (250, 40 * GIB, 80 * GIB, True, 20 * GIB),
        (250, 40 * GIB, None, True, 40 * GIB),
        (1000, 4 * GIB, 80 * GIB, True, None),
    ],
)
def test_memory_limit_of_a_share(
    milli: int, asked: int | None, memory: int | None, parted: bool, expected: int | None
) -> None:
    """The limit is what its user asked for, and at most its part if the administrator says so; a whole GPU has none."""
    assert memory_limit(milli, asked, memory, parted=parted) == expected
