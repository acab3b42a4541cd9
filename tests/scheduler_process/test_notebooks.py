"""Notebooks with workers in the cluster cache: limits hold over both, and a new leader decides as the old one.

What API server, worker controller, kube-scheduler and node plugins do is done to the objects here, one step at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    SERVICE,
    WORKER,
    WORKER_STATUS,
    Allocated,
    Attached,
    decode_allocated,
    decode_attached,
    decode_requested,
    encode,
)
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.service import (
    Service,
    WorkerIdentity,
    WorkerPart,
    WorkerService,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
    decode_service,
    decode_worker_service,
)
from jupyter_gpu_scheduler.clocks import Clocks
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.notebooks import STEPS
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.settings import NotebookWorkerSettings, SchedulerSettings
from tests.scheduler_process.test_cluster_cache import node, pod

GIB = 1024**3
NODES = {"n0": 1, "n1": 2, "n2": 1}


class Cluster:
    """Three nodes, the pods' JSON by uid, and the cache of a leader."""

    def __init__(self, **workers: Any) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.time = 1000.0
        self.limit: dict[str, Any] | None = None
        self.kinds: dict[str, tuple[str, int]] = {}
        self._version = 0
        self._settings = SchedulerSettings(workers=NotebookWorkerSettings(**{"namespaces": ("ns",), **workers}))
        self.writes = 0
        self.restart()

    def restart(self) -> None:
        """Another process leads, which knows the objects alone."""
        clocks = Clocks(lambda: self.time, lambda: self.time)
        self.cache = ClusterCache(lambda: None, self._settings, clocks=clocks)
        for name, gpus in NODES.items():
            self.cache.node_changed(ObjectChange("added", self.node(name, gpus)))
        if self.limit:
            self.cache.limit_changed(read_limit(self.limit))
        for body in self.pods.values():
            self.cache.pod_changed(ObjectChange("added", body))
        self.cache.mark_all_changed()

    def node(self, name: str, gpus: int) -> dict[str, Any]:
        """Return a node with slots and so many GPUs, of another kind where `kinds` names one: model and GiB."""
        body = node(name, gpus)
        body["status"]["allocatable"]["jupyter-gpu.io/slot"] = "9"
        model, memory = self.kinds.get(name, ("m", 1))
        found = (Gpu(f"{name}-{index}", index, model, memory * GIB) for index in range(gpus))
        body["metadata"]["annotations"][INVENTORY] = encode(tuple(found))
        return body

    def put(self, body: dict[str, Any]) -> None:
        """Put an object as the API server has it, and tell the cache."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.pods[body["metadata"]["uid"]] = body
        self.cache.pod_changed(ObjectChange("changed", json.loads(json.dumps(body))))

    def annotate(self, uid: str, **words: str | None) -> None:
        """Change annotations."""
        body = json.loads(json.dumps(self.pods[uid]))
        kept = {**body["metadata"]["annotations"], **words}
        body["metadata"]["annotations"] = {key: text for key, text in kept.items() if text is not None}
        self.put(body)

    def notebook(self, uid: str, wants: object, on: str = "n0") -> None:
        """A pod of ann wishes."""
        if uid not in self.pods:
            body = pod(uid, 0, on)
            body["spec"]["containers"][0]["image"] = "lab:1"
            body["metadata"]["annotations"] = {USERNAME: "ann", HUB: "hub"}
            self.put(body)
        self.annotate(uid, **{REQUESTED: wants if isinstance(wants, str) else str(wants)})

    def limited(self, most: int | None = None, **fields: Any) -> None:
        """The pods of ann together may have so many GPUs, or what other fields of the limit say."""
        spec = {"subject": {"kind": "User", "name": "ann"}, **fields, **({} if most is None else {"max": most})}
        self.limit = {"metadata": {"name": "ann"}, "spec": spec}
        self.cache.limit_changed(read_limit(self.limit))

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        self.cache.pod_changed(ObjectChange("removed", self.pods.pop(uid)))

    # --- the processes ------------------------------------------------------------------------------------------------

    def reconcile(self) -> int:
        """Decide and write until nothing changes, as the controller does; return the number of writes."""
        before = self.writes
        for _ in range(20):
            count = self.writes
            self.cache.catch_up()
            for uid in self.cache.notebooks.to_review(self.cache.take_changed_nodes()):
                for _ in range(STEPS):
                    if not self.cache.divide(uid):
                        break
            for name in NODES:
                for decision in decide(self.cache.snapshot, name):
                    if self.cache.record(decision.uid):
                        self._write(decision.uid, decision.allocated)
            for uid in self.cache.notebooks.all_due():
                record = self.cache.record(uid)
                if record and record.state.allocated:
                    self._write(uid, record.state.allocated)
            if count == self.writes:
                return self.writes - before
        raise AssertionError("it does not come to rest")

    def _write(self, uid: str, allocated: Allocated) -> None:
        self.writes += 1
        pending_write = self.cache.assume(uid, allocated)
        body = json.loads(json.dumps(self.pods[uid]))
        words = {ALLOCATED: encode(allocated)}
        if pending_write.service:
            words[SERVICE] = encode(pending_write.service)
        body["metadata"]["annotations"].update(words)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.pods[uid] = body
        self.cache.finish_write(uid, pending_write, read_pod(body, self.cache.record(uid)))

    def follow(self) -> None:
        """Controller, kube-scheduler and node plugins do what was decided."""
        named = {f"{uid}-{part.id}": (uid, part) for uid in tuple(self.pods) for part in self.parts(uid)}
        for name, (uid, part) in named.items():
            if name not in self.pods:
                self.put(worker(name, uid, part.id))
            self._bind(name, part)
        for uid in [uid for uid, body in self.pods.items() if WORKER in body["metadata"]["annotations"]]:
            if uid not in named:
                self.remove(uid)
        for uid in tuple(self.pods):
            text = self.pods[uid]["metadata"]["annotations"].get(ALLOCATED)
            if text and self.pods[uid]["spec"]["nodeName"]:
                decided = decode_allocated(text)
                done = Attached(decided.observed_generation, decided.shares, revision=decided.revision)
                if self.pods[uid]["metadata"]["annotations"].get(ATTACHED) != encode(done):
                    self.annotate(uid, **{ATTACHED: encode(done)})

    def _bind(self, name: str, part: WorkerPart) -> None:
        state = self.state(name)
        if state.pending:
            found = allocate(self.cache.snapshot, state, part.node)
            if isinstance(found, Allocated):
                body = json.loads(json.dumps(self.pods[name]))
                body["spec"]["nodeName"] = part.node
                body["metadata"]["annotations"][ALLOCATED] = encode(found)
                self.put(body)

    def settle(self) -> None:
        """All do what they do, until all is done."""
        for _ in range(8):
            self.reconcile()
            self.follow()
        assert self.reconcile() == 0

    # --- what is so ---------------------------------------------------------------------------------------------------

    def state(self, uid: str) -> PodState:
        """Return a pod that is known."""
        found = self.cache.snapshot.pod(uid)
        assert found
        return found

    def parts(self, uid: str) -> tuple[WorkerPart, ...]:
        """Return the parts of a pod's `service`."""
        words = self.pods[uid]["metadata"]["annotations"]
        return decode_service(words[SERVICE]).workers if SERVICE in words and WORKER not in words else ()

    def shares(self, uid: str) -> tuple[GpuShare, ...]:
        """Return the shares that are allocated to a pod."""
        text = self.pods[uid]["metadata"]["annotations"].get(ALLOCATED) if uid in self.pods else None
        return decode_allocated(text).shares if text else ()

    def has(self, uid: str) -> int:
        """Return the milli that are allocated to a pod."""
        return total(self.shares(uid))

    def of_kind(self) -> Counter[str]:
        """Return the milli that all pods have, by model, and the GiB, by ``GiB``."""
        found: Counter[str] = Counter()
        for share in (share for uid in self.pods for share in self.shares(uid)):
            model, memory = self.kinds[share.uuid.partition("-")[0]]
            found.update({model: share.milli, "GiB": share.milli * memory // 1000})
        return found

    def elsewhere(self, uid: str) -> int:
        """Return the GPUs of other nodes that a pod could ever have, as its `service` says."""
        text = self.pods[uid]["metadata"]["annotations"].get(SERVICE)
        return decode_service(text).elsewhere // 1000 if text else 0

    def whole(self, uid: str) -> int:
        """Return the milli of a notebook and its workers."""
        return self.has(uid) + sum(self.has(f"{uid}-{part.id}") for part in self.parts(uid))


def worker(name: str, notebook: str, number: str, image: str = "lab:1") -> dict[str, Any]:
    """Return the pod that the worker controller creates."""
    body = pod(name, 0)
    body["spec"]["containers"][0]["image"] = image
    body["metadata"]["annotations"] = {WORKER: encode(WorkerIdentity(notebook, number))}
    return body


def test_limit_holds_over_a_notebook_and_its_workers() -> None:
    """Of four that it wishes it may have two: one here, one elsewhere; a lower one takes the one elsewhere."""
    world = Cluster()
    world.limited(2)
    world.notebook("a", 4)
    world.settle()
    assert (world.has("a"), world.whole("a")) == (1000, 2000)
    assert [part.milli for part in world.parts("a")] == [1000]
    assert world.state("a-w1").owner == world.state("a").owner
    world.limited(1)
    world.cache.owners.due()
    world.time += 10**6
    world.settle()
    assert world.whole("a") == 1000
    world.limited(3)
    world.settle()
    assert world.whole("a") == 3000


def test_room_below_a_limit_goes_to_a_worker_first() -> None:
    """Its part was promised; what its notebook waits for here would keep it from that in vain."""
    world = Cluster()
    world.limited(2)
    world.notebook("bob", 1, "n1")
    world.annotate("bob", **{USERNAME: "bob"})
    world.settle()
    world.notebook("a", 3, "n1")
    world.settle()
    assert (world.has("a"), world.whole("a")) == (1000, 2000)
    attached = json.loads(world.pods["a"]["metadata"]["annotations"][ATTACHED])
    opened = [share["uuid"] for share in attached["shares"]]
    world.annotate("a", **{ATTACHED: json.dumps({**attached, "open": opened})})  # so the worker's is given back
    for most in (1, 2):
        world.limited(most)
        world.time += 10**6
        world.settle()
        assert world.whole("a") == most * 1000


def test_worker_with_another_image_gets_nothing() -> None:
    """Whoever made it; what is promised to the right one is kept for that."""
    world = Cluster()
    world.notebook("a", 2)
    world.reconcile()
    (part,) = world.parts("a")
    world.put(worker("a-w1", "a", "w1", "evil:1"))
    body = json.loads(json.dumps(world.pods["a-w1"]))
    body["spec"]["nodeName"] = part.node
    world.put(body)
    world.reconcile()
    assert world.has("a-w1") == 0
    assert "another image" in world.state("a-w1").fault


def test_worker_is_kept_for_a_while_then_goes() -> None:
    """The time is in `service`, so that another leader goes on counting."""
    world = Cluster(grace_seconds=60)
    world.notebook("a", 2)
    world.settle()
    world.notebook("a", 1)
    world.settle()
    assert [(part.milli, part.idle_since) for part in world.parts("a")] == [(0, 1000)]
    world.time += 59
    world.restart()
    world.settle()
    assert world.cache.seconds_until_due() == 1
    world.time += 1
    world.settle()
    assert world.parts("a") == ()
    assert "a-w1" not in world.pods


def test_workers_end_with_their_notebook() -> None:
    """Its end takes the GPUs of workers and promises at once; others can have them."""
    world = Cluster()
    world.notebook("a", 2)
    world.settle()
    world.notebook("c", 3)
    world.reconcile()
    assert world.cache.snapshot.pod("worker:c:w1")
    world.remove("c")
    assert world.cache.snapshot.pod("worker:c:w1") is None
    world.remove("a")
    world.reconcile()
    assert world.has("a-w1") == 0


def test_deleted_worker_is_replaced_by_a_promise_at_once() -> None:
    """While its pod ends, no other pod gets the GPUs that the next one is to have."""
    world = Cluster()
    world.notebook("a", 4)
    world.settle()
    assert world.whole("a") == 4000
    body = json.loads(json.dumps(world.pods["a-w1"]))
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(body)
    assert world.cache.snapshot.pod("worker:a:w1")
    world.notebook("b", 2, "n1")
    world.reconcile()
    world.remove("a-w1")
    world.reconcile()
    assert world.has("b") == 0
    world.settle()
    assert world.whole("a") == 4000


def test_notebook_whose_wish_cannot_be_read_keeps_all() -> None:
    """It gets nothing new, here or elsewhere; neither is anything taken."""
    world = Cluster()
    world.notebook("a", 3)
    world.settle()
    world.notebook("a", '{"generation": 2, "milli": "x"}')
    world.settle()
    assert world.whole("a") == 3000


def test_workers_are_allowed_no_more() -> None:
    """After the setting was taken away, all that is elsewhere is given back."""
    world = Cluster()
    world.notebook("a", 3)
    world.settle()
    world._settings = SchedulerSettings()
    world.restart()
    world.settle()
    assert [part.milli for part in world.parts("a")] == [0]
    assert (world.has("a"), world.has("a-w1")) == (1000, 0)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_node_that_has_more_gpus_serves_more(elsewhere: bool) -> None:
    """A wish above what the own node ever had: its new GPU is used, and an unopened part comes home."""
    world = Cluster()
    if not elsewhere:
        world.notebook("b", 2, "n1")
        world.notebook("c", 1, "n2")
        world.settle()
    world.notebook("a", 2)
    world.settle()
    assert world.has("a-w1") == 1000 * elsewhere
    world.cache.node_changed(ObjectChange("changed", world.node("n0", 2)))
    world.reconcile()
    world.follow()
    world.reconcile()
    assert (world.has("a"), world.has("a-w1")) == (2000, 0)


def test_silence_of_the_worker_controller_is_noticed_once() -> None:
    """Ten seconds after a worker was named, if nothing was told of it; not where something was."""
    world = Cluster()
    world.notebook("a", 2)
    world.notebook("b", 3, "n1")
    world.reconcile()
    assert world.cache.seconds_until_due() == 10
    told = WorkerStatuses({"w1": WorkerStatus(WorkerState.CREATING)})
    world.annotate("b", **{WORKER_STATUS: encode(told)})
    assert list(world.cache.notebooks.unanswered()) == []
    world.time += 10
    assert list(world.cache.notebooks.unanswered()) == ["a"]
    assert list(world.cache.notebooks.unanswered()) == []
    assert world.cache.seconds_until_due() is None


def test_what_was_not_confirmed_is_forgotten_by_the_next_leader() -> None:
    """A `service` that was decided when the lead was lost counts no more, and is decided again."""
    world = Cluster()
    world.notebook("a", 2)
    world.cache.take_changed_nodes()
    assert world.cache.divide("a")
    assert world.state("a").requested
    assert world.cache.notebooks.due("a")
    world.cache.forget_due()
    assert world.cache.notebooks.due("a") is None
    assert world.cache.snapshot.pod("worker:a:w1") is None
    world.settle()
    assert world.whole("a") == 2000


def test_service_that_was_taken_away_is_written_again() -> None:
    """Somebody removed the annotation: what was promised is decided anew, and nothing is given twice."""
    world = Cluster()
    world.notebook("a", 2)
    world.settle()
    world.annotate("a", **{SERVICE: None})
    world.settle()
    assert world.whole("a") == 2000


def test_worker_accepts_the_notebook_by_its_newest_key() -> None:
    """The revision counts its changes; without a key it accepts nobody."""
    world = Cluster()
    world.notebook("a", 2)
    world.settle()

    def accepts() -> WorkerService:
        return decode_worker_service(world.pods["a-w1"]["metadata"]["annotations"][SERVICE])

    assert (accepts().uid, accepts().key, accepts().revision) == ("a", "", 0)
    for number, key in enumerate(("a" * 40, "b" * 40), start=1):
        attached = json.loads(world.pods["a"]["metadata"]["annotations"][ATTACHED])
        world.annotate("a", **{ATTACHED: json.dumps({**attached, "peer": {"keys": {"w1": key}}})})
        world.reconcile()
        assert (accepts().key, accepts().revision) == (key, number)


@pytest.mark.parametrize("text", ["{", json.dumps({"notebook": "a"})])
def test_worker_that_cannot_be_read_is_nobodys(text: str) -> None:
    """It gets nothing, and no notebook is concerned."""
    world = Cluster()
    body = worker("x", "a", "w1")
    body["metadata"]["annotations"] = {WORKER: text, REQUESTED: "1"}
    body["spec"]["nodeName"] = "n1"
    world.put(body)
    world.settle()
    assert world.has("x") == 0


def wish(milli: int, **fields: Any) -> str:
    """Return the text of a wish."""
    return json.dumps({"generation": 9, "milli": milli, **fields})


def test_service_says_what_other_nodes_could_give() -> None:
    """For the end of the slider, also of a pod without workers; anew when another node has other GPUs."""
    world = Cluster()
    world.notebook("a", 0)
    world.notebook("b", 1, "n1")
    world.settle()
    assert (world.elsewhere("a"), world.elsewhere("b")) == (3, 2)
    assert world.parts("a") == ()
    world.cache.node_changed(ObjectChange("changed", world.node("n2", 3)))
    world.settle()
    assert (world.elsewhere("a"), world.elsewhere("b")) == (5, 4)
    world.cache.node_changed(ObjectChange("removed", world.node("n2", 3)))
    world.notebook("b", wish(1000, placement="local"))
    world.settle()
    assert (world.elsewhere("a"), world.elsewhere("b")) == (2, 0)
    world._settings = SchedulerSettings()
    world.restart()
    world.settle()
    assert world.elsewhere("a") == 0


def test_service_says_nothing_of_nodes_that_keep_workers_out() -> None:
    """Of a node with a taint only what a pod that tolerates it could have, and only that pod gets GPUs there."""
    world = Cluster()
    tainted = world.node("n1", 2)
    tainted["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    world.cache.node_changed(ObjectChange("changed", tainted))
    world.notebook("a", 3)
    world.settle()
    assert (world.elsewhere("a"), world.whole("a")) == (1, 2000)
    body = json.loads(json.dumps(world.pods["a"]))
    body["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    world.put(body)
    world.settle()
    assert (world.elsewhere("a"), world.whole("a")) == (3, 3000)


def test_set_is_on_one_node_within_the_limit() -> None:
    """What the pod has here counts, too: beside one here, a limit of two permits no set of two elsewhere."""
    world = Cluster()
    world.notebook("a", 1)
    world.settle()
    for most, whole in ((2, 1000), (3, 3000), (None, 3000)):
        world.limited(most)
        world.notebook("a", wish(2000, base=1000, set=2000))
        world.time += 10**6
        world.settle()
        assert (most, world.has("a"), world.whole("a")) == (most, 1000, whole)
        world.notebook("a", 1)
        world.settle()
        assert world.whole("a") == 1000
    world._settings = SchedulerSettings()
    world.restart()
    world.notebook("c", wish(0, set=2000), "n1")
    world.settle()
    assert world.has("c") == 2000, "the own node serves it, where no other may"


@pytest.mark.parametrize(
    ("on", "wants", "most", "found"),
    [
        ("n0", 2, 1, {"A100": 1000}),
        ("n0", 2, 2, {"A100": 1000, "L4": 1000}),
        ("n1", 4, 1, {"A100": 1000}),
        ("n2", 3, 1, {"A100": 1000, "L4": 1000}),
        ("n2", 3, 2, {"A100": 2000, "L4": 1000}),
    ],
)
def test_limit_of_a_model_holds_across_nodes(on: str, wants: int, most: int, found: dict[str, int]) -> None:
    """Of the model that it limits there are so many here and elsewhere together."""
    world = Cluster()
    world.kinds = {"n0": ("A100", 40), "n1": ("A100", 40), "n2": ("L4", 24)}
    world.restart()
    world.limited(models=[{"model": "A100", "max": most}])
    world.notebook("a", wants, on)
    world.settle()
    assert {model: milli for model, milli in world.of_kind().items() if model != "GiB"} == found


def test_limit_of_memory_holds_across_nodes() -> None:
    """GPUs of other nodes may be larger: their bytes count, not their number."""
    world = Cluster()
    world.kinds = {"n0": ("A", 40), "n1": ("B", 80), "n2": ("B", 80)}
    world.restart()
    for most in (40, 60, 120, 40):
        world.limited(memory=f"{most}Gi")
        world.time += 10**6
        world.notebook("a", 3)
        world.settle()
        assert most / 2 <= world.of_kind()["GiB"] <= most


STEP = some.one_of(
    some.tuples(some.just("wish"), some.sampled_from([("a", "n0"), ("b", "n1"), ("c", "n2")]), some.integers(0, 4)),
    some.tuples(some.just("set"), some.sampled_from([("a", "n0"), ("b", "n1")]), some.integers(1, 3)),
    some.tuples(some.just("limit"), some.integers(1, 4), some.none()),
    some.tuples(some.just("open"), some.sampled_from(["a-w1", "b-w1", "a", "b"]), some.booleans()),
    some.tuples(some.just("restart"), some.none(), some.none()),
    some.tuples(some.just("follow"), some.none(), some.none()),
    some.tuples(some.just("settle"), some.none(), some.none()),
)


@settings(deadline=None, max_examples=25)
@given(some.lists(STEP, max_size=10))
def test_any_history_keeps_limits_and_gives_nothing_twice(steps: Sequence[Any]) -> None:
    """Whatever happens between: Σ of an owner within the limit, no GPU twice, and a new leader changes nothing."""
    world = Cluster()
    for kind, who, what in steps:
        if kind == "wish":
            world.notebook(who[0], what, who[1])
        elif kind == "set":
            world.notebook(who[0], wish(1000, set=1000 * what), who[1])
        elif kind == "limit":
            world.limited(who)
            world.time += 10**6
        elif kind == "open" and who in world.pods and ATTACHED in world.pods[who]["metadata"]["annotations"]:
            attached = decode_attached(world.pods[who]["metadata"]["annotations"][ATTACHED])
            opened = tuple(share.uuid for share in attached.shares) if what else ()
            world.annotate(who, **{ATTACHED: json.dumps({**attached.to_json(), "open": list(opened)})})
        elif kind == "restart":
            world.restart()
        elif kind == "follow":
            world.follow()
        elif kind == "settle":
            world.settle()
        world.reconcile()
        most = world.limit["spec"]["max"] * 1000 if world.limit else 10**6
        assert sum(map(world.has, world.pods)) <= most
        for name in NODES:
            assert not world.cache.snapshot.contested(name)
    world.settle()
    for uid in ("a", "b", "c"):
        if uid in world.pods:
            asked = decode_requested(world.pods[uid]["metadata"]["annotations"][REQUESTED])
            assert world.whole(uid) <= asked.milli + (asked.wish.set or 0)
    world.restart()
    assert world.reconcile() == 0
    assert Service(0).workers == ()
