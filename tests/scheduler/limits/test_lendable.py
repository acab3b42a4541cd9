"""Pods whose whole GPUs may have guests: a limit says it, or else they do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu_scheduler.rules.limits.lendable import lendable
from tests.builders import pod


@pytest.mark.parametrize("limit", [None, False, True])
@pytest.mark.parametrize("own", [None, False, True])
@pytest.mark.parametrize("lends", [False, True])
def test_limit_decides_before_the_pod(lends: bool, own: bool | None, limit: bool | None) -> None:
    """Nothing is lent where the scheduler does not lend at all."""
    asking = pod("a", wants=1)
    assert asking.requested
    asking = replace(asking, requested=replace(asking.requested, wish=replace(asking.requested.wish, lendable=own)))
    found = lendable(asking, lends, limit)
    assert found.requested
    assert found.requested.wish.lent is (lends and (own is True if limit is None else limit))
    assert lendable(found, lends, limit) is found
    told = bool(own) if lends and limit is None else None
    assert (asking.lendable, found.lendable) == (None, told), "its panel offers what its wish can change"
    undecided = lendable(lendable(asking, lends, not own), lends, None)
    assert undecided.requested
    assert undecided.requested.wish.lent is (lends and own is True), "what the pod says is kept beside the decision"


def test_pod_without_a_wish_stays_as_it_is() -> None:
    """It has no GPUs to lend; its panel may offer it."""
    asking = replace(pod("a"), requested=None)
    assert lendable(asking, lends=True, limit=True) is asking
    assert lendable(asking, lends=True, limit=None).lendable is False
