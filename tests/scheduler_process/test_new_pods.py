"""New pods through the real kube-scheduler, which asks our process over mutual TLS."""

import functools
import json
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, SERVICE, Allocated, Reason, decode_allocated
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.service import decode_service
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED
from tests.builders import GIB
from tests.cluster.testbed import ControlPlane, control_plane, until
from tests.cluster.testbed.pki import Identity
from tests.cluster.testbed.ports import free
from tests.scheduler_process.stage import Scheduler, Stage

pytestmark = pytest.mark.cluster


@functools.cache
def _port() -> int:
    """Return the extender's port, chosen at its first use: chosen with the tests, others may take it first."""
    return free(1)[0]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, the API server, and a kube-scheduler that asks an extender on a fixed port."""
    file = tmp_path_factory.mktemp("configuration") / "scheduler.json"
    with control_plane(flags={"scheduler": [f"--config={file}"]}) as made:
        file.write_text(json.dumps(_configuration(made)))
        made.start("scheduler")
        yield made


def _identity(plane: ControlPlane, user: str) -> Identity:
    return plane.authority.issue(f"extender-{user}", user, addresses=["127.0.0.1"])


def _configuration(plane: ControlPlane) -> dict[str, Any]:
    client = _identity(plane, "kube-scheduler")
    extender = {
        "urlPrefix": f"https://127.0.0.1:{_port()}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "weight": 1,
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": str(plane.authority.identity.certificate),
            "certFile": str(client.certificate),
            "keyFile": str(client.key),
        },
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "managedResources": [{"name": "jupyter-gpu.io/slot", "ignoredByScheduler": False}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.folder / "scheduler.kubeconfig")},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "extenders": [extender],
    }


def _start(stage: Stage, *, workers: bool = False, **environ: str) -> Scheduler:
    allowed = {"workers": {"namespaces": [stage.namespace]}} if workers else {}
    return stage.scheduler(settings={"extender": _extender(stage), **allowed}, environ=environ)


def _extender(stage: Stage) -> dict[str, Any]:
    server = _identity(stage.plane, "extender")
    return {
        "port": _port(),
        "certificate": str(server.certificate),
        "key": str(server.key),
        "clientCa": str(stage.plane.authority.identity.certificate),
        "clientNames": ["kube-scheduler"],
    }


def _node_of(stage: Stage, name: str) -> str:
    return objects.node_name(stage.get(name))


def test_place_and_gpus_come_in_one_write(stage: Stage) -> None:
    """The version of the pod that first names its node names its GPUs; then they are attached."""
    node = stage.node(gpus=4)
    _start(stage)
    uid = stage.pod("a", requested=2)
    stage.until_count("a", 2)
    assert len(stage.decisions("a")) == 1
    versions = [pod for _, _, pod in stage.watcher.seen if objects.uid(pod) == uid]
    bound = next(pod for pod in versions if objects.node_name(pod))
    assert objects.node_name(bound) == node
    assert len(json.loads(objects.annotation(bound, ALLOCATED) or "{}")["shares"]) == 2
    stage.pod("none")
    until(lambda: _node_of(stage, "none"), what="a pod that wants none to be bound")
    stage.request("none", 1)
    stage.until_count("none", 1)


def test_node_and_gpus_of_another_node_come_in_one_write(stage: Stage) -> None:
    """CPU on one node alone, GPUs on another, and a crash between choice and bind; the next pod waits for them."""
    near, far = stage.node("near", gpus=0), stage.node("far", gpus=2)
    stage.pod("filler", far, cpu="7")
    dying = _start(stage, workers=True, **{faults.VARIABLE: "scheduler:reserved"})
    uid = stage.pod("a", requested=2, cpu="4")
    dying.stop_by_itself()
    assert not _node_of(stage, "a")
    _start(stage, workers=True)
    until(lambda: _node_of(stage, "a"), what="the pod to be bound")
    versions = [pod for _, _, pod in stage.watcher.seen if objects.uid(pod) == uid and objects.node_name(pod)]
    bound = versions[0] if versions else stage.get("a")
    service = decode_service(objects.annotation(bound, SERVICE) or "")
    assert objects.node_name(bound) == near
    assert [(part.node, part.milli, part.relation) for part in service.workers] == [(far, 2000, "unknown")]
    assert json.loads(objects.annotation(bound, ALLOCATED) or "{}")["shares"] == []
    stage.pod("late", requested=1, cpu="2")
    assert stage.until_reason("late", "Deferred").ticket is not None
    stage.request("a", 1)
    until(lambda: _node_of(stage, "late"), what="the pod to be bound")
    found = [decode_service(objects.annotation(stage.get(name), SERVICE) or "").workers for name in ("a", "late")]
    assert [[(part.node, part.milli) for part in parts] for parts in found] == [[(far, 1000)], [(far, 1000)]]
    assert _node_of(stage, "late") == near


def test_new_pod_starts_where_it_is_a_guest(stage: Stage) -> None:
    """In one write, where an owner rests; the next one waits in line until another owner does, and is woken then."""
    stage.scheduler(settings={"extender": _extender(stage), "lending": True})
    nodes = {name: stage.node(name, gpus=1, gate=True) for name in ("one", "two")}
    lends = {"generation": 1, "milli": 1000, "lendable": True}
    owners = {name: stage.pod(f"owner-{name}", node, lends) for name, node in nodes.items()}
    for name in owners:
        stage.until_count(f"owner-{name}", 1)
    stage.hold_open(owners["one"], f"GPU-{nodes['one']}-0")
    until(lambda: (found := stage.attached("owner-one")) and found.open, what="an owner to work")
    wish = {"generation": 1, "milli": 500, "memory": 4 * GIB, "preemptible": True}
    uid = stage.pod("guest", requested=wish)
    until(lambda: (found := stage.attached("guest")) and found.shares, what="the guest to have its share")
    assert _node_of(stage, "guest") == nodes["two"]
    (decided,) = stage.decisions("guest")
    versions = [pod for _, _, pod in stage.watcher.seen if objects.uid(pod) == uid]
    bound = next(pod for pod in versions if objects.node_name(pod))
    assert objects.annotation(bound, ALLOCATED) == decided
    found = decode_allocated(decided)
    assert (found.shares, found.reason) == ((GpuShare(f"GPU-{nodes['two']}-0", 0, 4 * GIB),), Reason.DEFERRED)
    stage.pod("late", requested=wish)
    assert stage.until_reason("late", "Deferred").ticket == (found.ticket or 0) + 1
    stage.hold_open(owners["one"])
    until(lambda: (found := stage.attached("late")) and found.shares, what="the other pod to have its share")
    assert _node_of(stage, "late") == nodes["one"]
    assert [stage.has(f"owner-{name}") for name in nodes] == [["0"], ["0"]]


def test_pod_without_room_says_why_and_waits_in_line(stage: Stage) -> None:
    """FailedScheduling names GPUs; the pod has a ticket; it starts when a resize frees its GPUs."""
    stage.node(gpus=2)
    _start(stage)
    stage.pod("owner", requested=2)
    stage.until_count("owner", 2)
    stage.pod("late", requested={"generation": 1, "milli": 2000, "priority": 3})
    assert "GPU" in stage.until_event("late", "FailedScheduling")
    assert stage.until_reason("late", "Deferred").ticket is not None
    assert not _node_of(stage, "late")
    stage.request("owner", 1)
    stage.until_count("owner", 1)
    assert not _node_of(stage, "late")
    stage.request("owner", "0")
    stage.until_count("late", 2)
    assert (stage.allocated("late") or Allocated(0)).ticket is None


def test_event_says_why_no_node_can_serve(stage: Stage) -> None:
    """More GPUs than any node has, or a wish that cannot be read: the reason is in the Event."""
    stage.node(gpus=2)
    _start(stage)
    stage.pod("huge", requested=9)
    assert "only 2 GPUs, 9 wanted" in stage.until_event("huge", "FailedScheduling")
    stage.pod("garbled", requested="{")
    assert "requested" in stage.until_event("garbled", "FailedScheduling")
    stage.request("garbled", 1)
    stage.until_count("garbled", 1)


def test_best_node_is_taken(stage: Stage) -> None:
    """Models are found where they are; two halves share a GPU."""
    stage.node("n1", gpus=2, model="NVIDIA A100-SXM4-80GB")
    rare = stage.node("n2", gpus=2, model="NVIDIA H100 80GB HBM3")
    _start(stage)
    stage.pod("picky", requested={"generation": 1, "milli": 500, "model": ["H100"]})
    stage.until_count("picky", 1)
    stage.pod("too", requested={"generation": 1, "milli": 500, "model": ["H100"]})
    stage.until_count("too", 1)
    assert _node_of(stage, "picky") == _node_of(stage, "too") == rare
    assert stage.has("picky") == stage.has("too")


def test_waiting_pod_starts_when_an_annotation_frees_its_room(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """No polling: the write that proves the GPUs closed starts it. The time is printed, not judged."""
    stage.node(gpus=1)
    _start(stage)
    samples = []
    for turn in range(3):
        names = owner, late = f"owner{turn}", f"late{turn}"
        freed = stage.pod(owner, requested=1)
        stage.until_count(owner, 1)
        uid = stage.pod(late, requested=1)
        stage.until_reason(late, "Deferred")
        settled = until(lambda: stage.events(late).get("FailedScheduling"), what="a refusal")  # noqa: B023
        assert settled
        _rest(stage, late)
        stage.request(owner, "0")
        stage.until_count(late, 1)
        seen = stage.watcher.seen
        closed = max(when for _, when, pod in seen if objects.uid(pod) == freed and ATTACHED in str(pod))
        bound = min(when for _, when, pod in seen if objects.uid(pod) == uid and objects.node_name(pod))
        assert bound > closed
        samples.append(bound - closed)
        for name in names:
            stage.delete(name)
    with capsys.disabled():
        print(f"\n  room to bound: {', '.join(f'{1000 * sample:.0f} ms' for sample in samples)}")


def _rest(stage: Stage, name: str) -> None:
    """Wait until kube-scheduler has left a pod alone for longer than its back-off: it waits for an event."""
    versions: list[str] = []

    def quiet() -> bool:
        versions.append(objects.resource_version(stage.get(name)))
        return len(versions) > 25 and len(set(versions[-25:])) == 1

    until(quiet, what="the pod to be left alone")


def test_resizes_and_new_pods_compete_by_the_same_rules(stage: Stage) -> None:
    """The pod with the higher priority is served, whether it runs already or not."""
    stage.node(gpus=2)
    _start(stage)
    stage.pod("owner", requested=1)
    stage.pod("runs", requested=1)
    stage.until_count("owner", 1)
    stage.until_count("runs", 1)
    stage.pod("new", requested={"generation": 1, "milli": 1000, "priority": 5})
    stage.until_reason("new", "Deferred")
    stage.request("runs", {"generation": 2, "milli": 2000, "priority": 1})
    stage.until_reason("runs", "Partial")
    stage.request("owner", "0")
    stage.until_count("new", 1)
    assert len(stage.has("runs")) == 1
    stage.delete("new")
    stage.until_count("runs", 2)


@pytest.mark.parametrize("point", ["scheduler:reserved", "scheduler:bound"])
def test_bind_survives_a_killed_scheduler(stage: Stage, point: str) -> None:
    """Whether or not the Binding was sent: the pod has its GPUs once, and the others are free."""
    assert point in faults.SCHEDULER_POINTS
    stage.node(gpus=2)
    first = _start(stage, workers=False, **{faults.VARIABLE: point})
    stage.pod("a", requested=1)
    until(lambda: first.process.poll() is not None, what="it to die")
    _start(stage)
    stage.until_count("a", 1)
    stage.pod("b", requested=1)
    stage.until_count("b", 1)
    assert not stage.watcher.decided_twice


@pytest.mark.parametrize("gpus", [(8, 8, 8, 8), (14, 8, 8, 2)])
def test_pods_that_start_without_a_wish_can_have_one_later(stage: Stage, gpus: tuple[int, ...]) -> None:
    """32 notebooks at once on 4 nodes: on each as many as it has GPUs, and then each wishes and has one."""
    nodes = {stage.node(f"n{number}", gpus=count, slots=40): count for number, count in enumerate(gpus)}
    _start(stage)
    names = [f"note{number}" for number in range(32)]
    for name in names:
        stage.pod(name)
    until(lambda: all(_node_of(stage, name) for name in names), what="all to have a node")
    assert Counter(_node_of(stage, name) for name in names) == nodes
    for name in names:
        stage.request(name, 1)
    for name in names:
        stage.until_count(name, 1)
    assert not stage.watcher.decided_twice


def test_node_without_gpus_attracts_no_pod(stage: Stage) -> None:
    """It has slots and reports no GPU: pods wait, with a reason, and start when its driver has come up."""
    node = stage.node(gpus=0)
    _start(stage)
    stage.pod("note")
    assert "the node has no GPU" in stage.until_event("note", "FailedScheduling")
    stage.pod("wants", requested=1)
    assert "no GPU" in stage.until_event("wants", "FailedScheduling")
    assert not _node_of(stage, "note")
    stage.put_inventory(node, 2)
    until(lambda: _node_of(stage, "note") == node, what="the first to have the node")
    stage.until_count("wants", 1)


def _important(stage: Stage, name: str, value: int, requested: object = None) -> str:
    """A pod that asks for half of a node's CPU, of this importance to Kubernetes; others have 0. Its uid."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{value}"}}
    stage.plane.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "value": value}))
    return stage.pod(name, requested=requested, cpu="4", priorityClassName=f"p{value}")


def _runs(stage: Stage, name: str) -> None:
    until(lambda: bool(_node_of(stage, name)), what=f"{name} to be bound")


def test_no_pod_ends_in_vain_for_a_more_important_one(stage: Stage) -> None:
    """kube-scheduler would end the least important pod for CPU: it does so when a GPU is free, and not before."""
    stage.node(gpus=1)  # and 8 CPUs
    _start(stage)
    _important(stage, "rich", 10, 1)
    stage.until_count("rich", 1)
    uid = stage.pod("poor", cpu="4")
    _runs(stage, "poor")
    _important(stage, "vital", 1000, 1)
    assert "no candidate node for preemption" in stage.until_event("vital", "FailedScheduling")
    _rest(stage, "vital")
    assert objects.uid(stage.get("poor")) == uid
    assert stage.has("rich") == ["0"]
    stage.delete("vital")
    stage.request("rich", "0")
    stage.until_count("rich", 0)
    _important(stage, "vital", 1000, 1)
    stage.until_count("vital", 1)
    assert stage.missing("poor")
    assert not stage.missing("rich")


def test_holder_ends_for_a_more_important_pod(stage: Stage) -> None:
    """The holder matters least, and what it frees is kept for the other, however soon a third pod wants it."""
    stage.node(gpus=1)
    _start(stage)
    _important(stage, "poor", 10)
    _runs(stage, "poor")
    uid = stage.pod("rich", requested=1, cpu="4")
    stage.until_count("rich", 1)
    stage.hold_open(uid, "GPU-" + _node_of(stage, "rich") + "-0")
    stage.plane.kubectl("patch", "pod", "rich", "-n", stage.namespace, "-p", _finalizers("test.example/wait"))
    _important(stage, "vital", 1000, 1)
    until(lambda: objects.deleting(stage.get("rich")), what="it to be told to end")
    stage.until_reason("vital", "Deferred")
    stage.request("poor", 1)
    stage.until_reason("poor", "Deferred")
    stage.hold_open(uid)
    stage.plane.kubectl("patch", "pod", "rich", "-n", stage.namespace, "--type=merge", "-p", _finalizers())
    stage.until_count("vital", 1)
    assert stage.has("poor") == []


def _finalizers(*names: str) -> str:
    return json.dumps({"metadata": {"finalizers": names}})


def _line(stage: Stage, name: str) -> str:
    """The node in whose line a pod waits."""
    return str((stage.allocated(name) or Allocated(0)).extra.get(NOMINATED, ""))


def _wait(stage: Stage, name: str, requested: object) -> Allocated:
    """A new pod that found no room; what it waits with."""
    stage.pod(name, requested=requested)
    stage.until_event(name, "FailedScheduling")
    return stage.until_reason(name, "Deferred")


@pytest.mark.parametrize("how", ["deleted", "cordoned"])
def test_pod_waits_elsewhere_if_its_node_goes(stage: Stage, how: str) -> None:
    """It keeps its place in line and waits for the other one; what comes free on the lost one is not for it."""
    nodes = {stage.node("n1", gpus=2), stage.node("n2", gpus=2)}
    _start(stage)
    owners = {}
    for name in ("one", "two"):
        stage.pod(name, requested=2)
        stage.until_count(name, 2)
        owners[_node_of(stage, name)] = name
    ticket = _wait(stage, "waits", 2).ticket
    lost = _line(stage, "waits")
    (left,) = nodes - {lost}
    if how == "deleted":
        stage.delete_node(lost)
    else:
        stage.plane.kubectl("cordon", lost)
    until(lambda: _line(stage, "waits") == left, what="it to wait for the other node")
    assert stage.until_reason("waits", "Deferred").ticket == ticket
    if how == "cordoned":
        stage.request(owners[lost], "0")
        stage.until_count(owners[lost], 0)
    stage.request(owners[left], "0")
    stage.until_count("waits", 2)
    assert _node_of(stage, "waits") == left


TAINT = {"key": "example.com/other", "value": "yes", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _spec(stage: Stage, node: str, **fields: Any) -> None:
    stage.plane.kubectl("patch", "node", node, "--type=merge", "-p", json.dumps({"spec": fields}))


def _affine(stage: Stage, name: str, node: str) -> None:
    """A pod that wants a GPU and says by its affinity, not by a selector, which node it may go to."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    stage.pod(name, requested=1, affinity={"nodeAffinity": rule})


def _still(stage: Stage, name: str, seconds: float = 2.5) -> int:
    """Return how often a pod's `allocated` changes while nothing else does and kube-scheduler tries it twice."""
    before = len(stage.decisions(name))
    time.sleep(seconds)  # nothing to wait for: what must not happen has that long to happen
    return len(stage.decisions(name)) - before


@pytest.mark.parametrize("why", ["tainted", "not ready", "cordoned", "affinity"])
def test_free_node_that_is_never_offered_changes_nothing(stage: Stage, why: str) -> None:
    """A pod waits where kube-scheduler would put it and is not moved to and fro; no later wish overtakes it there."""
    full, free = stage.node("n1", gpus=1), stage.node("n2", gpus=1)
    first = _start(stage)
    _spec(stage, free, unschedulable=True)
    stage.pod("owner", requested=1)
    stage.until_count("owner", 1)
    stage.pod("later")
    until(lambda: _node_of(stage, "later") == full, what="a pod without a wish to be there")
    taints = {"tainted": [TAINT], "not ready": [NOT_READY]}.get(why)
    _spec(stage, free, unschedulable=True if why == "cordoned" else None, taints=taints)
    if why == "affinity":
        _affine(stage, "waits", full)
    else:
        stage.pod("waits", requested=1)
    stage.until_event("waits", "FailedScheduling")
    stage.until_reason("waits", "Deferred")
    until(lambda: _line(stage, "waits") == full, what="it to wait for the node that is offered")
    assert _still(stage, "waits") == 0
    first.kill()
    _start(stage)  # knows no offer
    assert _still(stage, "waits") == 0
    stage.request("later", 1)
    stage.until_reason("later", "Deferred")
    stage.request("owner", "0")
    stage.until_count("waits", 1)
    assert stage.has("later") == []


@pytest.mark.parametrize("why", ["tainted", "not ready", "cordoned"])
def test_closed_only_node_costs_no_repeated_writes(stage: Stage, why: str) -> None:
    """Nothing is written again and again; it keeps its place in line, and starts there when the node is open again."""
    node = stage.node("n1", gpus=1)
    stage.node("n2", gpus=0)
    _start(stage)
    stage.pod("owner", requested=1)
    stage.until_count("owner", 1)
    ticket = _wait(stage, "waits", 1).ticket
    taints = {"tainted": [TAINT], "not ready": [NOT_READY]}.get(why)
    _spec(stage, node, unschedulable=True if why == "cordoned" else None, taints=taints)
    until(lambda: not _line(stage, "waits"), what="it to leave the line")
    assert _still(stage, "waits") == 0
    stage.request("owner", "0")
    stage.until_count("owner", 0)
    assert _still(stage, "waits") <= 2, "that there is room, and one call for kube-scheduler"
    assert stage.until_reason("waits", "Deferred").ticket == ticket
    _spec(stage, node, unschedulable=None, taints=None)
    stage.until_count("waits", 1)


def test_recreated_pod_comes_last_in_line(stage: Stage) -> None:
    """Its place in line was its own, not that of its name: the next one of that name comes last."""
    stage.node(gpus=1)
    _start(stage)
    stage.pod("owner", requested=1)
    stage.until_count("owner", 1)
    first = _wait(stage, "again", 1)
    second = _wait(stage, "patient", 1)
    stage.delete("again")
    third = _wait(stage, "again", 1)
    assert (first.ticket or 0) < (second.ticket or 0) < (third.ticket or 0)
    stage.request("owner", "0")
    stage.until_count("patient", 1)
    assert not _node_of(stage, "again")
    stage.delete("patient")
    stage.until_count("again", 1)
    assert not stage.watcher.decided_twice


def test_big_new_pod_is_not_starved_by_small_ones(stage: Stage) -> None:
    """GPUs that come free bit by bit are kept for it, though each bit would do for a pod behind it."""
    node = stage.node(gpus=2)
    _start(stage)
    owners = ("one", "two")
    for name in owners:
        stage.pod(name, requested=1)
        stage.until_count(name, 1)
    _wait(stage, "big", 2)
    smalls = ["small0", "small1"]
    _wait(stage, smalls[0], 1)
    stage.pod(smalls[1], node, 1)
    stage.until_reason(smalls[1], "Deferred")
    stage.request("one", "0")
    stage.until_count("one", 0)
    _rest(stage, smalls[0])
    assert not _node_of(stage, smalls[0])
    assert stage.has(smalls[1]) == []
    stage.request("two", "0")
    stage.until_count("big", 2)
    stage.request("big", "0")
    for name in smalls:
        stage.until_count(name, 1)


def test_nothing_is_placed_without_a_leader(stage: Stage) -> None:
    """Without us kube-scheduler places no pod that asks for a slot, and goes on when we are there."""
    stage.node(gpus=1)
    stage.pod("a", requested=1)
    assert stage.until_event("a", "FailedScheduling")
    assert not _node_of(stage, "a")
    _start(stage)
    stage.until_count("a", 1)


def test_only_kube_scheduler_is_answered(stage: Stage) -> None:
    """Without a certificate there is no connection; with another name no answer; nonsense is an Error."""
    stage.node(gpus=1)
    _start(stage)
    authority = stage.plane.authority.identity.certificate

    def ask(user: str, body: bytes, verb: str = "filter") -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(authority))
        if user:
            client = _identity(stage.plane, user)
            context.load_cert_chain(client.certificate, client.key)
        request = urllib.request.Request(f"https://127.0.0.1:{_port()}/{verb}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
        ask("", b"{}")
    assert ask("mallory", b"{}") == (403, None)
    status, answer = ask("kube-scheduler", b"{}")
    assert status == 200
    assert "Pod" in answer["Error"]
    assert "JSON" in ask("kube-scheduler", b"{", "bind")[1]["Error"]
    assert ask("kube-scheduler", b"{}", "prioritize")[0] == 503
    missing = {"PodName": "x", "PodNamespace": stage.namespace, "PodUID": "u", "Node": "n"}
    assert "gone" in ask("kube-scheduler", json.dumps(missing).encode(), "bind")[1]["Error"]


def test_bind_is_the_same_however_often_it_is_asked(stage: Stage) -> None:
    """Repeated for the same pod and node: success and no second write; for another node: an error."""
    node = stage.node(gpus=1)
    _start(stage)
    uid = stage.pod("a", requested=1)
    stage.until_count("a", 1)
    client = _identity(stage.plane, "kube-scheduler")
    context = ssl.create_default_context(cafile=str(stage.plane.authority.identity.certificate))
    context.load_cert_chain(client.certificate, client.key)

    def bind(onto: str) -> str:
        body = {"PodName": "a", "PodNamespace": stage.namespace, "PodUID": uid, "Node": onto}
        request = urllib.request.Request(f"https://127.0.0.1:{_port()}/bind", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return str(json.load(answer)["Error"])

    assert bind(node) == bind(node) == ""
    assert "already" in bind("another")
    assert len(stage.decisions("a")) == 1
