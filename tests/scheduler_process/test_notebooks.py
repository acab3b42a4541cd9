"""Notebooks with workers in the cluster cache: limits hold over both, and a new leader decides as the old one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import (
    ATTACHED,
    REQUESTED,
    SERVICE,
    WORKER,
    WORKER_STATUS,
    Attached,
    decode_attached,
    decode_requested,
    encode,
)
from jupyter_gpu.model.gpu import DrainingShare, Holder
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.limits.owner import USERNAME
from jupyter_gpu.model.service import (
    Relation,
    Service,
    WorkerService,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
    decode_worker_service,
)
from jupyter_gpu_scheduler.rules.pairs.relation import Network
from jupyter_gpu_scheduler.settings import SchedulerSettings
from tests.scheduler_process.notebook_stage import GIB, NODES, RACK, Cluster, wish, worker


def test_limit_holds_over_a_notebook_and_its_workers() -> None:
    """It may have two of the four that it wishes: one here, one elsewhere; a lower one takes the one elsewhere."""
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


@pytest.mark.parametrize(("keys", "node", "relation"), [((RACK,), "n1", Relation.SWITCH), ((), "n2", Relation.UNKNOWN)])
def test_labels_of_the_settings_name_the_switch(keys: tuple[str, ...], node: str, relation: Relation) -> None:
    """The node of the same rack gives the GPU, and the notebook is told how near it is; without labels another is."""
    world = Cluster(Network(switch=100, other=0, switch_keys=keys))
    world.racks = {"n0": "r1", "n1": "r1", "n2": "r2"}
    world.restart()
    world.notebook("a", 2)
    world.settle()
    (part,) = world.parts("a")
    assert (part.node, part.relation) == (node, relation)


LOOP = some.lists(some.tuples(some.integers(0, 3), some.booleans()), max_size=8)


@settings(deadline=None, max_examples=25)
@given(LOOP, some.integers(1, 3))
@example([(2, True), (0, False), (2, False), (0, False), (2, True)], 2)
def test_a_notebook_alone_may_wish_up_to_its_limit_while_workers_close(
    wishes: Sequence[tuple[int, bool]], most: int
) -> None:
    """It is told so at each moment, and all that it and its workers hold stays within the limit."""
    world = Cluster()
    world.limited(most)
    for amount, closes in wishes:
        world.notebook("a", amount)
        world.reconcile()
        if closes:
            world.settle()
        limit = world.allocated("a").limit
        assert limit
        assert limit.together().milli == 1000 * most
        assert world.cache.snapshot.holds(world.state("a").owner) <= 1000 * most


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


def test_part_moves_from_a_worker_that_gets_no_node() -> None:
    """Kubernetes does not place it, so another node gives the GPUs; a sentence says why, once."""
    world = Cluster(grace_seconds=60)
    world.notebook("a", 2)
    world.reconcile()
    (first,) = world.parts("a")
    world.put(worker("a-w1", "a", "w1"))
    waits = {WORKER_STATUS: encode(WorkerStatuses({"w1": WorkerStatus(WorkerState.CREATING, "1 had a taint.")}))}
    world.annotate("a", **waits)
    world.reconcile()
    assert [(part.node, part.milli) for part in world.parts("a")] == [(first.node, 1000)]
    failed = {WORKER_STATUS: encode(WorkerStatuses({"w1": WorkerStatus(WorkerState.FAILED, "1 had a taint.")}))}
    world.annotate("a", **failed)
    world.reconcile()
    moved = {part.node: part.milli for part in world.parts("a")}
    (other,) = {"n1", "n2"} - {first.node}
    assert moved == {first.node: 0, other: 1000}
    assert world.cache.notebooks.take_moved() == (
        ("a", f"{other} gives the GPUs that {first.node} was to give. 1 had a taint."),
    )
    assert world.cache.notebooks.take_moved() == ()
    world.restart()
    assert world.reconcile() == 0
    world.notebook("a", 4)
    world.reconcile()
    assert {part.node: part.milli for part in world.parts("a")}[first.node] == 0, "it is left out while it is named"
    world.time += 60
    world.notebook("a", 2)
    world.reconcile()
    assert [part.node for part in world.parts("a")] == [other]


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
    world.cache.divide("a")
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


def test_memory_alone_is_found_on_another_node() -> None:
    """``service`` names the kinds of others, and one of them serves the wish of a notebook whose node has no GPU."""
    world = Cluster()
    world.gate, world.kinds = True, {"n1": ("L4", 24), "n2": ("A100", 80)}
    world.restart()
    world.cache.node_changed(ObjectChange("changed", world.node("n0", 0)))
    world.notebook("a", 0)
    world.settle()
    kinds = (GpuKind("A100", 80 * GIB, gate=True), GpuKind("L4", 24 * GIB, gate=True))
    assert world.kinds_elsewhere("a") == kinds
    world.notebook("a", wish(1, memory=40 * GIB))
    world.settle()
    (part,) = world.parts("a")
    assert (part.node, part.milli, world.has("a-w1")) == ("n2", 1, 1)
    assert world.kinds_elsewhere("a") == kinds


def test_service_names_programs_that_keep_a_gpu_of_a_worker_open() -> None:
    """As the worker's node says, until they end."""
    world = Cluster()
    world.notebook("a", 2)
    world.settle()
    (part,) = world.parts("a")
    (share,) = world.shares("a-w1")
    world.notebook("a", 1)
    world.settle()
    stays = Attached(9, (), (DrainingShare(share.uuid, 1000, (Holder(7, "python"),)),))
    world.annotate("a-w1", **{ATTACHED: encode(stays)})
    world.reconcile()
    world.follow()
    assert world.parts("a")[0].draining == stays.draining
    world.annotate("a-w1", **{ATTACHED: encode(Attached(10))})
    world.reconcile()
    world.follow()
    assert (part.draining, world.parts("a")[0].draining) == ((), ())


def test_service_says_nothing_of_nodes_that_keep_workers_out() -> None:
    """A node with a taint counts only for a pod that tolerates it, and only that pod gets GPUs there."""
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
    """GPUs that the pod has here count, too: beside one here, a limit of two permits no set of two elsewhere."""
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
        ("n0", 2, 1, {"A100": 1000, "L4": 1000}),
        ("n0", 2, 2, {"A100": 1000, "L4": 1000}),
        ("n1", 4, 1, {"A100": 1000, "L4": 1000}),
        ("n2", 3, 1, {"A100": 1000, "L4": 1000}),
        ("n2", 3, 2, {"A100": 2000, "L4": 1000}),
    ],
)
def test_limit_of_a_model_holds_across_nodes(on: str, wants: int, most: int, found: dict[str, int]) -> None:
    """There are so many of the limited model here and elsewhere together."""
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
        if most == 120:
            assert world.of_kind() == {"A": 1000, "B": 1000, "GiB": 120}, "one here, and one of twice the size there"


def test_notebook_is_served_elsewhere_once_a_limit_permits_it() -> None:
    """Its own node has no GPU of the model, so its own terms say nothing of that."""
    world = Cluster()
    world.kinds = {"n0": ("L4", 24), "n1": ("A100", 80), "n2": ("A100", 80)}
    world.restart()
    for most in (0, 1, 2):
        world.limited(models=[{"model": "A100", "max": most}])
        world.notebook("a", 3)
        world.settle()
        assert world.of_kind()["A100"] == most * 1000


def test_part_comes_home_only_where_limits_permit_the_gpus_there() -> None:
    """Those of the own node are twice as large: the limit of memory permits one of them or two of the others."""
    world = Cluster()
    world.kinds = {"n0": ("B", 80), "n1": ("A", 40), "n2": ("A", 40)}
    world.restart()
    world.limited(memory="80Gi")
    world.notebook("b", 1)
    world.annotate("b", **{USERNAME: "bob"})
    world.settle()
    world.notebook("a", 2)
    world.settle()
    assert world.of_kind()["A"] == 2000
    world.remove("b")
    world.settle()
    assert (world.has("a"), world.of_kind()["A"]) == (0, 2000)
    world.limited(memory="120Gi")
    world.settle()
    assert (world.has("a"), world.of_kind()["A"]) == (1000, 1000)


KINDS = some.one_of(
    some.permutations([("A100", 40), ("A100", 80), ("L4", 24)]),
    some.permutations([("A100", 40), ("A100", 80), ("A100", 80)]),
)
MEMORY = some.sampled_from([30, 60, 100, 120, 150, 200]).map("{}Gi".format)
MODELS = some.integers(0, 3).map(lambda most: [{"model": "A100", "max": most}])
MAXIMA = some.one_of(
    some.fixed_dictionaries({"memory": MEMORY}),
    some.fixed_dictionaries({"models": MODELS}, optional={"memory": MEMORY, "most": some.integers(1, 4)}),
)
GROWING = some.lists(
    some.tuples(some.sampled_from([("a", "n0"), ("b", "n1")]), some.sampled_from([0.5, 1.5, 2, 3, 4])),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=25)
@given(KINDS, MAXIMA, GROWING)
@example([("A100", 40), ("A100", 80), ("L4", 24)], {"memory": "100Gi"}, [(("a", "n0"), 3)])
@example([("A100", 40), ("A100", 80), ("L4", 24)], {"memory": "100Gi"}, [(("b", "n1"), 0.5), (("b", "n1"), 2)])
def test_parts_are_what_workers_get_and_nobody_loses_anything(
    kinds: Sequence[tuple[str, int]], maxima: dict[str, Any], wishes: Sequence[Any]
) -> None:
    """It holds for all kinds of GPUs of the nodes, while wishes only grow and limits stay."""
    world = Cluster()
    world.kinds = dict(zip(NODES, kinds, strict=True))
    world.limited(**maxima)
    world.restart()
    wanted: dict[str, float] = {}
    for (uid, on), amount in wishes:
        wanted[uid] = max(amount, wanted.get(uid, 0))
        world.notebook(uid, wanted[uid], on)
        world.settle()
        for name in wanted:
            for part in world.parts(name):
                assert world.has(f"{name}-{part.id}") == part.milli
        found = world.of_kind()
        assert found["GiB"] <= int(maxima.get("memory", "999Gi").removesuffix("Gi"))
        assert found["A100"] <= 1000 * next((one["max"] for one in maxima.get("models", ())), 99)
        assert found["A100"] + found["L4"] <= 1000 * maxima.get("most", 99)
    assert world.given_back == 0


STEP = some.one_of(
    some.tuples(some.just("wish"), some.sampled_from([("a", "n0"), ("b", "n1"), ("c", "n2")]), some.integers(0, 4)),
    some.tuples(some.just("set"), some.sampled_from([("a", "n0"), ("b", "n1")]), some.integers(1, 3)),
    some.tuples(some.just("limit"), some.fixed_dictionaries({"most": some.integers(1, 4)}), some.none()),
    some.tuples(some.just("limit"), some.fixed_dictionaries({"memory": MEMORY}), some.none()),
    some.tuples(some.just("limit"), some.fixed_dictionaries({"remote": some.booleans()}), some.none()),
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
    world.kinds = {"n0": ("A", 80), "n1": ("B", 40), "n2": ("A", 80)}
    world.restart()
    for kind, who, what in steps:
        if kind == "wish":
            world.notebook(who[0], what, who[1])
        elif kind == "set":
            world.notebook(who[0], wish(1000, set=1000 * what), who[1])
        elif kind == "limit":
            world.limited(**who)
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
        most = world.limit["spec"] if world.limit else {}
        assert sum(map(world.has, world.pods)) <= 1000 * most.get("max", 99)
        assert world.of_kind()["GiB"] <= int(most.get("memory", "999Gi").removesuffix("Gi"))
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
