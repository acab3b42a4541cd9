"""The index of limits: for each owner it finds the limits that count, and tells for whom a change may matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.effective import effective
from jupyter_gpu.model.limits.index import EVERYONE, LimitIndex, touches
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner

from .strategies import limit_sets, limits, owners

ANN, ANNS = Owner("User", "ann", "jhub"), Owner("Namespace", "ann")


@given(found=limit_sets, owner=owners)
def test_index_finds_all_limits_that_count(found: list[Limit], owner: Owner) -> None:
    """The effective limits are the same as those computed from all limits."""
    index = LimitIndex(found)
    assert index.effective(owner) == effective(owner, found)
    assert list(index) == sorted(found, key=lambda limit: limit.object_name)
    assert len(index) == len(found)


@given(found=limit_sets, after=limits, number=st.integers(0, 8), owner=owners)
def test_change_touches_all_owners_whose_limits_change(
    found: list[Limit], after: Limit, number: int, owner: Owner
) -> None:
    """An owner that a change does not touch has the same effective limits as before; also where a limit goes."""
    index = LimitIndex(found)
    before = index.effective(owner)
    keys = index.put(after)
    changed = index.effective(owner)
    assert changed == before or touches(keys, owner)
    name = found[number].object_name if number < len(found) else after.object_name
    keys = index.remove(name)
    assert index.effective(owner) == changed or touches(keys, owner)


def test_keys_name_the_owners() -> None:
    """A user's limit is about users of that name, a namespace's about it, a group's about its members."""
    index = LimitIndex()
    assert index.put(Limit(Subject(SubjectKind.USER, "ann"), 1000, object_name="u")) == {("User", "ann")}
    assert index.put(Limit(Subject(SubjectKind.NAMESPACE, "ann"), 1000, object_name="n")) == {("Namespace", "ann")}
    group = Limit(Subject(SubjectKind.GROUP, "ml"), 1000, members=frozenset({"bob", "eve"}), object_name="g")
    assert index.put(group) == {("User", "bob"), ("User", "eve")}
    assert touches({("User", "ann")}, ANN)
    assert not touches({("User", "ann")}, ANNS)
    assert touches({EVERYONE}, ANNS)


def test_put_again_touches_no_one() -> None:
    """A limit that is as it was is no change; one that is not known can be removed."""
    index, default = LimitIndex(), Limit(Subject(SubjectKind.DEFAULT), 1000, object_name="default")
    assert index.put(default) == {EVERYONE}
    assert index.put(default) == set()
    assert index.remove("default") == {EVERYONE}
    assert index.remove("default") == set()
    assert index.of(ANN) == []


def test_limit_about_no_one_touches_no_one() -> None:
    """A limit whose subject can't be read is kept, and counts for no owner."""
    index = LimitIndex()
    assert index.put(Limit(None, 0, object_name="x")) == set()
    assert len(index) == 1
    assert index.of(ANN) == []


def test_index_gives_few_limits() -> None:
    """Only the limits that count are given, and owners for whom the same ones count share one result."""
    limits = [Limit(Subject(SubjectKind.USER, f"user{i}"), i, object_name=f"u{i}") for i in range(100)]
    default = Limit(Subject(SubjectKind.DEFAULT), 7, object_name="default")
    index = LimitIndex([*limits, default])
    assert index.of(Owner("User", "user5", "jhub")) == [limits[5], default]
    assert index.effective(Owner("User", "new", "jhub")) is index.effective(Owner("User", "other", "jhub"))
