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
    index = LimitIndex(limits)
    assert index.effective(owner) == effective(owner, limits)
    assert index.effective(owner) is index.effective(owner)


def test_index_gives_few_limits() -> None:
    """Only the limits that count are given, and owners for whom the same ones count share one result."""
    limits = [Limit(Subject(SubjectKind.USER, f"user{i}"), max=i) for i in range(100)]
    limits += [Limit(Subject(SubjectKind.DEFAULT), max=7), Limit(None, max=0)]
    index = LimitIndex(limits)
    assert index.of(Owner("User", "user5", "jhub")) == [limits[5], limits[100]]
    assert index.effective(Owner("User", "new", "jhub")) is index.effective(Owner("User", "other", "jhub"))
