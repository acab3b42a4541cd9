"""The writes by which group limits follow a hub's groups."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_hub.rules.groups import Group
from jupyter_gpu_hub.rules.mirror import (
    RemoveProperties,
    SetMembers,
    Write,
    WriteProperties,
    plan,
    properties_name,
    properties_object,
)

from .builders import HUB, ML, known, limit, limit_object, mirrored

NAME = properties_name("ml", HUB)
SUBJECT = Subject(SubjectKind.GROUP, "ml", HUB)


def groups(*members: str, **properties: Any) -> dict[str, Group]:
    """Return a hub with group ml."""
    return {"ml": Group("ml", frozenset(members), {f"jupyter_gpu.{key}": text for key, text in properties.items()})}


def test_members_are_written_where_they_differ() -> None:
    """In each limit of the group: of this hub, and under this hub's name in those of every hub."""
    of_all = {"kind": "Group", "name": "ml"}
    limits = [
        limit(ML, name="b", members=["bob"]),
        limit(ML, name="a", members=["ann", "bob"]),
        limit(of_all, name="c"),
        limit({**ML, "hub": "other"}, name="d"),
        limit({**ML, "name": "gone"}, name="e", members=["ann"]),
        limit({"kind": "User", "name": "ml"}, name="f"),
        limit("nonsense", name="g"),
    ]
    mine = [SetMembers("b", ("ann", "bob")), SetMembers("c", ("ann", "bob"), HUB), SetMembers("e", ())]
    assert plan(groups("ann", "bob"), limits, HUB) == mine
    assert plan(groups("ann", "bob"), limits, HUB, shared=False) == [mine[0], mine[2]]


def test_hubs_do_not_overwrite_each_others_members() -> None:
    """Each writes its own once into a limit of every hub, though it may have no such group."""
    body: Any = limit_object({"kind": "Group", "name": "ml"}, name="c", members=["eve"])
    hubs: list[tuple[str, dict[str, Group]]] = [(HUB, groups("ann", "bob")), ("other", {})]
    for hub, found in hubs:
        (write,) = plan(found, [read_limit(body)], hub)
        assert isinstance(write, SetMembers)
        body["status"].setdefault("membersOfHubs", {}).update(write.status["membersOfHubs"])
    assert body["status"] == {"members": ["eve"], "membersOfHubs": {HUB: ["ann", "bob"], "other": []}}
    for hub, found in hubs:
        assert plan(found, [read_limit(body)], hub) == []


def test_properties_become_a_limit() -> None:
    """It is created once, and has a name of its own beside a limit that somebody writes for the group."""
    spec = {"max": "4"}
    assert plan(groups(max="4"), [], HUB) == [WriteProperties(NAME, SUBJECT, spec)]
    written = plan(groups(max="4"), [limit(ML, name="written", max=2)], HUB)
    assert written == [WriteProperties(NAME, SUBJECT, spec)]
    assert known(ML).name != NAME


def test_changed_properties_replace_all_fields() -> None:
    """A property that is gone is inherited again."""
    before = mirrored(name=NAME, max=4, weight=2).limit
    (write,) = plan(groups(max="3"), [before], HUB)
    assert write == WriteProperties(NAME, SUBJECT, {"max": "3"}, gone=("weight",), exists=True)
    assert isinstance(write, WriteProperties)
    assert properties_object(write)["spec"] == {"subject": SUBJECT.to_json(), "weight": None, "max": "3"}


def test_properties_that_are_gone_remove_the_limit() -> None:
    """Also with the group."""
    before = mirrored(name=NAME, max=4).limit
    assert plan(groups(), [before], HUB) == [RemoveProperties(NAME)]
    assert plan({}, [before], HUB) == [RemoveProperties(NAME)]


def test_nonsense_leaves_what_was_mirrored() -> None:
    """A typing error neither frees nor stops a group."""
    before = mirrored(name=NAME, max=4).limit
    assert plan(groups(max="tow"), [before], HUB) == []
    assert plan(groups(max="tow"), [], HUB) == []


def test_copies_of_another_hub_are_left_alone() -> None:
    """Each hub's service looks after its own."""
    other = limit({**ML, "hub": "other"}, name="o", label=HUB_PROPERTIES, max=1)
    assert plan({}, [other], HUB) == []


def carried_out(limits: list[Limit], writes: list[Write]) -> list[Limit]:
    """Return the limits after the writes, as the API server would have them."""
    by_name: dict[str, dict[str, Any]] = {
        item.object_name: {
            "spec": item.spec(),
            "status": {
                "members": sorted(item.members),
                "membersOfHubs": {hub: sorted(names) for hub, names in item.hub_members.items()},
            },
        }
        for item in limits
    }
    labels = {item.object_name: item.managed_by for item in limits}
    for write in writes:
        match write:
            case SetMembers(name):
                status = by_name[name]["status"]
                of_hubs = {**status["membersOfHubs"], **write.status.get("membersOfHubs", {})}
                by_name[name]["status"] = {**status, **write.status, "membersOfHubs": of_hubs}
            case RemoveProperties(name):
                del by_name[name]
            case WriteProperties(name):
                body = properties_object(write)
                old = by_name.get(name, {"spec": {}, "status": {"members": [], "membersOfHubs": {}}})
                spec = {key: value for key, value in {**old["spec"], **body["spec"]}.items() if value is not None}
                by_name[name] = {"spec": spec, "status": old["status"]}
                labels[name] = HUB_PROPERTIES
    return [
        read_limit(
            {
                "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": labels.get(name, "")}},
                "spec": item["spec"],
                "status": item["status"],
            }
        )
        for name, item in by_name.items()
    ]


GROUPS = st.dictionaries(
    st.sampled_from("abc"),
    st.tuples(
        st.frozensets(st.sampled_from(["ann", "bob"])),
        st.dictionaries(
            st.sampled_from(["jupyter_gpu.max", "jupyter_gpu.weight", "other"]), st.sampled_from(["1", "2", "no"])
        ),
    ),
).map(lambda found: {name: Group(name, *rest) for name, rest in found.items()})


@given(GROUPS, GROUPS)
def test_mirror_is_done_after_two_rounds(first: dict[str, Group], second: dict[str, Group]) -> None:
    """From any state to any other: the limit in the first round, its members in the second; then nothing is left."""
    limits: list[Limit] = [limit({"kind": "Group", "name": "a"}, name="written", max=1)]
    for found in (first, second):
        for _ in range(2):
            limits = carried_out(limits, plan(found, limits, HUB))
        assert plan(found, limits, HUB) == []
