"""Any valid limit, for hypothesis: few names, so that limits meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import MAX_SECONDS, UNLIMITED
from jupyter_gpu.model.limits.changes import LimitChange
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.pod_limit import MAX_RECLAIMS, LimitWithWorkers, PodLimit, Reclaim
from jupyter_gpu.model.limits.source import MAX_TIME, LimitPart, Source, SourceKind
from jupyter_gpu.model.limits.times import HOUR, MINUTES, Budget, BudgetWindow, Hours
from jupyter_gpu.model.quantity import MAX_BYTES, MAX_MILLI

from .. import strategies as any_

ODD_NAMES = (
    "<img onerror=alert(1)>",
    "=cmd()",
    "+1",
    "-1",
    "@x",
    "x" * 255,
    "a/b",
    "ünï",
    "--",
    "Ann",
    "ann",
    '"',
    ",;\\",
)
"""Names that people or attackers give themselves."""

users = st.sampled_from(["ann", "bob", "eve"])
hubs = st.sampled_from(["", "jhub", "lab"])
odd_names = st.sampled_from(ODD_NAMES) | any_.names(255)
amounts = st.just(UNLIMITED) | st.integers(0, 8).map(lambda n: n * 500) | st.integers(0, MAX_MILLI)
budgets = st.builds(
    Budget,
    st.just(UNLIMITED) | st.integers(0, 5).map(lambda n: n * HOUR) | st.integers(0, 10**12),
    st.sampled_from(BudgetWindow),
)
hours = st.builds(
    Hours,
    max=amounts,
    days=st.frozensets(st.integers(0, 6), min_size=1),
    start=st.integers(0, MINUTES - 1),
    end=st.integers(0, MINUTES),
).filter(lambda hours: hours.start != hours.end)
sources = st.builds(
    Source,
    kind=st.sampled_from(SourceKind),
    name=st.just("") | odd_names,
    by=st.just("") | odd_names,
    at=st.none() | st.integers(0, MAX_TIME),
    object=st.sampled_from(["", "user-ann-0123"]),
    part=st.none() | st.sampled_from(LimitPart),
    unreadable=st.booleans(),
)


@st.composite
def _pod_limits(draw: st.DrawFn) -> PodLimit:
    most = draw(st.none() | st.integers(0, MAX_MILLI))
    milli = None if most is None else draw(st.integers(0, MAX_MILLI))
    times = st.integers(0, MAX_TIME).map(float)
    memory = st.none() | st.integers(0, MAX_BYTES)
    reclaims = st.lists(st.builds(Reclaim, st.integers(1, MAX_MILLI), times), max_size=MAX_RECLAIMS).map(tuple)
    together = st.builds(LimitWithWorkers, st.integers(0, MAX_MILLI), st.integers(0, MAX_MILLI), sources, reclaims)
    together |= st.builds(LimitWithWorkers, st.none(), st.none(), sources, reclaims)
    return PodLimit(
        milli, most, draw(sources), draw(st.none() | times), draw(reclaims), draw(memory), draw(st.none() | together)
    )


pod_limits = _pod_limits()


def subjects(names: st.SearchStrategy[str], of_hubs: st.SearchStrategy[str] = hubs) -> st.SearchStrategy[Subject]:
    """Subjects with names drawn from ``names``."""
    kinds = {
        SubjectKind.USER: st.builds(Subject, st.just(SubjectKind.USER), names, of_hubs),
        SubjectKind.GROUP: st.builds(Subject, st.just(SubjectKind.GROUP), names, of_hubs),
        SubjectKind.NAMESPACE: st.builds(Subject, st.just(SubjectKind.NAMESPACE), names),
    }
    return st.one_of(st.just(Subject(SubjectKind.DEFAULT)), st.just(Subject(SubjectKind.CAP)), *kinds.values())


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "max": amounts,
    "guaranteed": st.integers(0, MAX_MILLI),
    "weight": st.integers(1, 1000),
    "priority_max": st.integers(0, 9),
    "models": st.dictionaries(st.sampled_from(["A100", "a100", "H100", "A100 SXM4"]), amounts, max_size=2),
    "memory": st.just(UNLIMITED) | st.integers(0, MAX_BYTES),
    "idle_timeout": st.just(UNLIMITED) | st.integers(60, MAX_SECONDS),
    "budget": budgets,
    "hours": st.lists(hours, max_size=2).map(tuple),
    "remote": st.booleans(),
    "lendable": st.booleans(),
    "grace": st.integers(0, MAX_SECONDS),
    "changed": st.builds(LimitChange, odd_names, st.integers(0, MAX_TIME)),
}


@st.composite
def limits_of(draw: st.DrawFn, of_subjects: st.SearchStrategy[Subject]) -> Limit:
    """One limit, as `read_limit` may give it."""
    subject = draw(of_subjects)
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True))
    values: dict[str, Any] = {name: draw(FIELDS[name]) for name in names}
    if isinstance(most := values.get("max"), int) and values.get("guaranteed", 0) > most:
        values["guaranteed"] = most
    if subject.kind is SubjectKind.GROUP:
        values["members"] = draw(st.sampled_from([{"ann"}, {"bob"}, {"ann", "bob"}, set()]).map(frozenset))
        values["managed_by"] = draw(st.sampled_from(["", "Helm", HUB_PROPERTIES]))
    return Limit(subject, **values, object_name=f"limit-{draw(st.integers(0, 1000))}")


limits = limits_of(subjects(st.sampled_from(["ann", "bob", "ml", "vision"])))
"""One limit of few names."""
limit_sets = st.lists(limits, max_size=6, unique_by=lambda limit: limit.object_name)
owners = st.builds(Owner, st.just("User"), users, st.sampled_from(["jhub", "lab"])) | st.builds(
    Owner, st.just("Namespace"), users
)
