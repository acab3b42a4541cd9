"""The division of a running notebook's wish among nodes: always within it, own node first, and it comes to rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Allocated, Attached, Requested
from jupyter_gpu.model.gpu import Gpu, total
from jupyter_gpu.model.service import Relation, WorkerPart
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.pairs.amounts import most_here
from jupyter_gpu_scheduler.rules.pairs.split import Splitter, Worker, granted, may_be_split, on_own_node
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.pairs.workers import as_worker, promise, promise_uid
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import apply, cluster, facts, inventory, pod, requested, uuid

RULES = PairPolicy(worker={})


@dataclass
class World:
    """Nodes n1, n2, … and notebooks with their workers, decided as the scheduler's process does."""

    nodes: Mapping[str, int | Sequence[Gpu]]
    asked: dict[str, Requested] = field(default_factory=dict)
    parts: dict[str, tuple[WorkerPart, ...]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    most: int = 4

    def __post_init__(self) -> None:
        """Make the snapshot."""
        self.snapshot = cluster(self.nodes)
        self.splitter = Splitter(self.snapshot, RULES, self.most)

    def notebook(self, uid: str, wants: object, node: str = "n1", **fields: Any) -> None:
        """A notebook wishes from now on."""
        self.asked[uid] = requested(wants, **fields)
        if self.snapshot.pod(uid) is None:
            self.snapshot.put_pod(pod(uid, node=node))
        self.put(uid)

    def put(self, uid: str) -> None:
        """Put a notebook and its workers into the snapshot, as its parts say."""
        before, asked = self.snapshot.pod(uid), self.asked[uid]
        assert before
        whole = replace(before, requested=asked, most_here=None)
        anywhere = may_be_split(asked.wish)
        self.snapshot.put_pod(on_own_node(self.snapshot, whole, self.parts.get(uid, ()), anywhere=anywhere))
        for part in self.parts.get(uid, ()):
            real = self.snapshot.pod(f"{uid}-{part.id}")
            if real is None:
                self.snapshot.put_pod(promise(before, asked, part, {}))
            else:
                self.snapshot.put_pod(as_worker(real, before, asked, part, same_image=True))

    def workers(self, uid: str) -> list[Worker]:
        """Return a notebook's workers."""
        found = []
        for part in self.parts.get(uid, ()):
            real = self.snapshot.pod(f"{uid}-{part.id}")
            state = real or self.snapshot.pod(promise_uid(uid, part.id))
            assert state
            found.append(Worker(part, state, real is not None, f"{uid}-{part.id}" in self.failed))
        return found

    def divide(self, uid: str) -> int:
        """Divide a wish until it rests; return the number of steps."""
        was_last = False
        for step in range(40):
            notebook = self.snapshot.pod(uid)
            assert notebook
            parts, last = self.splitter.next_parts(notebook, self.asked[uid].wish, self.workers(uid))
            if parts == self.parts.get(uid, ()):
                return step
            assert not was_last, "another step follows the last one"
            self.parts[uid], was_last = parts, last and not self.failed  # as `Notebooks.divide` does
            self.put(uid)
        raise AssertionError("it does not come to rest")

    def settle(self) -> None:
        """Divide and decide until nothing changes, next in line first; promises become pods at once."""
        for _ in range(6):
            for uid in sorted(self.asked, key=lambda uid: self.state(uid).rank):
                self.divide(uid)
            for node in self.nodes:
                apply(self.snapshot, [one for one in decide(self.snapshot, node) if ":" not in one.uid])
                for state in self.snapshot.pods(node):
                    if state.allocated:  # its node plugin has done all
                        done = Attached(1, state.allocated.shares, revision=state.allocated.revision)
                        self.snapshot.put_pod(replace(state, attached=done))
            for uid in self.asked:
                self.put(uid)  # what is left for the own node depends on what it gave
            self.bind()

    def bind(self) -> None:
        """Create and bind the pod of each promise that fits."""
        for uid, parts in self.parts.items():
            for part in parts:
                state = self.snapshot.pod(promise_uid(uid, part.id))
                if state and part.milli:
                    bound = replace(state, uid=f"{uid}-{part.id}")
                    self.snapshot.remove_pod(state.uid)
                    found = allocate(self.snapshot, bound, part.node)
                    if isinstance(found, Allocated):
                        self.snapshot.put_pod(replace(bound, node=part.node, allocated=found))
                    else:
                        self.snapshot.put_pod(state)

    def state(self, uid: str) -> PodState:
        """Return a pod that is known."""
        found = self.snapshot.pod(uid)
        assert found
        return found

    def shape(self, uid: str) -> dict[str, int]:
        """Return the milli of a notebook's own part and its other parts, by node."""
        others = {part.node: part.milli for part in self.parts.get(uid, ()) if part.milli}
        return {self.state(uid).node: granted(self.snapshot, self.state(uid)), **others}

    def use(self, uid: str, *gpus: int) -> None:
        """A pod has these GPUs open."""
        self.snapshot.put_pod(replace(self.state(uid), busy=frozenset(map(uuid, gpus))))


def test_own_node_first_and_the_rest_on_the_best_other_node() -> None:
    """The own node has one of three GPUs; the other two are one part, on the node that has both."""
    world = World({"n1": 1, "n2": 1, "n3": 2})
    world.notebook("a", 3)
    assert world.divide("a") == 1
    assert world.shape("a") == {"n1": 1000, "n3": 2000}
    assert world.parts["a"][0].relation is Relation.UNKNOWN
    world.settle()
    assert total((world.state("a-w1").allocated or Allocated(0)).shares) == 2000
    own = world.state("a").allocated
    assert own
    assert (own.ticket, own.reason, own.message) == (None, None, "")


def test_rest_that_no_node_has_whole_becomes_several_parts() -> None:
    """First two on one node, then one on another; what nobody has waits in the own node's line."""
    world = World({"n1": 1, "n2": 2, "n3": 1})
    world.notebook("a", 4)
    assert world.divide("a") == 2
    assert world.shape("a") == {"n1": 1000, "n2": 2000, "n3": 1000}
    world.notebook("b", 1)
    world.settle()
    assert world.parts["b"] == () if "b" in world.parts else True
    assert world.state("b").ticket is not None
    assert world.splitter.waits(world.state("b"), ())
    assert not world.splitter.waits(world.state("a"), world.workers("a"))


@pytest.mark.parametrize("fields", [{"placement": "local"}, {"topology": "island"}])
def test_wish_that_may_not_be_divided_is_not(fields: Mapping[str, Any]) -> None:
    """A local wish gets nothing elsewhere, and a wish for one island no second one."""
    world = World({"n1": 1, "n2": 3})
    world.notebook("a", 1)
    world.settle()
    world.notebook("a", 3, **fields)
    world.divide("a")
    assert world.shape("a") == {"n1": 1000}


def test_island_goes_whole_to_another_node() -> None:
    """The own node has nothing of it, and another has all."""
    world = World({"n1": 1, "n2": inventory(3, switch=3)})
    world.notebook("other", 1)
    world.settle()
    world.notebook("a", 2, topology="switch")
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n2": 2000}


def test_wish_that_becomes_local_comes_home() -> None:
    """The rest, which the own node can't serve, is given up."""
    world = World({"n1": 1, "n2": 3})
    world.notebook("a", 3)
    world.settle()
    world.notebook("a", 3, placement="local")
    world.divide("a")
    assert world.shape("a") == {"n1": 1000}


def test_shrink_gives_back_in_order() -> None:
    """Idle remote, idle local, busy remote, busy local: the newest first."""
    world = World({"n1": 2, "n2": 1, "n3": 1})
    world.notebook("a", 4)
    world.settle()
    nodes = [part.node for part in world.parts["a"]]
    first = {"n2": 10, "n3": 20}[nodes[0]]
    world.use("a-w1", first)
    world.use("a", 0)
    world.notebook("a", 3)
    world.divide("a")
    assert world.shape("a") == {"n1": 2000, nodes[0]: 1000}, "the idle one elsewhere"
    world.settle()
    world.notebook("a", 2)
    world.divide("a")
    assert world.shape("a") == {"n1": 1000, nodes[0]: 1000}, "the idle one here"
    world.settle()
    world.notebook("a", 1)
    world.divide("a")
    assert world.shape("a") == {"n1": 1000}, "the busy one elsewhere"
    world.notebook("a", 0)
    world.divide("a")
    assert world.shape("a") == {"n1": 0}


def breaks(world: World, node: str, *gpus: int) -> None:
    """Let these GPUs of a node stop working, and the others work."""
    found = tuple(replace(gpu, healthy=gpu.uuid not in map(uuid, gpus)) for gpu in world.snapshot.gpus(node) or ())
    world.snapshot.put_node(node, found, facts())


@pytest.mark.parametrize("opened", [(), (10,)])
def test_broken_gpu_elsewhere_stays_and_is_given_back_first(opened: tuple[int, ...]) -> None:
    """Whether or not it is open; who asks again gets another one."""
    world = World({"n1": 1, "n2": 1, "n3": 1, "n4": 1})
    world.notebook("a", 3)
    world.settle()
    first, second = (part.node for part in world.parts["a"])
    index = int(first.removeprefix("n")) * 10 - 10
    breaks(world, first, index)
    world.use("a-w1", *(index for _ in opened))
    world.settle()
    assert world.shape("a") == {"n1": 1000, first: 1000, second: 1000}, "as on the own node"
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 1000, second: 1000}
    world.notebook("a", 3)
    world.settle()
    assert world.shape("a")[({"n2", "n3", "n4"} - {first, second}).pop()] == 1000


def test_broken_gpu_here_is_given_back_before_parts_elsewhere() -> None:
    """The part elsewhere stays, though it is closed; and a part that shrinks loses its broken GPU."""
    world = World({"n1": 2, "n2": 2})
    world.notebook("a", 4)
    world.settle()
    breaks(world, "n1", 0)
    world.use("a", 0)
    world.notebook("a", 3)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}
    assert [share.uuid for share in shares_of(world.state("a"))] == [uuid(1)]
    breaks(world, "n2", 11)
    world.use("a-w1", 10, 11)
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1000}
    assert [share.uuid for share in shares_of(world.state("a-w1"))] == [uuid(10)]


@settings(deadline=None, max_examples=40)
@given(
    some.tuples(*[some.integers(0, 2)] * 3),
    some.sets(some.sampled_from([0, 1, 10, 11, 20, 21])),
    some.sets(some.sampled_from([0, 1, 10, 11, 20, 21])),
    some.data(),
)
def test_no_gpu_that_works_is_given_back_before_a_broken_one(
    counts: Sequence[int], bad: set[int], opened: set[int], data: Any
) -> None:
    """Whatever is open, on whatever nodes they are."""
    world = World(dict(zip(("n1", "n2", "n3"), counts, strict=True)))
    world.notebook("a", sum(counts))
    world.settle()
    for number, node in enumerate(world.nodes):
        breaks(world, node, *(index for index in bad if index // 10 == number))
    for uid in ("a", "a-w1", "a-w2"):
        if world.snapshot.pod(uid):
            world.use(uid, *opened)
    world.settle()
    before = had(world)
    world.notebook("a", data.draw(some.integers(0, sum(counts))))
    world.settle()
    lost, broken = before - had(world), {uuid(index) for index in bad} & before
    assert lost <= broken or broken <= lost


def had(world: World) -> set[str]:
    """Return the GPUs of the notebook a and its workers."""
    pods = (world.snapshot.pod(uid) for uid in ("a", "a-w1", "a-w2"))
    return {share.uuid for state in pods if state for share in shares_of(state)}


def test_unopened_part_comes_home_and_an_open_one_stays() -> None:
    """Once the own node can serve it."""
    world = World({"n1": 2, "n2": 2})
    world.notebook("other", 2)
    world.settle()
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.use("a-w1", 10)
    world.notebook("other", 0)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1000}
    assert [share.uuid for share in (world.state("a-w1").allocated or Allocated(0)).shares] == [uuid(10)]
    world.use("a-w1")
    world.settle()
    assert world.shape("a") == {"n1": 2000}


def test_part_moves_from_a_node_that_fails() -> None:
    """A worker that could not run, or whose node is not ready: another node serves the part, and that one is left."""
    world = World({"n1": 0, "n2": 1, "n3": 1, "n4": 1})
    world.notebook("a", 1)
    world.divide("a")
    first = world.parts["a"][0].node
    world.failed.add("a-w1")
    world.divide("a")
    second = world.parts["a"][1].node
    assert world.shape("a") == {"n1": 0, second: 1000}
    assert second != first
    world.snapshot.put_node(second, world.snapshot.gpus(second) or (), facts(ready=False))
    world.divide("a")
    third = world.parts["a"][2].node
    assert world.shape("a") == {"n1": 0, third: 1000}
    world.snapshot.remove_node(third)
    world.divide("a")
    assert world.shape("a") in ({"n1": 0, third: 1000}, {"n1": 0, second: 1000})


def test_node_that_is_not_ready_gets_no_part() -> None:
    """Until it is ready; the notebook waits for that."""
    world = World({"n1": 0, "n2": 1})
    gpus = world.snapshot.gpus("n2") or ()
    world.snapshot.put_node("n2", gpus, facts(ready=False))
    world.notebook("a", 1)
    world.divide("a")
    assert world.shape("a") == {"n1": 0}
    assert world.splitter.waits(world.state("a"), ())
    world.snapshot.put_node("n2", gpus, facts())
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n2": 1000}


def test_warm_worker_comes_before_a_new_one() -> None:
    """The part that was given back is had again on the same node, though another has room as well."""
    world = World({"n1": 1, "n2": 2, "n3": 2})
    world.notebook("a", 2)
    world.settle()
    node = world.parts["a"][0].node
    world.notebook("a", 1)
    world.settle()
    assert [part.milli for part in world.parts["a"]] == [0]
    world.notebook("a", 3)
    world.settle()
    assert world.shape("a") == {"n1": 1000, node: 2000}
    assert len(world.parts["a"]) == 1


def test_most_workers_hold() -> None:
    """No more workers than are permitted; the rest waits."""
    world = World({"n1": 0, "n2": 1, "n3": 1, "n4": 1}, most=2)
    world.notebook("a", 3)
    world.settle()
    assert len(world.parts["a"]) == 2


def test_other_sizes_of_shares_fit_parts_again() -> None:
    """A part that the new size does not divide is cut."""
    world = World({"n1": 1, "n2": 2})
    world.notebook("a", 2)
    world.settle()
    world.notebook("a", 0.9, each=300)
    world.settle()
    assert all(part.milli % 300 == 0 for part in world.parts["a"])
    assert sum(world.shape("a").values()) == 900


def test_more_than_the_own_node_ever_has_is_no_refusal() -> None:
    """It gives all that it has, whether or not another node can serve the rest."""
    world = World({"n1": 2, "n2": 1})
    world.notebook("a", 4)
    world.settle()
    assert world.shape("a") == {"n1": 2000, "n2": 1000}
    assert most_here(world.snapshot, world.state("a")) == 2000
    assert most_here(world.snapshot, replace(world.state("a"), lacks=frozenset({uuid(0)}))) == 1000
    assert most_here(world.snapshot, replace(world.state("a"), fault="x")) is None
    assert granted(world.snapshot, replace(world.state("a"), node="unknown")) == 2000


AMOUNTS = some.sampled_from([0, 0.5, 1, 2, 3, 4])
STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("wish"), some.sampled_from("abc"), AMOUNTS),
        some.tuples(some.just("open"), some.sampled_from(["a", "b", "a-w1", "b-w1", "a-w2"]), some.booleans()),
        some.tuples(some.just("fail"), some.sampled_from(["a-w1", "b-w1"]), some.booleans()),
        some.tuples(some.just("ready"), some.sampled_from(["n2", "n3"]), some.booleans()),
    ),
    max_size=8,
)
HOMES = {"a": "n1", "b": "n2", "c": "n1"}


@settings(deadline=None, max_examples=40)
@given(some.tuples(*[some.integers(0, 3)] * 3), STEPS)
@example((0, 1, 1), [("fail", "a-w1", True), ("wish", "a", 0.5)])  # its first worker has the name of one that failed
def test_any_history_gives_nothing_twice_and_comes_to_rest(counts: Sequence[int], steps: Sequence[Any]) -> None:
    """After each step: parts within the wish, an open part stays, GPUs never twice, a second look changes nothing."""
    world = World(dict(zip(("n1", "n2", "n3"), counts, strict=True)))
    for kind, who, what in steps:
        before = {uid: opened(world, uid) for uid in ("a", "b")}
        if kind == "wish":
            world.notebook(who, what, HOMES[who])
        elif kind == "open" and (state := world.snapshot.pod(who)):
            world.snapshot.put_pod(
                replace(state, busy=frozenset(share.uuid for share in shares_of(state)) if what else frozenset())
            )
        elif kind == "fail":
            (world.failed.add if what else world.failed.discard)(who)
        elif kind == "ready":
            world.snapshot.put_node(who, world.snapshot.gpus(who) or (), facts(ready=what))
        if kind != "open":
            world.settle()
        else:
            before = {uid: opened(world, uid) for uid in ("a", "b")}
            world.settle()
        for uid, asked in world.asked.items():
            parts = world.parts.get(uid, ())
            assert sum(part.milli for part in parts) <= asked.milli
            assert sum(world.shape(uid).values()) <= asked.milli
            assert len({part.id for part in parts}) == len(parts) <= world.most
            assert world.divide(uid) == 0, "it changes without a cause"
            if kind != "wish" or who != uid:
                assert before.get(uid, 0) <= opened(world, uid), "an open part was taken"
        for node in world.nodes:
            assert not world.snapshot.contested(node)


def shares_of(state: PodState) -> Sequence[Any]:
    """Return a pod's shares."""
    return state.allocated.shares if state.allocated else ()


def opened(world: World, uid: str) -> int:
    """Return the milli that programs have open of a notebook's parts elsewhere."""
    found = 0
    for part in world.parts.get(uid, ()):
        state = world.snapshot.pod(f"{uid}-{part.id}")
        found += sum(share.milli for share in shares_of(state) if state and share.uuid in state.busy) if state else 0
    return found


def test_another_leader_decides_the_same() -> None:
    """From the same records, a process that knows nothing else makes no change."""
    world = World({"n1": 1, "n2": 2, "n3": 2})
    world.notebook("a", 4)
    world.notebook("b", 1)
    world.settle()
    other = World(world.nodes, dict(world.asked), dict(world.parts))
    for node in [*world.nodes, ""]:
        for state in world.snapshot.pods(node):
            other.snapshot.put_pod(state)
    for uid in other.asked:
        assert other.divide(uid) == 0
