"""Records of Pods and Nodes, read from any JSON: never an exception and never too many GPUs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    encode,
)
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.node_use import USE
from jupyter_gpu.model.service import (
    Peer,
    Service,
    WorkerIdentity,
    WorkerPart,
    WorkerService,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
)
from jupyter_gpu_scheduler.rules.limits.job_end import JOB_KINDS
from jupyter_gpu_scheduler.rules.state.records import RemoteRecord, read_node, read_pod, trim_node, trim_pod
from jupyter_gpu_scheduler.rules.state.resources import pod_requests, quantity

GIVEN = encode(Allocated(1, (GpuShare("g", 1000),)))


def a_pod(annotations: dict[str, str] | None = None, *, slots: int = 1, **metadata: Any) -> dict[str, Any]:
    """A Pod on node n."""
    limits = {"jupyter-gpu.io/slot": str(slots), "cpu": "500m"} if slots else {}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"other": "x", **(annotations or {})},
            **metadata,
        },
        "spec": {
            "nodeName": "n",
            "nodeSelector": {"zone": "a"},
            "containers": [{"name": "c", "resources": {"limits": limits}, "env": [{"name": "A", "value": "b"}]}],
        },
        "status": {"phase": "Running", "conditions": []},
    }


def test_pod_is_read_whole() -> None:
    """The record has everything that decisions look at."""
    words = {
        REQUESTED: "2",
        ALLOCATED: encode(Allocated(1, (GpuShare("g", 1000),))),
        ATTACHED: encode(Attached(1, (GpuShare("g", 1000),), open=("g",), rests=("g",), lacks=("h",))),
    }
    record = read_pod(a_pod(words))
    state = record.state
    assert (state.uid, state.name, state.namespace, state.node, record.resource_version) == ("u", "p", "ns", "n", "7")
    assert state.requested
    assert state.requested.milli == 2000
    assert state.held == {"g": 1000}
    assert (set(state.busy), set(state.resting), set(state.lacks)) == ({"g"}, {"g"}, {"h"})
    assert state.created == 1767323045
    assert state.asks == {"cpu": 500}
    assert state.selector == {"zone": "a"}
    assert state.slots == 1
    assert not state.gone
    assert not record.problem
    assert not record.opaque


def test_version_with_nothing_new_but_a_decision_is_known_as_such() -> None:
    """So what was decided is not decided again; a new wish is, and the end of a pod."""
    before = read_pod(a_pod({REQUESTED: "1"}))
    assert read_pod(a_pod({REQUESTED: "1", ALLOCATED: GIVEN}, resourceVersion="8")).is_decided(before)
    assert not read_pod(a_pod({REQUESTED: "2", ALLOCATED: GIVEN}, resourceVersion="8")).is_decided(before)
    assert not read_pod(a_pod({REQUESTED: "1"}, deletionTimestamp="2026-01-02T03:05:05Z")).is_decided(before)


def test_unreadable_annotations_fail_closed() -> None:
    """An unreadable wish is a fault, an unreadable decision is none, and an unreadable `attached` closes the node."""
    assert read_pod(a_pod({REQUESTED: "{"})).state.fault
    assert read_pod(a_pod({REQUESTED: "{"})).problem
    assert read_pod(a_pod({ALLOCATED: "[]"})).state.allocated is None
    assert read_pod(a_pod({ATTACHED: "[]"})).opaque
    pending = a_pod({ATTACHED: "[]"})
    del pending["spec"]["nodeName"]
    assert not read_pod(pending).opaque


def test_pod_without_a_slot_has_no_wish() -> None:
    """Grants to such a pod could not be enforced; its user sees that."""
    record = read_pod(a_pod({REQUESTED: "2"}, slots=0))
    assert record.state.requested is None
    assert "jupyter-gpu.io/slot" in record.problem
    assert not read_pod(a_pod(slots=0)).matters
    assert read_pod(a_pod({ATTACHED: "x"}, slots=0)).matters
    assert read_pod(a_pod()).matters


def test_leaving_pod_gets_nothing() -> None:
    """Deleted or finished; only a finished one will never run again."""
    leaving = read_pod(a_pod(deletionTimestamp="2026-01-02T03:04:05Z")).state
    assert (leaving.gone, leaving.finished) == (True, False)
    ended = read_pod(finished()).state
    assert (ended.gone, ended.finished) == (True, True)


def finished(attached: str = "") -> dict[str, Any]:
    """A Pod whose containers ended."""
    done = a_pod({REQUESTED: "1", ALLOCATED: GIVEN, **({ATTACHED: attached} if attached else {})})
    done["status"]["phase"] = "Failed"
    return done


texts = st.sampled_from(("2", "{", GIVEN, encode(Attached(1, (GpuShare("g", 1000),)))))
words = st.dictionaries(st.sampled_from((REQUESTED, ALLOCATED, ATTACHED)), texts)


@given(words, words, st.integers(0, 1))
def test_version_is_read_the_same_after_another(before: dict[str, str], after: dict[str, str], slots: int) -> None:
    """Annotations that are known from another version change nothing of what is read; only they are not read again."""
    known, new = read_pod(a_pod(before)), a_pod(after, slots=slots)
    found = read_pod(new, known)
    assert found == read_pod(new)
    for key in before.keys() & after.keys():
        assert (found.decoded[key] is known.decoded[key]) == (before[key] == after[key])


@pytest.mark.parametrize(
    ("attached", "counts"),
    [
        (Attached(1, (GpuShare("g", 1000),)), True),
        (Attached(1, (), (DrainingShare("g", 1000),)), True),
        (Attached(1), False),
        ("", False),
        ("{", False),
    ],
)
def test_finished_pod_counts_until_its_gpus_are_closed(attached: Attached | str, counts: bool) -> None:
    """It counts with what is still open; after that next to nothing of it is kept, however many have finished."""
    pod = finished(attached if isinstance(attached, str) else encode(attached))
    assert read_pod(pod).matters is read_pod(trim_pod(pod)).matters is counts
    assert read_pod(pod).state.held == ({"g": 1000} if counts else {})
    assert (len(str(trim_pod(pod))) < 320) is not counts
    assert trim_pod(trim_pod(pod)) == trim_pod(pod)


def test_notebook_and_worker_are_read_whole() -> None:
    """All about other nodes is read, and nothing of it for other pods; what can't be read is nobody's worker."""
    assert read_pod(a_pod()).remote is None
    digest = "docker.io/library/lab@sha256:" + "a" * 64
    service, status = Service(1, (WorkerPart("w1", "m"),)), WorkerStatus(WorkerState.FAILED, "x", 1, 2)
    peer = Peer(keys=(("w1", "a" * 40),))
    words = {
        SERVICE: encode(service),
        WORKER_STATUS: encode(WorkerStatuses({"w1": status, "w2": WorkerStatus(WorkerState.RUNNING)})),
        ATTACHED: encode(Attached(1, peer=peer)),
    }
    pod = a_pod(words)
    pod["spec"]["containers"][0]["image"] = "lab:1"
    addresses = [{"ip": "fd00::1"}, 7, {"ip": "10.0.0.1"}]
    pod["status"] = {"podIPs": addresses, "containerStatuses": [{"name": "c", "imageID": digest}]}
    remote = read_pod(pod).remote
    assert remote == RemoteRecord(
        service=service,
        failed={"w1": "x"},
        told=frozenset({"w1", "w2"}),
        peer=peer,
        address="10.0.0.1",
        images=frozenset({"lab:1", digest.removeprefix("docker.io/library/")}),
    )
    assert read_pod(trim_pod(pod)) == read_pod(pod)
    six = read_pod({**pod, "status": {"podIPs": addresses[:1]}}).remote
    assert six
    assert six.address == "fd00::1"
    identity, accepts = WorkerIdentity("u", "w1"), WorkerService("p", "u")
    worker = read_pod(a_pod({WORKER: encode(identity), SERVICE: encode(accepts)})).remote
    assert worker
    assert (worker.identity, worker.accepts, worker.service, worker.address) == (identity, accepts, None, "")
    odd = read_pod({**a_pod({WORKER: "?"}), "status": 7}).remote
    assert odd
    assert odd.identity == WorkerIdentity("", "")


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, True),
        ([], True),
        ([7, {"type": "MemoryPressure", "status": "False"}], True),
        ([{"type": "Ready", "status": "True", "reason": "x"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
    ],
)
def test_node_is_ready_unless_it_is_told_otherwise(conditions: Any, ready: bool) -> None:
    """A node of which nothing is reported counts as ready."""
    body = {"metadata": {"name": "n"}, "status": {"conditions": conditions}}
    assert read_node(trim_node(body)).facts({}).ready is ready
    assert read_node(trim_node(body)) == read_node(body)


def test_node_is_read_whole() -> None:
    """The record has inventory, labels and resources; an inventory that can't be read is not known."""
    gpu = Gpu("g", 0, "m", 1)
    node: dict[str, Any] = {
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {INVENTORY: encode((gpu,))}},
        "spec": {"unschedulable": True},
        "status": {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "110"}, "images": [1]},
    }
    record = read_node(node)
    assert record.gpus == (gpu,)
    assert not record.schedulable
    assert record.facts({"cpu": 5}).allocatable == {"cpu": 8000, "memory": 1024**3}
    assert read_node(trim_node(node)) == record
    node["metadata"]["annotations"][INVENTORY] = "?"
    assert read_node(node).gpus is None
    assert read_node(node).problem
    assert read_node({}).gpus is None


@pytest.mark.parametrize(("told", "known"), [(0.3, 0.3), (0, 0.0), (1, 1.0), (None, None), ("0.3", None), (7, None)])
def test_use_of_the_uplink_is_read_with_the_inventory(told: Any, known: float | None) -> None:
    """A senseless value counts as not known, and the node's GPUs are read all the same."""
    items = json.loads(encode((Gpu("g", 0, "m", 1), Gpu("h", 1, "m", 1))))
    for item in items if told is not None else ():
        item["network"] = told
    node = {"metadata": {"name": "n", "uid": "u", "annotations": {INVENTORY: json.dumps(items)}}}
    record = read_node(trim_node(node))
    assert record.gpus
    assert len(record.gpus) == 2
    assert record.facts({}).network == known
    assert not record.problem


@pytest.mark.parametrize(
    ("told", "busy"),
    [
        ('{"cpu": 2, "memory": 8, "disk": 0, "new": 1}', {"cpu": 0.25, "memory": 1.0, "ephemeral-storage": 0.0}),
        ('{"cpu": 4}', {"cpu": 0.5}),
        ("{}", {}),
        ('{"cpu": 9}', {}),
        ("odd", {}),
        (None, {}),
    ],
)
def test_use_of_a_node_is_read(told: str | None, busy: dict[str, float]) -> None:
    """In parts of all; what makes no sense counts as not known, and the node's GPUs are read all the same."""
    annotations = {INVENTORY: encode((Gpu("g", 0, "m", 1),)), **({USE: told} if told is not None else {})}
    record = read_node(trim_node({"metadata": {"name": "n", "uid": "u", "annotations": annotations}}))
    assert record.gpus
    assert record.facts({}).busy == busy
    assert not record.problem


@pytest.mark.parametrize(("told", "known"), [(25_000, 25_000), (0, None), (None, None), ("fast", None), (1.5, None)])
def test_speed_of_the_uplink_is_read_with_the_inventory(told: Any, known: int | None) -> None:
    """Likewise; a senseless speed counts as not known."""
    items = json.loads(encode((Gpu("g", 0, "m", 1), Gpu("h", 1, "m", 1))))
    for item in items if told is not None else ():
        item["speed"] = told
    node = {"metadata": {"name": "n", "uid": "u", "annotations": {INVENTORY: json.dumps(items)}}}
    record = read_node(trim_node(node))
    assert record.facts({}).speed == known
    assert not record.problem


def test_trimming_loses_nothing_that_is_read() -> None:
    """Trimming removes most of the rest."""
    pod = a_pod({REQUESTED: "2", ATTACHED: "x"})
    pod["spec"]["overhead"] = {"cpu": "1"}
    pod["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    pod["status"] = {"phase": "Pending", "nominatedNodeName": "n", "conditions": [1]}
    assert read_pod(pod).chosen == "n"
    assert read_pod(trim_pod(pod)) == read_pod(pod)
    assert read_pod({**pod, "status": {"nominatedNodeName": 7}}).chosen == ""
    assert read_pod(trim_pod(pod)).usage == read_pod(pod).usage
    assert trim_pod(pod)["spec"]["tolerations"] == pod["spec"]["tolerations"]
    assert len(str(trim_pod({**pod, "managedFields": ["x"] * 1000}))) < 700
    assert trim_pod({}) == {"metadata": {"annotations": {}}}


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "containers",
                    "resources",
                    "limits",
                    "annotations",
                    "phase",
                    REQUESTED,
                    WORKER,
                    "conditions",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), odd))
def test_odd_json_never_raises(item: dict[str, Any]) -> None:
    """Any JSON gives a record."""
    read_pod(item)
    read_node(item)
    read_pod(trim_pod(item))
    read_node(trim_node(item))


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2", 2), ("500m", 1), ("1Gi", 1024**3), ("1.5G", 15 * 10**8), ("1e3", 1000), ("0", 0), ("-3", 0), ("x", 0),
     ("1e99", 0), ("NaN", 0), ("", 0), ("9Ei", 2**63 - 1), ("128974848", 128974848), ("1k", 1000)],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: str, amount: int) -> None:
    """Amounts are rounded up; text that is none counts as nothing."""
    assert quantity(text) == amount


def test_requests_are_summed_as_kubernetes_does() -> None:
    """CPU is in thousandths. The most at any moment counts: side-cars beside all, other init containers one after the
    other.
    """
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "500m"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "250m"}}, "restartPolicy": "Always"},
            {"resources": {"requests": {"cpu": "4"}}},
        ],
        "overhead": {"cpu": "100m"},
    }
    assert pod_requests({"spec": spec}) == {"cpu": 4350}


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "training", "controller": True}


@pytest.mark.parametrize(
    "owners",
    [
        None,
        "Job",
        [],
        [JOB | {"controller": False}],
        [{**JOB, "kind": "StatefulSet"}],
        [{**JOB, "apiVersion": "notbatch/v1"}],
        [{**JOB, "apiVersion": "batch"}],
        [{**JOB, "kind": 3}],
        [{"kind": "Job", "controller": True}],
        ["Job", None, 3],
    ],
)
def test_pod_that_no_job_controls_is_never_ended(owners: Any) -> None:
    """Whatever names a Job in another way, the pod has no grace to end in."""
    assert read_pod(a_pod(ownerReferences=owners)).job_grace(JOB_KINDS) is None


@pytest.mark.parametrize(("written", "seconds"), [(60, 60), (0, 0), (-1, 30), ("60", 30), (None, 30)])
def test_pod_of_a_job_has_its_own_grace(written: Any, seconds: int) -> None:
    """The record has the termination grace, also of a pod that was trimmed; what can't be read is the default."""
    pod = a_pod(ownerReferences=["odd", JOB])
    pod["spec"]["terminationGracePeriodSeconds"] = written
    assert read_pod(pod).job_grace(JOB_KINDS) == read_pod(trim_pod(pod)).job_grace(JOB_KINDS) == seconds
    assert read_pod({**pod, "spec": None}).job_grace(JOB_KINDS) == 30
    assert read_pod(pod).job_grace(["Workflow.argoproj.io"]) is None


@pytest.mark.parametrize(
    ("version", "kind", "found"),
    [
        ("batch/v1", "Job", "Job.batch"),
        ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
        ("argoproj.io/v1alpha1", "Workflow", "Workflow.argoproj.io"),
        ("v1", "ReplicationController", "ReplicationController"),
    ],
)
def test_controller_is_known_by_kind_and_group(version: str, kind: str, found: str) -> None:
    """Whatever the version; a pod that was trimmed keeps it."""
    pod = a_pod(ownerReferences=[{"apiVersion": version, "kind": kind, "name": "x", "uid": "y", "controller": True}])
    assert read_pod(pod).controller == read_pod(trim_pod(pod)).controller == found
