"""Status of limits: sums of use by limit, and what of a status must be written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.conflicts import CONFLICTING, UNREADABLE, LimitCondition
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.limit_status import Use, UseByLimit, about, status_changes

ANN, BOB, JOBS = Owner("User", "ann", "hub"), Owner("User", "bob", "hub"), Owner("Namespace", "jobs")
LIMITS = (
    Limit(Subject(SubjectKind.USER, "ann"), object_name="ann"),
    Limit(Subject(SubjectKind.GROUP, "ml"), members=frozenset({"ann", "bob"}), object_name="ml"),
    Limit(Subject(SubjectKind.NAMESPACE, "jobs"), object_name="jobs"),
    Limit(Subject(SubjectKind.DEFAULT), object_name="default"),
    Limit(Subject(SubjectKind.CAP), object_name="cap"),
    Limit(None, object_name="unreadable"),
)
CONFLICT = LimitCondition(CONFLICTING, "SameSubject", "Two.")
BAD = LimitCondition(UNREADABLE, "InvalidField", "Bad.")
NOON = 1777896000


def status(use: Use, *found: LimitCondition, of: Any = None, generation: int = 1, now: float = NOON) -> dict[str, Any]:
    """Return a status with what must be written in it."""
    before = {} if of is None else of
    return {**before, **status_changes(before, use, found, generation=generation, now=now)}


def test_default_is_about_owners_without_another_limit() -> None:
    """The cap is about all, the default about those whom no other limit names."""
    limits = LimitIndex(LIMITS)
    assert set(about(limits, ANN)) == {"ann", "ml", "cap"}
    assert set(about(limits, JOBS)) == {"jobs", "cap"}
    assert set(about(limits, Owner("User", "eve", "hub"))) == {"default", "cap"}


def test_use_of_members_is_added_up() -> None:
    """A group's limit shows what its members have together; what is given back is subtracted."""
    sums = UseByLimit(LimitIndex(LIMITS))
    assert set(sums.put(ANN, Use(2000, 500))) == {"ann", "ml", "cap"}
    assert sums.put(ANN, Use(2000, 500)) == ()
    sums.put(BOB, Use(1000, 0))
    assert (sums.of("ml"), sums.of("ann"), sums.of("default")) == (Use(3000, 500), Use(2000, 500), Use())
    assert set(sums.put(ANN, Use())) == {"ann", "ml", "cap"}
    assert (sums.of("ml"), sums.of("ann")) == (Use(1000, 0), Use())


def test_owner_that_joins_a_group_counts_for_it() -> None:
    """The use moves from the default to the group, though it stays the same."""
    limits = LimitIndex(LIMITS)
    sums, eve = UseByLimit(limits), Owner("User", "eve", "hub")
    sums.put(eve, Use(1000))
    limits.put(Limit(Subject(SubjectKind.GROUP, "ml"), members=frozenset({"eve"}), object_name="ml"))
    assert set(sums.put(eve, Use(1000))) == {"default", "ml"}
    assert (sums.of("default"), sums.of("ml"), sums.of("cap")) == (Use(), Use(1000), Use(1000))


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB, JOBS]), st.integers(0, 9), st.integers(0, 9))))
def test_sums_are_those_of_the_last_uses(steps: list[tuple[Owner, int, int]]) -> None:
    """Whatever the order of changes, each sum is that over the owners; a limit whose sum differs was reported."""
    limits = LimitIndex(LIMITS)
    sums, now = UseByLimit(limits), dict[Owner, Use]()
    for owner, used, waiting in steps:
        before = {limit.object_name: sums.of(limit.object_name) for limit in LIMITS}
        told = sums.put(owner, Use(used, waiting))
        now[owner] = Use(used, waiting)
        assert {name for name, use in before.items() if sums.of(name) != use} == set(told)
    for limit in LIMITS:
        mine = [use for owner, use in now.items() if limit.object_name in about(limits, owner)]
        assert sums.of(limit.object_name) == Use(sum(use.used for use in mine), sum(use.waiting for use in mine))


def test_first_status_has_all_fields() -> None:
    """Amounts are quantities; a condition says since when, and of which version of the limit."""
    assert status(Use(2000, 500), CONFLICT, generation=3) == {
        "used": "2",
        "waiting": "500m",
        "conditions": [
            {
                "type": "Conflicting",
                "status": "True",
                "reason": "SameSubject",
                "message": "Two.",
                "lastTransitionTime": "2026-05-04T12:00:00Z",
                "observedGeneration": 3,
            }
        ],
    }
    assert status(Use()) == {"used": "0", "waiting": "0"}


def test_members_are_never_written() -> None:
    """The patch names only fields of the scheduler."""
    assert status_changes({"members": ["ann"]}, Use(1), (), generation=1, now=NOON).keys() == {"used", "waiting"}


def test_nothing_is_written_twice() -> None:
    """A status as it should be needs no write, whatever the time; only fields that differ are written."""
    first = status(Use(1000), CONFLICT)
    assert status_changes(first, Use(1000), (CONFLICT,), generation=1, now=NOON + 60) == {}
    assert status_changes(first, Use(2000), (CONFLICT,), generation=1, now=NOON + 60) == {"used": "2"}


def test_condition_that_goes_on_keeps_its_time() -> None:
    """Another sentence is no transition; a condition of another type is, and one that ended is gone."""
    first = status(Use(), CONFLICT)
    other = LimitCondition(CONFLICTING, "SameSubject", "Three.")
    after = status(Use(), other, BAD, of=first, now=NOON + 60)["conditions"]
    times = [(one["type"], one["lastTransitionTime"]) for one in after]
    assert times == [("Conflicting", "2026-05-04T12:00:00Z"), ("Unreadable", "2026-05-04T12:01:00Z")]
    assert status_changes(first, Use(), (), generation=1, now=NOON) == {"conditions": []}


def test_conditions_of_others_stay() -> None:
    """A type that is not the scheduler's is somebody else's; what is no condition is replaced."""
    other = {"type": "Reviewed", "status": "True"}
    before = {"used": "0", "waiting": "0", "conditions": [other]}
    assert status_changes(before, Use(), (), generation=1, now=NOON) == {}
    assert status(Use(), BAD, of=before)["conditions"][0] == other
    assert status(Use(), of={**before, "conditions": 5})["conditions"] == []
