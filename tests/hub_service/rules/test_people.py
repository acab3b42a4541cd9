"""The table of users, and the limits of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.effective import effective
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Sourced
from jupyter_gpu_hub.rules import people, words
from jupyter_gpu_hub.rules.people import UserRow
from jupyter_gpu_hub.rules.usage import PodUse

from .builders import ANN, HUB, ML, limit

CHANGE = {"by": "root", "at": "2026-05-03T10:00:00Z"}
LIMITS = [
    limit(ANN, name="own", max=2, guaranteed=1),
    limit(ML, name="ml", max=4, members=["bob"], changes=[CHANGE]),
    limit({"kind": "Default"}, name="default", max=1),
    limit({"kind": "User", "name": "eve", "hub": "other"}, name="other", max=9),
    limit({"kind": "Namespace", "name": "jobs"}, name="jobs", max=9),
    limit("nonsense", name="nonsense"),
]


def use(user: str, hub: str = HUB, **more: int) -> PodUse:
    """Return a pod of a user that holds one GPU."""
    return PodUse(Owner("User", user, hub), HUB, f"jupyter-{user}", "", {"a": 1000}, **more)  # type: ignore[arg-type]


def table(*users: str, pods: list[PodUse] | None = None) -> dict[str, UserRow]:
    """Return the table by name."""
    ann = Owner("User", "ann", HUB)
    accounts = {ann: Account(ann, Sourced(1000), over_since=1777802400)}
    index, owned = LimitIndex(LIMITS), pods or []
    found = people.names(HUB, users, index, [pod.owner for pod in owned])
    return {name: of(name, users, index, owned, accounts) for name in found}


def of(
    name: str, users: Collection[str], index: LimitIndex, pods: list[PodUse], accounts: Mapping[Owner, Account]
) -> UserRow:
    """Return the row of one user."""
    owner = Owner("User", name, HUB)
    mine = [pod for pod in pods if pod.owner == owner]
    return people.row(owner, index, mine, known=name in users, accounts=accounts)


def test_users_are_those_known_limited_or_served() -> None:
    """A user who was removed and has a limit is shown, one of another hub is not."""
    found = table("bob", "cat", pods=[use("dan"), use("eve", "other"), use("ann")])
    assert {name: row.known for name, row in found.items()} == {"ann": False, "bob": True, "cat": True, "dan": False}


def test_row_has_limits_with_sources_and_use() -> None:
    """The limit comes from the user, a group or the default."""
    found = table("bob", "cat", pods=[use("ann", idle=500, waiting=2000), use("ann")])
    ann = found["ann"]
    assert (ann.used, ann.idle, ann.waiting) == (2000, 500, 2000)
    now = ann.to_json()
    assert (now["inForce"]["value"], now["overSince"], now["giveBackAt"]) == ("1", CHANGE["at"], None)
    assert [found[name].limit.value for name in ("ann", "bob", "cat")] == [2000, 4000, 1000]
    body = found["bob"].to_json()
    assert body["limit"]["value"] == "4"
    assert body["limit"]["sentence"] == "set for group ml by root on 3 May"
    assert body["changed"] == {"by": "root", "at": CHANGE["at"]}
    assert found["cat"].to_json()["changed"] is None
    assert found["cat"].to_json()["inForce"] is None


def test_every_column_can_be_sorted() -> None:
    """Unlimited is the largest limit."""
    users = list(table("bob", "cat", pods=[use("cat")]).values())
    order = {column: [row.name for row in sorted(users, key=key)] for column, key in people.SORTS.items()}
    assert order["name"] == ["ann", "bob", "cat"]
    assert order["limit"] == ["cat", "ann", "bob"]
    assert order["used"][-1] == "cat"
    assert order["guaranteed"][-1] == "ann"
    assert order["changed"][-1] == "bob"
    assert set(order) == set(people.SORTS)


def test_owners_to_whom_the_same_limits_apply_share_a_result() -> None:
    """Ten thousand users cost as much as there are different ones."""
    index = LimitIndex(LIMITS)
    one, two = (index.effective(Owner("User", name, HUB)) for name in ("x", "y"))
    assert one is two
    assert (people.limited_users(index, HUB), people.limited_users(index, "other")) == ({"ann"}, {"eve"})


MANY = st.lists(
    st.builds(
        lambda kind, name, hub, most, members: limit(
            {"kind": kind, **({"name": name} if kind in ("User", "Group") else {})}
            | ({"hub": hub} if hub and kind in ("User", "Group") else {}),
            name=f"{kind}-{name}-{hub}-{most}-{members}",
            max=most,
            members=members,
        ),
        st.sampled_from(["User", "Group", "Default", "Cap"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["", HUB, "other"]),
        st.integers(0, 3),
        st.lists(st.sampled_from(["ann", "bob"])),
    ),
    max_size=6,
)


@given(MANY)
def test_index_gives_what_all_limits_give(limits: list[Limit]) -> None:
    """It leaves out only limits that do not apply."""
    index = LimitIndex(limits)
    for owner in (Owner("User", "ann", HUB), Owner("User", "bob", "other"), Owner("Namespace", "ann")):
        assert index.effective(owner) == effective(owner, limits)


def test_words_are_sentences() -> None:
    """For the user, and about the user."""
    row = table(pods=[use("ann", idle=1000, waiting=1500, position=3)])["ann"]
    assert words.may_have(row.limit) == "You may have 2 GPUs, set for you."
    assert words.may_have(row.limit, name="ann") == "ann may have 2 GPUs, set for user ann."
    said = "You have 1 GPU now. You wait for 1.5 GPUs more, at place 3 in line. No program uses 1 GPU of these."
    assert words.use(row) == said
    idle = table(pods=[use("dan")])["dan"]
    assert words.use(idle, name="dan") == "dan has 1 GPU now."
    far = table(pods=[use("dan", waiting=500, position=40), use("dan", waiting=500)])["dan"]
    assert words.use(far, name="dan").endswith("dan waits for 1 GPU more, at place about 40 in line.")
    assert words.use(table(pods=[use("dan", waiting=500)])["dan"]).endswith("wait for 0.5 GPU more.")


def test_no_limit_is_any_number() -> None:
    """Unlimited is no number."""
    index = LimitIndex([])
    row = people.row(Owner("User", "ann", HUB), index, [], known=True, accounts={})
    assert words.may_have(row.limit) == "You may have any number of GPUs, as no limit is set."
