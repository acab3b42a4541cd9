"""Properties of the fair line for new pods, whose wishes only help as a whole, on the real decisions.

Such wishes can't have all properties of those that are served one GPU after another (`test_fairness`): one GPU more may
let another wish fit first, and take its place from a third. What follows holds all the same. How long a wish waits at
most is in `test_fair_line`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from tests.builders import NODE, apply, cluster, new, pod

from .test_fairness import ALL, User, divide, owner

pytestmark = pytest.mark.uncounted(after=25)


def started(users: Sequence[User], gpus: int) -> list[bool]:
    """Return which users' new pods start where so many GPUs are free, asked about in turn as kube-scheduler does."""
    others = pod("others", wants=ALL - gpus, has=range(gpus, ALL))
    snapshot = cluster({NODE: ALL}, [others])
    for number, user in enumerate(users):
        wish = new(str(number), user.wants, ticket=number + 1, on=NODE, offered=[NODE], priority=user.priority)
        snapshot.put_pod(replace(wish, owner=owner(number), created=float(number)))
    waiting = set(range(len(users)))
    progress = True
    while progress:
        progress = False
        for number in sorted(waiting, reverse=True):  # not in the order of the line
            divide(snapshot, users)
            state = snapshot.pod(str(number))
            assert state is not None
            if filter_nodes(snapshot, state, (NODE,)).fitting:
                found = allocate(snapshot, state, NODE)
                assert isinstance(found, Allocated)
                snapshot.put_pod(replace(state, node=NODE, allocated=found))
                apply(snapshot, decide(snapshot, NODE))
                waiting.discard(number)
                progress = True
    return [number not in waiting for number in range(len(users))]


GPUS = st.integers(0, 12)
users = st.lists(
    st.builds(User, st.integers(1, 12), st.integers(1, 5), priority=st.integers(0, 2)), min_size=1, max_size=5
)
guaranteed = st.lists(st.builds(User, st.integers(1, 12), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=5)


def left(users: Sequence[User], found: Sequence[bool], gpus: int) -> int:
    """Return how many GPUs are left over."""
    return gpus - sum(user.wants for user, served in zip(users, found, strict=True) if served)


@given(users, GPUS)
def test_pareto(users: list[User], gpus: int) -> None:
    """The rest is too small for each wish that waits."""
    found = started(users, gpus)
    rest = left(users, found, gpus)
    assert rest >= 0
    assert all(served or user.wants > rest for user, served in zip(users, found, strict=True))


@given(users, GPUS)
def test_order_is_by_priority_and_then_by_the_share(users: list[User], gpus: int) -> None:
    """No wish is passed by for a lower priority, or for one of the same priority that is larger for its weight.

    So with equal weights no user envies another one: what that one has is not more than what this one asked for.
    """
    found = started(users, gpus)
    rest = left(users, found, gpus)
    for user, served in zip(users, found, strict=True):
        for other, theirs in zip(users, found, strict=True):
            if not served and theirs and user.wants <= rest + other.wants:
                assert user.priority <= other.priority
                if user.priority == other.priority:
                    assert other.wants * user.weight <= user.wants * other.weight


@given(users, GPUS, st.integers(0, 4), st.integers(1, 12))
def test_strategy_proof(users: list[User], gpus: int, liar: int, says: int) -> None:
    """A user who asks for more than is useful never starts where the truth would not have; less does not help."""
    liar %= len(users)
    lying = [replace(user, wants=max(says, user.wants)) if at == liar else user for at, user in enumerate(users)]
    assert started(users, gpus)[liar] or not started(lying, gpus)[liar]


@example([User(2, 1, 2), User(2, 2, 1)], 3)  # the heavier one is below its guarantee too, which its wish exceeds
@given(guaranteed, GPUS)
def test_guarantees_are_kept(users: list[User], gpus: int) -> None:
    """If there are enough GPUs for all guarantees, each wish starts that its user's guarantee covers."""
    if sum(user.guaranteed for user in users) <= gpus:
        found = started(users, gpus)
        assert all(served for user, served in zip(users, found, strict=True) if user.wants <= user.guaranteed)
