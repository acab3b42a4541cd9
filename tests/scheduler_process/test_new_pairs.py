"""New pods that start on one node with the GPUs of another: the real binder and cache, without processes.

The test is the API server, kube-scheduler and all that follows a Binding, one step at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.kube import Conflict, KubeError, NotFound, ObjectChange, Unavailable
from jupyter_gpu.model.annotations import ALLOCATED, REQUESTED, SERVICE, decode_allocated, decode_requested
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from jupyter_gpu.model.service import WorkerPart, decode_service
from jupyter_gpu_scheduler.binder import Binder
from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.rules.new_pods.places import places, rate
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.wire import BindingArgs
from jupyter_gpu_scheduler.settings import SchedulerSettings, WriteSettings
from jupyter_gpu_scheduler.waiting import WaitingPods
from jupyter_gpu_scheduler.writer import AllocationWriter
from tests.scheduler_process.notebook_stage import NODES, Cluster, wish
from tests.scheduler_process.test_cluster_cache import pod

POLICY = Policy()


class Api:
    """The API server's answers about pods: Bindings are merged into the pod, or answered by an error."""

    def __init__(self, world: NewPods) -> None:
        self._world = world
        self.error: BaseException | None = None
        self.done = True
        """Whether a Binding that gets an error was done all the same."""

    async def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Bind."""
        uid = body["metadata"]["uid"]
        if uid not in self._world.pods:
            raise NotFound(404, "NotFound", "")
        error, self.error = self.error, None
        if error is None or self.done:
            self._world.change(uid, body["target"]["name"], body["metadata"]["annotations"])
        if error:
            raise error
        return {}

    async def get(self, path: str) -> dict[str, Any]:
        """Read a pod."""
        uid = path.rpartition("/")[2]
        if uid not in self._world.pods:
            raise NotFound(404, "NotFound", "")
        return self._world.copy(uid)


class NewPods(Cluster):
    """Notebooks that come without a node, and what binds them."""

    def __init__(self, **workers: Any) -> None:
        super().__init__(**workers)
        self.api = Api(self)

    def create(self, uid: str, wants: object, **labels: str) -> None:
        """A pod of ann comes."""
        body = pod(uid, 0)
        body["spec"]["nodeSelector"] = labels
        body["spec"]["containers"][0]["image"] = "lab:1"
        words = {USERNAME: "ann", HUB: "hub"}
        body["metadata"]["annotations"] = words if wants is None else {**words, REQUESTED: str(wants)}
        self.put(body)

    def copy(self, uid: str) -> dict[str, Any]:
        """Return a pod's JSON."""
        body: dict[str, Any] = json.loads(json.dumps(self.pods[uid]))
        return body

    def change(self, uid: str, node: str, words: dict[str, str]) -> None:
        """A Binding is done; no watch has shown it yet."""
        body = self.copy(uid)
        body["spec"]["nodeName"] = node
        body["metadata"]["annotations"].update(words)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.pods[uid] = body

    def bind(self, uid: str, node: str, *, shown: bool = True) -> str:
        """Kube-scheduler asks to bind; the watch shows it, or another leader reads it."""

        async def ask() -> str:
            metrics = SchedulerMetrics(self.cache.snapshot)
            kube: Any = self.api
            writer = AllocationWriter(kube, WriteSettings(), metrics, lambda: True)
            return await Binder(kube, self.cache, writer, metrics).bind(BindingArgs("ns", uid, uid, node))

        why = asyncio.run(ask())
        if shown:
            self.cache.pod_changed(ObjectChange("changed", self.copy(uid)))
        return why

    def fitting(self, uid: str, names: Sequence[str] = tuple(NODES)) -> tuple[str, ...]:
        """Kube-scheduler asks where a pod may go."""
        chooser, state = self.cache.notebooks.chooser, self.state(uid)
        found = places(self.cache.snapshot, chooser, state, names).fitting
        scores = rate(self.cache.snapshot, chooser, state, found, POLICY)
        return tuple(sorted(found, key=lambda name: (-scores[name], name)))

    def start(self, uid: str) -> None:
        """Kube-scheduler binds a pod to its best node, if there is any."""
        if uid in self.pods and self.state(uid).pending and (found := self.fitting(uid)):
            assert self.bind(uid, found[0]) == ""


@pytest.fixture
def world() -> NewPods:
    """Return nodes n0 without a GPU, n1 with two, n2 with one that b has."""
    made = NewPods()
    made.cache.node_changed(ObjectChange("changed", made.node("n0", 0)))
    made.notebook("b", 1, "n2")
    made.settle()
    return made


def test_binding_carries_the_part_of_the_other_node(world: NewPods) -> None:
    """One write: no share here, all of the wish there, kept from all others at once; then nothing is left to write."""
    world.create("a", 2)
    assert world.fitting("a", ["n0", "n2"]) == ("n0", "n2")
    writes = world.writes
    assert world.bind("a", "n0", shown=False) == ""
    assert decode_allocated(world.pods["a"]["metadata"]["annotations"][ALLOCATED]).shares == ()
    service = decode_service(world.pods["a"]["metadata"]["annotations"][SERVICE])
    assert (service.workers, service.elsewhere) == ((WorkerPart("w1", "n1", 2000, service.workers[0].relation),), 3000)
    world.create("c", 1)
    assert world.fitting("c") == (), "it is promised before any watch shows the pod"
    world.cache.pod_changed(ObjectChange("changed", world.copy("a")))
    assert world.fitting("c") == ()
    world.reconcile()
    assert world.writes == writes, "all that is known is in the Binding"
    world.settle()
    assert (world.has("a"), world.has("a-w1"), world.whole("a")) == (0, 2000, 2000)


def test_binding_carries_what_two_nodes_give_together(world: NewPods) -> None:
    """Three GPUs of nodes with two and one: two shares and a part in one write, and nothing is left to write."""
    world.remove("b")
    world.create("a", 3)
    assert world.fitting("a") == ("n1", "n2")
    writes = world.writes
    assert world.bind("a", "n1", shown=False) == ""
    assert len(decode_allocated(world.pods["a"]["metadata"]["annotations"][ALLOCATED]).shares) == 2
    world.create("c", 1)
    assert world.fitting("c") == ()
    world.cache.pod_changed(ObjectChange("changed", world.copy("a")))
    world.reconcile()
    assert world.writes == writes, "all that is known is in the Binding"
    world.settle()
    assert (world.has("a"), world.has("a-w1"), world.whole("a")) == (2000, 1000, 3000)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("error", [Conflict(409, "Conflict", "changed"), Unavailable(0, "", "away")])
def test_binding_without_an_answer(world: NewPods, error: KubeError, done: bool) -> None:
    """The pod's own state decides then: it is bound with its part, or all is free again and tried again."""
    world.create("a", 2)
    world.api.error, world.api.done = error, done
    why = world.bind("a", "n0", shown=False)
    assert (why == "") is (done or isinstance(error, Conflict))
    world.create("c", 1)
    assert (world.fitting("c") == ()) is (why == "")
    assert world.cache.writes_in_flight <= 1
    if why:
        assert not world.cache.notebooks.all_due()
        assert world.bind("a", "n0") == ""
    world.settle()
    assert world.whole("a") == 2000


@pytest.mark.parametrize("error", [KubeError(403, "Forbidden", "no"), KeyError("broken")])
def test_binding_that_is_refused_holds_nothing(world: NewPods, error: Exception) -> None:
    """Neither the part nor the promise stays."""
    world.create("a", 2)
    world.api.error, world.api.done = error, False
    if isinstance(error, KubeError):
        assert world.bind("a", "n0") == "no"
    else:
        with pytest.raises(KeyError):
            world.bind("a", "n0")
    assert not world.cache.notebooks.all_due()
    world.create("c", 2)
    assert world.fitting("c") == ("n1", "n2", "n0")
    world.remove("a")
    world.create("d", 2)
    world.api.error = NotFound(404, "NotFound", "gone")
    assert world.bind("d", "n0") == "The pod is gone."
    assert not world.cache.notebooks.all_due()


@pytest.mark.parametrize("done", [True, False])
def test_leader_that_dies_at_a_binding(world: NewPods, done: bool) -> None:
    """Before the write nothing is kept; after it, all is in the pod, and the next leader changes nothing."""
    world.create("a", 2)
    world.api.error, world.api.done = asyncio.CancelledError(), done
    with pytest.raises(asyncio.CancelledError):
        world.bind("a", "n0", shown=False)
    world.restart()
    world.cache.node_changed(ObjectChange("changed", world.node("n0", 0)))
    assert world.state("a").pending is not done
    world.create("c", 2)
    assert (world.fitting("c") == ()) is done
    if not done:
        assert world.bind("a", "n0") == ""
    world.settle()
    assert world.whole("a") == 2000


def test_pods_that_may_not_go_elsewhere(world: NewPods) -> None:
    """A wish for this node's GPUs, a namespace without workers, and a worker: none is a pair."""
    world.create("a", wish(1000, placement="local"))
    assert world.fitting("a") == ("n1",)
    assert "n0" in world.bind("a", "n0")
    world.create("idle", None)
    assert world.fitting("idle") == ("n1", "n2", "n0"), "it may have GPUs of others later"
    world._settings = SchedulerSettings()
    world.restart()
    world.cache.node_changed(ObjectChange("changed", world.node("n0", 0)))
    assert world.fitting("idle") == ("n1", "n2")
    world.create("c", 1)
    assert world.fitting("c") == ("n1",)


def test_pod_that_no_watch_has_shown(world: NewPods) -> None:
    """Kube-scheduler may be faster than the watch: the answer is the same."""
    world.create("a", 2)
    record = world.cache.record("a")
    assert record
    world.cache.pod_changed(ObjectChange("removed", world.copy("a")))
    state = world.cache.under_terms(record.state)
    assert state.anywhere
    assert places(world.cache.snapshot, world.cache.notebooks.chooser, state, ["n0"]).fitting == ("n0",)


def test_set_of_a_new_pod_is_on_one_node(world: NewPods) -> None:
    """Set and rest are one amount before it runs: its own node has it, or another one has all of it."""
    world.create("a", wish(1000, set=2000))
    assert world.fitting("a", ["n2", "n1"]) == ("n1", "n2")
    assert world.bind("a", "n0") == ""
    world.settle()
    assert [(part.node, part.milli) for part in world.parts("a")] == [("n1", 2000)]
    world.create("c", wish(0, set=2000))
    assert world.fitting("c") == ()
    world.remove("a-w1")
    world.remove("a")
    assert world.fitting("c") == ("n1", "n2", "n0")
    world.start("c")
    world.settle()
    assert (world.has("c"), world.parts("c")) == (2000, ())


def test_limit_counts_the_part(world: NewPods) -> None:
    """One of the two GPUs of a wish is permitted: that is the part, and nothing is left for another pod."""
    world.limited(2)
    world.settle()
    world.create("a", 2)
    assert world.bind("a", "n0") == ""
    world.settle()
    assert [part.milli for part in world.parts("a")] == [1000]
    world.create("c", 1)
    world.start("c")
    world.settle()
    assert sum(map(world.has, world.pods)) == 2000
    assert world.has("c") == 0


def test_limit_keeps_new_pods_on_nodes_with_their_gpus(world: NewPods) -> None:
    """It is in line for these; once its owner may have GPUs of other nodes, it fits without any."""
    world.limited(remote=False)
    world.create("a", 2)
    assert world.fitting("a") == ("n1",)
    assert "n0" in world.bind("a", "n0")
    world.limited()
    assert world.fitting("a") == ("n1", "n2", "n0")
    world.limited(remote=False)
    assert world.fitting("a") == ("n1",)


def test_kube_scheduler_is_made_to_ask_again_once_a_pair_serves_a_pod(world: NewPods) -> None:
    """The next pod of each kind, which stands in no line, is asked for; if that does not help, it waits on."""
    kinds: list[str] = []

    def write(decisions: Iterable[Decision], kind: str) -> None:
        for decision in decisions:
            kinds.append(f"{decision.uid} {kind}")
            world._write(decision.uid, decision.allocated)

    async def run() -> None:
        waiting = WaitingPods(world.cache, write, POLICY, wake_seconds=0.01)
        for uid in ("c", "d"):
            world.create(uid, 1)
            waiting.asked(uid, ("n0",), fits=False)
            assert world.state(uid).nominated == ""
        waiting.wake_apart()
        await asyncio.sleep(0.05)
        assert kinds == ["c nominate", "d nominate"]
        world.annotate("a", **{REQUESTED: "1"})
        world.settle()
        waiting.wake_apart()
        waiting.wake_apart()
        async with asyncio.timeout(60):
            while not world.state("c").blocked:
                await asyncio.sleep(0.01)
        waiting.wake_apart()
        async with asyncio.timeout(60):
            while "d wake" not in kinds:
                await asyncio.sleep(0.01)
        assert kinds[2:] == ["c wake", "d wake"]
        waiting.stop()

    world.create("a", 2)
    assert world.bind("a", "n0") == ""
    world.settle()
    asyncio.run(run())


NEW = ("x", "y", "z")
STEP = some.one_of(
    some.tuples(some.just("create"), some.sampled_from(NEW), some.sampled_from([1, 2, 3, wish(1000, set=2000), "0.5"])),
    some.tuples(some.just("bind"), some.sampled_from(NEW), some.sampled_from(sorted(NODES))),
    some.tuples(some.just("start"), some.sampled_from(NEW), some.none()),
    some.tuples(some.just("fails"), some.sampled_from(NEW), some.booleans()),
    some.tuples(some.just("dies"), some.sampled_from(NEW), some.booleans()),
    some.tuples(some.just("wish"), some.sampled_from([*NEW, "a"]), some.integers(0, 3)),
    some.tuples(some.just("remove"), some.sampled_from(NEW), some.none()),
    some.tuples(some.just("limit"), some.integers(1, 4), some.none()),
    some.tuples(some.just("follow"), some.none(), some.none()),
    some.tuples(some.just("settle"), some.none(), some.none()),
)


@settings(deadline=None, max_examples=20)
@given(some.lists(STEP, max_size=12))
def test_any_history_of_new_pods_keeps_limits_and_gives_nothing_twice(steps: Sequence[Any]) -> None:
    """Bindings that fail or whose leader dies, among all else: an owner within the limit, no GPU twice, all served."""
    world = NewPods()
    world.notebook("a", 0)
    for kind, who, what in steps:
        if kind == "create" and who not in world.pods:
            world.create(who, what)
        elif kind == "limit":
            world.limited(who)
            world.time += 10**6
        elif kind == "follow":
            world.follow()
        elif kind == "settle":
            world.settle()
        elif who in world.pods and kind in ("bind", "fails", "dies", "start", "remove", "wish"):
            act(world, kind, who, what)
        world.reconcile()
        most = world.limit["spec"]["max"] * 1000 if world.limit else 10**6
        assert sum(map(world.has, world.pods)) <= most
        for name in NODES:
            assert not world.cache.snapshot.contested(name)
    world.settle()
    for uid in ("a", *NEW):
        if uid in world.pods and not world.state(uid).pending:
            asked = decode_requested(world.pods[uid]["metadata"]["annotations"][REQUESTED])
            assert world.whole(uid) <= asked.milli + (asked.wish.set or 0)
    world.restart()
    assert world.reconcile() == 0


def act(world: NewPods, kind: str, who: str, what: Any) -> None:
    """Do one step to a pod that is there."""
    pending = world.state(who).pending
    if kind == "wish":
        world.annotate(who, **{REQUESTED: str(what)})
    elif kind == "start":
        world.start(who)
    elif kind == "remove":
        for worker in [uid for uid in world.pods if uid.startswith(f"{who}-")]:
            world.remove(worker)
        world.remove(who)
    elif kind == "bind" and pending:
        world.bind(who, what)
    elif kind == "fails" and pending:
        world.api.error, world.api.done = Unavailable(0, "", "away"), what
        world.bind(who, "n0")
        world.api.error = None
    elif kind == "dies" and pending:
        world.api.error, world.api.done = asyncio.CancelledError(), what
        with suppress(asyncio.CancelledError):
            world.bind(who, "n0", shown=False)
        world.api.error = None
        world.restart()
