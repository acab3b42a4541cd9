"""The one table of users, groups, the default and the cap."""

from __future__ import annotations

import pytest

from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_hub.rules import limit_rows, people, subjects, usage
from jupyter_gpu_hub.rules.groups import Group
from jupyter_gpu_hub.rules.known import KnownLimit, find
from jupyter_gpu_hub.rules.paging import PageQuery, page
from jupyter_gpu_hub.rules.subjects import SubjectRow

from .builders import ANN, HUB, ML, known, mirrored, pod

GROUPS = {"ml": Group("ml", frozenset({"ann", "bob"}))}


def table(*limits: KnownLimit, groups: dict[str, Group] = GROUPS, shares: int = 1000) -> list[SubjectRow]:
    """Return the rows of a hub with ann, who has a pod, and bob."""
    index = LimitIndex([item.limit for item in limits])
    use = usage.read_pod(pod(shares={"g": shares}, wish=3000))
    assert use
    users = [
        people.row(Owner("User", name, HUB), index, pods, known=True, accounts={})
        for name, pods in (("ann", [use]), ("bob", []))
    ]
    written = limit_rows.rows(limits, groups.values(), HUB)
    others = subjects.rows(written, groups, HUB, [row for row in users if row.pods])
    return [*others, *(subjects.user_row(row, HUB, written) for row in users)]


def of(rows: list[SubjectRow], kind: str, name: str = "", hub: str = "") -> SubjectRow:
    """Return the row of a subject."""
    (row,) = [row for row in rows if row.subject == Subject(SubjectKind(kind), name, hub)]
    return row


def test_everybody_has_a_row_in_order() -> None:
    """The default and the cap come first, and are there without a limit; a group of the hub as well."""
    rows = table()
    assert [(row.subject.kind, row.name) for row in rows] == [
        ("Default", "Default"),
        ("Cap", "Cap"),
        ("Group", "ml"),
        ("User", "ann"),
        ("User", "bob"),
    ]
    body = of(rows, "Default").to_json()
    assert (body["limit"], body["own"], body["used"], body["changed"]) == (None, None, None, None)


def test_group_has_the_use_of_its_members() -> None:
    """Each user counts once for each group, and the row has only the number of members."""
    row = of(table(known(ML, name="g", max=4)), "Group", "ml", HUB).to_json()
    assert (row["used"], row["waiting"], row["idle"], row["members"]) == (1000, 2000, 0, 2)
    assert (row["limit"]["value"], row["limit"]["sentence"]) == ("4", "set for group ml")


def test_user_has_the_effective_limit_and_the_own_object() -> None:
    """The value that holds may come from a group; an edit changes the user's own limit."""
    group = known(ML, name="g", max=4, members=["ann", "bob"])
    rows = table(group, known(ANN, name="u", guaranteed=1))
    ann = of(rows, "User", "ann", HUB).to_json()
    assert (ann["limit"]["value"], ann["limit"]["source"]["kind"], ann["guaranteed"]["value"]) == ("4", "Group", "1")
    own = {"object": "u", "version": "uid-u-1", "fields": {"guaranteed": "1"}, "managedBy": None, "mirrored": False}
    assert ann["own"] == own
    assert of(rows, "User", "bob", HUB).to_json()["own"] is None


def test_written_limit_of_a_group_counts_before_its_properties() -> None:
    """Field by field; where nothing is written, the properties are shown, and an edit writes beside them."""
    copy = mirrored(name="p", max=1, guaranteed=1)
    row = of(table(copy, known(ML, name="w", max=4)), "Group", "ml", HUB)
    assert row.limit
    assert row.guaranteed
    assert (row.limit.value, row.guaranteed.value, row.to_json()["own"]["mirrored"]) == (4000, 1000, False)
    alone = of(table(copy), "Group", "ml", HUB).to_json()
    assert (alone["limit"]["value"], alone["own"]["mirrored"]) == ("1", True)


def test_first_limit_is_the_one_that_an_edit_changes() -> None:
    """Several limits for one subject give the same row in any order: the one that the writer chooses."""
    limits = [known(ANN, name="b", label="Helm"), known(ANN, name="c"), known(ANN, name="a", label="Argo CD")]
    chosen = find(Subject(SubjectKind.USER, "ann", HUB), limits)
    assert chosen
    for order in (limits, limits[::-1]):
        row = of(table(*order), "User", "ann", HUB).to_json()
        assert row["own"]["object"] == chosen.name == "c"
        assert row["notes"]


def test_other_subjects_with_a_limit_are_listed() -> None:
    """Users of every hub and of another one, namespaces, and a group that this hub does not know."""
    rows = table(
        known({"kind": "User", "name": "ann"}, name="a", max=1),
        known({**ANN, "hub": "other"}, name="b", max=1),
        known({"kind": "Namespace", "name": "n"}, name="c", max=1),
        known({**ML, "name": "old"}, name="d", max=1, members=["ann"]),
        known({**ML, "hub": "other"}, name="e", max=1, members=["ann"]),
        known({"kind": "Nonsense"}, name="f"),
    )
    assert of(rows, "User", "ann", "").limit
    assert of(rows, "User", "ann", "other").used is None
    assert of(rows, "Namespace", "n").limit
    old = of(rows, "Group", "old", HUB)
    assert (old.known, old.members, old.used) == (False, 1, 1000)
    assert of(rows, "Group", "ml", "other").used == 0
    assert len(rows) == 5 + 5


def test_properties_that_are_no_limit_are_told() -> None:
    """The group's row has the sentence."""
    groups = {"ml": Group("ml", frozenset(), {"jupyter_gpu.max": "many"})}
    row = of(table(groups=groups), "Group", "ml", HUB).to_json()
    assert "can't be read" in row["notes"][0]
    assert row["own"]["version"] is None


@pytest.mark.parametrize("column", subjects.SORTS)
def test_table_can_be_sorted_by_each_column(column: str) -> None:
    """Rows without a value have a place, too."""
    changes = [{"by": "root", "at": "2026-05-03T10:00:00Z"}]
    rows = table(known(ANN, name="u", max="unlimited", changes=changes), known({"kind": "Cap"}, name="k", max=4))
    for descending in (False, True):
        query = PageQuery(sort=column, descending=descending)
        found = page(rows, query, subjects.SORTS[column], lambda row: row.name)
        assert len(found.rows) == len(rows)
    assert of(rows, "User", "ann", HUB).to_json()["changed"] == changes[0]
    assert of(rows, "Cap").changed is None
