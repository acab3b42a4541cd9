"""The pods on several GPUs that may have turns: rule by rule, without programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.demand import Demand
from jupyter_gpu_node.shares.rules.turns.gangs import PATIENCE, PAUSE, RETRY, SAVED, Gangs
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

MS = 1_000
LEASE = 20 * MS
LATER = 10**12
"""A clock that has run for long: it counts from the start of the machine."""
BOTH = frozenset("ab")
NOTHING = Demand(False, False, False, False, 500)
WANTS = NOTHING._replace(wants=True)
HOLDS = NOTHING._replace(holds=True)
ASKED = HOLDS._replace(asked=True)
ONCE = HOLDS._replace(once=True)


class Place:
    """A GPU, by what is so there."""

    longest_turn = LEASE

    def __init__(self, **demands: Demand) -> None:
        self.demands = demands
        self.behind: Collection[str] = ()
        """Pods that do not come first."""
        self.without: Collection[str] = ()
        """Nor by right."""

    def demand(self, pod: str) -> Demand | None:
        return self.demands.get(pod)

    def fits(self, pod: str, members: Collection[str], now: int, *, strictly: bool) -> bool:
        assert pod in members
        assert now >= LATER
        return pod not in (self.behind if strictly else self.without)


class Node:
    """GPUs, and what is decided about them."""

    def __init__(self, **places: Place) -> None:
        self.places = places
        self.gangs = Gangs()
        self.now = LATER
        self.pods = "abcd"

    def after(self, time: int = 0, **demands: Demand) -> Mapping[str, Rule]:
        """Return the rules after so much time, when each of these pods has that demand on all of its GPUs."""
        self.now += time
        for place in self.places.values():
            place.demands |= {pod: one for pod, one in demands.items() if pod in place.demands}
        return self.gangs.rules_for(self.places, self.pods, self.now)


def two(a: Demand = WANTS, b: Demand = WANTS) -> Node:
    return Node(x=Place(a=a, b=b), y=Place(a=a, b=b))


def open_for(rules: Mapping[str, Rule]) -> set[str | None]:
    return {rule.first for rule in rules.values()}


def test_whole_gpu_has_no_turns_to_decide() -> None:
    """Neither has a pod that has nothing of the GPU; a part of it has."""
    manager = LeaseManager(Arbiter(Timing(), 0), 0)
    manager.set({"part": Terms(500)}, 0)
    assert (manager.demand("part"), manager.demand("none")) == (NOTHING, None)
    manager.set({"whole": Terms(1000)}, 0)
    assert manager.demand("whole") is None


def test_one_of_a_group_has_turns_on_all_its_gpus() -> None:
    """The others have none, and it comes first."""
    node = two()
    assert node.after() == dict.fromkeys("xy", Rule("a", barred=frozenset("b"), contesting=frozenset("b")))
    assert node.gangs.wake == LATER + RETRY


def test_single_pod_bars_no_other() -> None:
    """No pod is barred, and nothing is to be updated later."""
    node = two(b=NOTHING)
    del node.places["y"].demands["b"]
    assert node.after() == dict.fromkeys("xy", Rule("a"))
    assert node.gangs.wake is None


def test_those_without_a_gpu_in_common_do_not_wait_for_each_other() -> None:
    """Each group has its own pod with turns."""
    node = Node(x=Place(a=WANTS), y=Place(a=WANTS), u=Place(b=WANTS), v=Place(b=WANTS))
    assert {gpu: rule.first for gpu, rule in node.after().items()} == {"x": "a", "y": "a", "u": "b", "v": "b"}


def test_a_pod_on_one_gpu_is_under_no_rule() -> None:
    """Neither is one that is not there at all."""
    assert Node(x=Place(a=WANTS, b=WANTS), y=Place(b=WANTS)).after() == dict.fromkeys("xy", Rule("b"))
    assert Node(x=Place(a=WANTS)).after() == {}


def test_gates_that_know_no_lease_for_one_launch() -> None:
    """Nothing could end what their programs wait for: they are under no rule, and the others as without them."""
    node = two(a=WANTS._replace(steps=False))
    assert node.after() == dict.fromkeys("xy", Rule("b"))
    node.places["x"].demands["b"] = WANTS._replace(steps=False)  # on one of its GPUs
    assert node.after(MS) == {}


def test_it_begins_when_it_comes_first_everywhere() -> None:
    """Until then no pod of the group has turns, and those with a right to theirs contest them."""
    node = two()
    node.places["x"].behind = "ab"
    assert node.after() == dict.fromkeys("xy", Rule(barred=BOTH, contesting=BOTH))
    node.places["y"].without = "a"
    assert node.after(PATIENCE - 1) == dict.fromkeys("xy", Rule(barred=BOTH, contesting=frozenset("b")))
    node.places["x"].behind = "a"
    assert open_for(node.after()) == {"b"}


def test_only_gpus_that_it_wants_count() -> None:
    """It comes first where it has no work as soon as it has."""
    node = two(b=NOTHING)
    node.places["x"].demands["a"], node.places["x"].behind = NOTHING, "a"
    assert open_for(node.after()) == {"a"}


def test_after_long_a_right_to_each_is_enough() -> None:
    """A pod that has waited for long begins with a right to each of its GPUs."""
    node = two()
    node.places["x"].behind = node.places["y"].behind = "ab"
    node.places["x"].without = "a"
    assert open_for(node.after()) == {None}
    assert open_for(node.after(PATIENCE - 1)) == {None}
    assert open_for(node.after(1)) == {"b"}


def test_the_time_of_waiting_begins_anew() -> None:
    """It begins with each wait, not with the first one."""
    node = two(b=NOTHING)
    node.places["x"].behind = "a"
    node.after()
    node.after(PATIENCE - 1, a=NOTHING)
    assert open_for(node.after(1, a=WANTS)) == {None}


def test_it_gives_way_after_a_lease_to_one_that_had_less() -> None:
    """It does not before, and never to a pod that had more."""
    node = two()
    node.after()
    node.places["x"].demands["a"] = HOLDS  # and waits for the other one
    assert node.after(LEASE - 1)["x"] == Rule("a", barred=frozenset("b"), contesting=frozenset("b"))
    assert open_for(node.after(0, a=HOLDS)) == {"a"}
    assert node.after(1) == dict.fromkeys("xy", Rule(barred=BOTH, contesting=frozenset("b")))
    assert open_for(node.after(MS, a=ASKED)) == {None}  # it has not given back yet
    assert open_for(node.after(MS, a=WANTS)) == {"b"}
    assert open_for(node.after(LEASE, b=HOLDS)) == {"b"}  # `a` had a little more while it drained
    assert open_for(node.after(2 * MS)) == {None}


def test_pod_does_not_give_way_to_one_that_cannot_begin() -> None:
    """The other goes on, however long it waits."""
    node = two()
    node.places["x"].behind = node.places["x"].without = "b"
    node.after()
    assert open_for(node.after(10 * LEASE, a=HOLDS)) == {"a"}


def test_turns_are_in_proportion_to_milli() -> None:
    """The time of each counts in proportion to its milli, the least on any GPU."""
    node = Node(x=Place(a=WANTS, b=WANTS), y=Place(a=WANTS, b=WANTS))
    few, many = 200, 800
    had = {"a": 0, "b": 0}
    for _ in range(1000):
        for pod, milli in (("a", few), ("b", many)):
            node.places["x"].demands[pod] = WANTS._replace(milli=milli)
            node.places["y"].demands[pod] = WANTS._replace(milli=500)
        (first,) = open_for(node.after())
        if first is not None:
            had[first] += 1
            node.places["x"].demands[first] = HOLDS._replace(milli=few if first == "a" else many)
            node.after(LEASE)
    assert had["b"] == pytest.approx(2.5 * had["a"], rel=0.05)  # 500 to 200


def test_asked_for_one_of_its_turns_it_ends() -> None:
    """It ends on all its GPUs, and no other begins before it has given all back."""
    node = two()
    node.after()
    node.after(MS, a=HOLDS)
    node.places["y"].demands["a"] = ASKED
    ends = Rule(barred=BOTH, contesting=frozenset("b"))
    assert node.after(MS) == dict.fromkeys("xy", ends)
    node.places["y"].demands["a"] = NOTHING
    assert node.after(MS) == dict.fromkeys("xy", ends)
    assert open_for(node.after(MS, a=NOTHING)) == {"b"}


def test_without_work_it_ends() -> None:
    """The next one begins."""
    node = two()
    node.after()
    assert open_for(node.after(MS, a=NOTHING)) == {"b"}


def test_groups_that_become_one() -> None:
    """None of those that have turns goes on."""
    node = Node(x=Place(a=WANTS), y=Place(a=WANTS), u=Place(b=WANTS), v=Place(b=WANTS))
    assert open_for(node.after()) == {"a", "b"}
    node.after(MS, a=HOLDS, b=HOLDS)
    node.places["x"].demands["c"] = node.places["u"].demands["c"] = WANTS
    assert set(node.after(MS).values()) == {Rule(barred=frozenset("abc"), contesting=frozenset("c"))}
    node.after(MS, a=NOTHING)
    assert open_for(node.after(MS, b=NOTHING)) == {"c"}


def test_pod_that_left_the_gang_is_under_no_rule() -> None:
    """Its program ended: it is under no rule, and delays no other pod."""
    node = two()
    node.after()
    node.pods = "b"
    assert node.after(MS) == dict.fromkeys("xy", Rule("b"))
    node.pods = "ab"
    assert open_for(node.after(MS, a=HOLDS, b=HOLDS)) == {"b"}


def test_one_that_is_new_pays_nothing_for_the_time_before() -> None:
    """It has the GPU from before: what it had was no turn of the group."""
    node = two(a=HOLDS)
    assert open_for(node.after()) == {None}
    assert open_for(node.after(MS, a=WANTS)) == {"a"}


def test_draining_pod_pays_for_its_time() -> None:
    """Else `b` would have come second again."""
    node = two(a=HOLDS)
    node.after()
    assert open_for(node.after(MS)) == {None}
    assert open_for(node.after(MS, a=WANTS)) == {"b"}


def test_pod_that_rested_is_ahead_by_a_little() -> None:
    """It is not ahead by all the time in which it wanted nothing."""
    node = two(b=NOTHING)
    node.after()
    node.after(1_000 * MS, a=HOLDS)
    node.after(0, b=WANTS)
    turns = 0
    while open_for(node.after(0, a=WANTS)) != {"a"}:
        turns += 1
        node.after(LEASE, b=HOLDS)
        node.after(0, b=WANTS)
    assert turns == SAVED // (2 * LEASE) + 1  # each is of a half of the GPUs


def test_pod_that_rests_for_a_moment_owes_its_time() -> None:
    """Else it would come first again and again."""
    node = two(b=NOTHING)
    node.after()
    node.after(5 * LEASE, a=HOLDS)
    node.after(0, a=NOTHING)
    node.after(0, b=WANTS)
    node.after(LEASE, b=HOLDS)
    node.after(0, b=NOTHING)
    assert open_for(node.after(MS, a=WANTS, b=WANTS)) == {"b"}


def test_one_that_came_back_owes_nothing() -> None:
    """It was no member for a while: another program, say."""
    node = two(b=NOTHING)
    node.after()
    node.after(5 * LEASE, a=HOLDS, b=WANTS)
    node.pods = "b"
    node.after(MS, a=NOTHING)
    node.after(MS, b=NOTHING)
    node.pods = "ab"
    assert open_for(node.after(MS, a=WANTS, b=WANTS)) == {"a"}


def test_a_turn_is_paid_from_its_beginning() -> None:
    """It is paid also before the pod has any GPU: the others are barred."""
    node = two()
    node.after()
    assert open_for(node.after(LEASE)) == {"b"}


def test_program_that_waits_elsewhere_gets_one_launch() -> None:
    """It gets one where nothing was given back for a while, and it wants what it gave back."""
    node = two()
    node.after()
    node.after(MS, a=HOLDS)
    node.places["x"].demands["a"] = ASKED
    node.after(MS, b=WANTS)
    node.places["x"].demands["a"] = WANTS
    node.places["y"].demands["a"] = ASKED
    ends = Rule(barred=BOTH, contesting=BOTH)
    assert node.after(MS) == dict.fromkeys("xy", ends)
    assert node.after(PAUSE - 1) == dict.fromkeys("xy", ends)
    assert node.after(1) == {"x": Rule("a", once=True, barred=frozenset("b")), "y": ends}
    node.places["x"].demands["a"] = ONCE
    ends = Rule(barred=BOTH, contesting=frozenset("b"))
    assert node.after(MS) == {"x": Rule(once=True, barred=BOTH), "y": ends}  # it may end it
    node.places["y"].demands["a"] = NOTHING
    assert node.after(MS)["x"] == ends  # nothing waits for it


def test_pod_without_gpus_gets_no_single_launch() -> None:
    """A pod that holds nothing waits for no launch elsewhere."""
    node = two(a=HOLDS)
    node.after()
    assert node.after(PAUSE, a=WANTS, b=NOTHING)["x"] == Rule("a", barred=frozenset("b"))
    node = two()
    node.places["x"].behind = "ab"
    node.after()
    assert not any(rule.once for rule in node.after(2 * PAUSE).values())


def test_of_two_that_wait_on_one_gpu_one_has_the_launch() -> None:
    """Two groups became one while both were asked: one pod has the launch."""
    node = two(a=WANTS, b=WANTS)
    node.places["y"].demands["a"] = ASKED
    node.places["z"] = Place(b=ASKED)
    node.after()
    assert node.after(PAUSE)["x"] == Rule("a", once=True, barred=frozenset("b"))
