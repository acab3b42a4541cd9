"""Values that are sent and come back, and sentences about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.remote.rules import names, shipping
from jupyter_gpu.remote.rules.names import CellNames
from jupyter_gpu.remote.rules.shipping import Back, Preparation, Sending, There


def test_wanted() -> None:
    """Names that are read or named by -i are sent where they exist, those of the shell are not."""
    found = names.of_cell("train(model, Out, x)")
    assert shipping.wanted(found, ["data"], {"train", "data", "Out", "y"}, {"model"}) == {"train", "data", "model"}


@pytest.mark.parametrize(
    ("here", "failed", "there", "expected"),
    [
        ({"a": 1}, {}, {}, Sending(send=("a",))),
        ({"a": 1}, {}, {"a": There(1)}, Sending(keep=("a",))),
        ({"a": 2}, {}, {"a": There(1)}, Sending(send=("a",))),
        # changed in the worker only: its value is used
        ({"a": 1}, {}, {"a": There(1, newer=True)}, Sending(keep=("a",))),
        # changed on both sides: the notebook's counts, and this is said
        ({"a": 2}, {}, {"a": There(1, newer=True)}, Sending(send=("a",), lost=("a",))),
        # made in the worker, never in the notebook
        ({}, {}, {"a": There(newer=True)}, Sending(keep=("a",))),
        # assigned in the notebook since
        ({"a": 1}, {}, {"a": There(newer=True)}, Sending(send=("a",), lost=("a",))),
        # deleted in the notebook
        ({}, {}, {"a": There(1)}, Sending(forget=("a",))),
        ({}, {}, {}, Sending()),
        ({}, {"a": "a lock"}, {}, Sending(refused={"a": "a lock"})),
        ({}, {"a": "a lock"}, {"a": There(1)}, Sending(refused={"a": "a lock"})),
        ({}, {"a": "a lock"}, {"a": There(newer=True)}, Sending(keep=("a",))),
    ],
)
def test_sending(here: dict[str, int], failed: dict[str, str], there: dict[str, There], expected: Sending) -> None:
    """One name, as notebook and worker have it."""
    assert shipping.sending({"a"}, here, failed, there) == expected


def test_sending_again() -> None:
    """-i sends what the worker has."""
    assert shipping.sending({"a"}, {"a": 1}, {}, {"a": There(1)}, again={"a"}).send == ("a",)


def test_what_was_newer_once() -> None:
    """It is old where another place has the newest value, and so sent again or forgotten."""
    there = {"a": There(1, newer=True), "b": There(2, newer=True), "c": There(3)}
    assert shipping.current(there, {"a"}) == {"a": There(1, newer=True), "b": There(), "c": There(3)}


@pytest.mark.parametrize(
    ("here", "elsewhere", "again", "expected"),
    [
        ({"a": 1}, There(1, newer=True), set(), {"a": There(1, newer=True)}),
        # read there, where it may have been changed
        ({"a": 1}, There(1), set(), {"a": There(1, newer=True)}),
        # made there
        ({}, There(newer=True), set(), {"a": There(newer=True)}),
        # the notebook changed or made it since
        ({"a": 2}, There(1, newer=True), set(), {}),
        ({"a": 2}, There(newer=True), set(), {}),
        # the notebook's is asked for
        ({"a": 1}, There(1, newer=True), {"a"}, {}),
    ],
)
def test_moved(here: dict[str, int], elsewhere: There, again: set[str], expected: dict[str, There]) -> None:
    """A name that another worker has; names that the cell does not need stay where they are."""
    assert shipping.moved({"a"}, here, {"a": elsewhere}, again) == expected
    assert shipping.moved({"b"}, here, {"a": elsewhere}, again) == {}


def test_names_that_share_objects_are_sent_together() -> None:
    """Else the worker would have two objects; but what is newer there stays."""
    here = {"a": 2, "b": 1, "c": 1, "d": 1}
    there = {"a": There(1), "b": There(1), "c": There(1), "d": There(1, newer=True)}
    plan = shipping.sending(set(here), here, {}, there, [("a", "b", "d"), ("c",)])
    assert (plan.send, plan.keep, plan.lost) == (("a", "b"), ("c", "d"), ())


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ({}, []),
        ({"a": [1], "b": [2]}, [("a",), ("b",)]),
        ({"a": [1], "b": [2], "c": [1, 2], "d": []}, [("a", "b", "c"), ("d",)]),
        ({"a": [1], "b": None, "c": []}, [("a", "b", "c")]),
    ],
)
def test_groups(shared: dict[str, list[int] | None], expected: list[tuple[str, ...]]) -> None:
    """Names are together if a chain of shared objects joins them."""
    assert shipping.groups(shared) == expected


@given(st.dictionaries(st.text(min_size=1, max_size=2), st.sets(st.integers(0, 9), max_size=3)))
def test_groups_are_apart(shared: dict[str, set[int]]) -> None:
    """Each name is in one group, and groups share no object."""
    found = shipping.groups(shared)
    assert sorted(name for group in found for name in group) == sorted(shared)
    objects = [set().union(*(shared[name] for name in group)) for group in found]
    assert sum(map(len, objects)) == len(set().union(*objects))


def test_preparation() -> None:
    """Names that the cell assigns and does not need are taken away; those that it may delete as well are marked."""
    found = names.of_cell("n += 1\nm = 2\ntry: f()\nexcept E as e: pass\nget_ipython = 1")
    assert shipping.preparation(found, {"n", "f", "E"}) == Preparation(frozenset({"m"}), frozenset({"e"}))


def test_back() -> None:
    """The smallest come back up to the limit, and those of -o whatever their size."""
    result = shipping.back({"big": 70, "a": 40, "b": 20, "c": 50}, {"lock": "a lock"}, ["big"], limit=64)
    assert result.bring == ("a", "b", "big")
    assert list(result.stay) == ["c", "lock"]
    assert result.stay["c"] == "50 B are more than comes back by itself; -o c brings it"
    assert result.stay["lock"] == "it cannot be sent: a lock"
    assert shipping.back({"a": 40, "b": 24}, {}, limit=64).bring == ("a", "b"), "all of the limit"
    assert shipping.back({}, {}, large=["l"]).stay["l"] == "it is more than comes back by itself; -o l brings it"


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 100)), st.integers(0, 200))
def test_back_keeps_the_limit(sizes: dict[str, int], limit: int) -> None:
    """Each name comes or stays, and what comes by itself is within the limit."""
    result = shipping.back(sizes, {}, limit=limit)
    assert {*result.bring, *result.stay} == set(sizes)
    assert sum(sizes[name] for name in result.bring) <= limit
    assert len(result.bring) + len(result.stay) == len(sizes)


def test_said_before() -> None:
    """Refused, unseen, kept and lost values are told, and changes that nobody would notice."""
    found = CellNames(frozenset("abc"), frozenset("c"), stars=frozenset({"m"}), unseen=("eval(t)",))
    plan = Sending(send=("a", "c"), keep=("b",), refused={"r": "a lock"}, lost=("a",))
    assert shipping.said_before(found, plan, ["a", "b", "c", "z"], ["b"]) == [
        "r cannot be sent: a lock. Make it in the cell that uses it, or do without it there.",
        "It cannot be seen which variables 'eval(t)' uses: name them with -i.",
        "The names of 'from m import *' stay in the worker.",
        "a was changed in the worker and in the notebook: the worker gets the notebook's.",
        "a is read; changes of it there do not come back without -o a.",
    ]
    assert shipping.said_before(CellNames(), Sending()) == []


def test_said_after() -> None:
    """Values that stayed and values that were changed are told."""
    result = Back(stay=shipping.back({"m": 3 * 1024**3}, {}).stay)
    assert shipping.said_after(result, {"b", "a"}) == [
        "m stays in the worker, as gpu.remote.m: 3 GiB are more than comes back by itself; -o m brings it.",
        "a was changed in the worker; -o a brings it.",
        "b was changed in the worker; -o b brings it.",
    ]
