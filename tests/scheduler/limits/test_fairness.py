"""Properties of the fair line, on the real decisions: users who ask for whole GPUs and get them one by one.

The names are those of the literature on fair division: Parkes, Procaccia, Shah, "Beyond Dominant Resource Fairness"
(2012). What holds for wishes of new pods, which only help as a whole, is in `test_whole_wishes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import NODE, apply, pod, world

pytestmark = pytest.mark.uncounted(after=25)

ALL = 14
"""GPUs of the node: every wish could be served if all were free."""


@dataclass(frozen=True)
class User:
    """One user with one pod, in GPUs."""

    wants: int
    weight: int = 1
    guaranteed: int = 0
    most: int | None = None
    priority: int = 0

    @property
    def useful(self) -> int:
        """GPUs that the user wants and may have."""
        return self.wants if self.most is None else min(self.wants, self.most)


def owner(number: int) -> Owner:
    """Return the owner of one user's pod."""
    return Owner("User", f"user-{number}", "hub")


def divide(snapshot: ClusterSnapshot, users: Sequence[User]) -> None:
    """Give the pods of all users their terms, as the process does after each change."""
    for number, user in enumerate(users):
        pods = snapshot.owned(owner(number))
        limits = OwnerLimits(
            gpus=None if user.most is None else Maximum(user.most * 1000),
            guaranteed=user.guaranteed * 1000,
            weight=user.weight,
        )
        (found,) = terms(snapshot, pods, limits, stored=None, now=0, fair=True).pods.values()
        snapshot.put_pod(found.applied(pods[0]))


def shared(users: Sequence[User], gpus: int) -> list[int]:
    """Return how many GPUs each user gets of so many that are free, from decisions until nothing changes."""
    others = pod("others", wants=ALL - gpus, has=range(gpus, ALL))
    snapshot = world(ALL, [others])
    for number, user in enumerate(users):
        wish = Wish(user.wants * 1000, priority=user.priority)
        snapshot.put_pod(PodState(str(number), NODE, Requested(1, wish), owner=owner(number), created=number))
    for _ in range(5):
        divide(snapshot, users)
        changes = decide(snapshot, NODE)
        apply(snapshot, changes)
        assert decide(snapshot, NODE) == (), "deciding again changed something"
        if not changes:
            break
    else:
        raise AssertionError("it does not come to rest")
    found_pods = [snapshot.pod(str(number)) for number in range(len(users))]
    return [pod.has // 1000 for pod in found_pods if pod]


gpus = st.integers(0, 12)
equals = st.lists(st.builds(User, st.integers(0, 12)), min_size=1, max_size=5)
weighted = st.lists(st.builds(User, st.integers(0, 12), st.integers(1, 5)), min_size=1, max_size=5)
limited = st.lists(
    st.builds(User, st.integers(0, 12), st.integers(1, 5), most=st.none() | st.integers(0, 6)), min_size=1, max_size=5
)
guaranteed = st.lists(st.builds(User, st.integers(0, 12), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=5)


@given(limited, gpus)
def test_pareto(users: list[User], gpus: int) -> None:
    """No GPU is left over that a user wants and may have; no user gets more than that."""
    found = shared(users, gpus)
    assert sum(found) == min(gpus, sum(user.useful for user in users))
    assert all(got <= user.useful for got, user in zip(found, users, strict=True))


@example([User(2), User(2), User(2, weight=2)], 2)  # by what they have, the heavier one would get nothing
@given(limited, gpus)
def test_sharing_incentive(users: list[User], gpus: int) -> None:
    """Each gets at least the whole part of the share by weight, or all that is wanted."""
    found, weight = shared(users, gpus), sum(user.weight for user in users)
    for got, user in zip(found, users, strict=True):
        assert got >= min(user.useful, gpus * user.weight // weight)


@given(equals, gpus)
def test_envy_free_up_to_one_gpu(users: list[User], gpus: int) -> None:
    """With equal weights, another user has at most one GPU more than one who wants more."""
    found = shared(users, gpus)
    for got, user in zip(found, users, strict=True):
        assert all(got >= min(user.wants, other - 1) for other in found)


@given(weighted, gpus, st.integers(0, 4), st.integers(0, 12))
def test_strategy_proof(users: list[User], gpus: int, liar: int, says: int) -> None:
    """A user who asks for more or less than is useful never gets more that is useful."""
    liar %= len(users)
    lying = [replace(user, wants=says) if number == liar else user for number, user in enumerate(users)]
    assert min(shared(lying, gpus)[liar], users[liar].wants) <= shared(users, gpus)[liar]


@given(weighted, gpus)
def test_resource_monotone(users: list[User], gpus: int) -> None:
    """One GPU more takes none from a user."""
    pairs = zip(shared(users, gpus), shared(users, gpus + 1), strict=True)
    assert all(before <= after for before, after in pairs)


@given(weighted, gpus)
def test_population_monotone(users: list[User], gpus: int) -> None:
    """One user less takes none from the others."""
    pairs = zip(shared(users, gpus), shared(users[:-1], gpus), strict=False)
    assert all(before <= after for before, after in pairs)


@given(guaranteed, gpus)
def test_guarantees_are_kept(users: list[User], gpus: int) -> None:
    """If there are enough GPUs for all guarantees, each user gets what is guaranteed and wanted."""
    found = shared(users, gpus)
    if sum(min(user.guaranteed, user.wants) for user in users) <= gpus:
        assert all(got >= min(user.guaranteed, user.wants) for got, user in zip(found, users, strict=True))


@given(st.lists(st.builds(User, st.integers(0, 6), priority=st.integers(0, 2)), min_size=1, max_size=5), gpus)
def test_higher_priority_comes_first(users: list[User], gpus: int) -> None:
    """A user gets nothing while one of a higher priority lacks something."""
    found = shared(users, gpus)
    for got, user in zip(found, users, strict=True):
        before = zip(found, users, strict=True)
        assert not got or all(their == one.wants for their, one in before if one.priority > user.priority)
