"""The index of limits."""

from __future__ import annotations

from hypothesis import given

from jupyter_gpu.model.limits.effective import effective
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner

from .strategies import limit_sets, owners


@given(owners, limit_sets)
def test_index_finds_what_counts(owner: Owner, limits: list[Limit]) -> None:
    """The limits of the index lead to what all limits lead to."""
    assert LimitIndex(limits).effective(owner) == effective(owner, limits)


def test_index_gives_few_limits() -> None:
    """The limits of other owners are not looked at, nor those that are about no one."""
    limits = [Limit(Subject(SubjectKind.USER, f"user{i}"), max=i) for i in range(100)]
    limits += [Limit(Subject(SubjectKind.DEFAULT), max=7), Limit(None, max=0)]
    assert LimitIndex(limits).of(Owner("User", "user5", "jhub")) == [limits[100], limits[5]]
