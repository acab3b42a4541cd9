"""Which worker pods are created and removed: the plan, and a world in which it is followed by force."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import SERVICE, WORKER, WORKER_STATUS
from jupyter_gpu.model.limits.owner import USERNAME, Owner
from jupyter_gpu.model.service import WorkerState, WorkerStatus
from jupyter_gpu_scheduler.workers.rules.plan import ENDS_FIRST, Pace, Plan, plan
from jupyter_gpu_scheduler.workers.rules.records import WorkerPod, read_notebook, read_worker, trim
from jupyter_gpu_scheduler.workers.rules.status import failed, retry_at
from tests.scheduler.workers.pods import EVICTED, RUNNING, UID, notebook, notebook_pod, part, waiting, worker

NOW = 1_000.0
CREATING = WorkerStatus(WorkerState.CREATING, "", 0, 1_000)


def test_named_workers_are_created_and_others_removed() -> None:
    """Workers that `service` names are created, others are removed, and both are told."""
    found = plan(notebook(part(1), part(2)), [worker(part(2), RUNNING), worker(part(3))], NOW, 4)
    assert found.create == (part(1),)
    assert [each.identity.id for each in found.remove] == ["w3"]
    assert found.statuses == {"w1": CREATING, "w2": WorkerStatus(WorkerState.RUNNING, "", 0, 1_000)}
    assert found.look_at == math.inf


def test_workers_of_a_notebook_that_is_gone_are_removed() -> None:
    """So are those of one that ended or is being removed; one that is being removed already is left alone."""
    there = [worker(part(1)), worker(part(2), removing=True)]
    expected = Plan(None, (there[0],))
    assert plan(None, there, NOW, 4) == expected
    assert plan(notebook(part(1), metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}), there, NOW, 4) == expected
    assert plan(notebook(part(1), status={"phase": "Failed"}), there, NOW, 4) == expected


def test_unreadable_service_changes_nothing() -> None:
    """Workers that are there stay, and none is created."""
    odd = notebook(metadata={"annotations": {SERVICE: "{"}})
    assert "cannot be read" in odd.problem
    assert plan(odd, [worker(part(1))], NOW, 4) == Plan(None)


def test_notebook_without_workers_is_told_nothing() -> None:
    """Statuses that are there are taken away; where there are none, the pod is no notebook of ours."""
    pod = notebook_pod(statuses={"w1": CREATING})
    del pod["metadata"]["annotations"][SERVICE]
    found = read_notebook(pod)
    assert found
    assert (found.told, found.parts) == (True, ())
    assert plan(found, [], NOW, 4) == Plan({})
    del pod["metadata"]["annotations"][WORKER_STATUS]
    assert read_notebook(pod) is None


def test_worker_on_another_node_than_named_is_replaced() -> None:
    """Its pod ends first, then the same name can be used."""
    wanted = notebook(part(1, "node3"), statuses={"w1": CREATING})
    first = plan(wanted, [worker(part(1))], NOW, 4)
    assert [each.identity.id for each in first.remove] == ["w1"]
    assert first.statuses == {"w1": CREATING._replace(message=ENDS_FIRST)}
    assert not first.create
    second = plan(wanted, [worker(part(1), removing=True)], NOW, 4)
    assert (second.remove, second.create, second.statuses) == ((), (), first.statuses)
    assert plan(wanted, [], NOW, 4).create == (part(1, "node3"),)


def test_ended_pod_is_counted_once_and_tried_again_later() -> None:
    """The failure is written before the pod is removed: a process killed in between does not count it again."""
    ended = worker(part(1), EVICTED)
    first = plan(notebook(part(1)), [ended], NOW, 4)
    lost = WorkerStatus(WorkerState.FAILED, "Evicted: The node was low on memory.", 1, 1_000)
    assert (first.statuses, first.remove, first.create) == ({"w1": lost}, (ended,), ())
    written = notebook(part(1), statuses={"w1": lost})
    again = plan(written, [ended], NOW + 3, 4)
    assert (again.statuses, again.remove) == ({"w1": lost}, (ended,))
    gone = plan(written, [], NOW + 3, 4)
    assert (gone.statuses, gone.create, gone.look_at) == ({"w1": lost}, (), NOW + 10)
    retried = plan(written, [], NOW + 10, 4)
    assert (retried.create, retried.statuses) == ((part(1),), {"w1": WorkerStatus(WorkerState.CREATING, "", 1, 1_010)})
    other = failed(lost, WorkerState.FAILED, "another reason", NOW)
    counted = plan(notebook(part(1), statuses={"w1": other}), [ended], NOW, 4).statuses
    assert counted == {"w1": lost._replace(tries=3)}


def test_worker_that_gets_no_node_has_failed_after_a_minute() -> None:
    """Its pod stays, as it may be placed later; then it has failed no more."""
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 had a taint."}
    pod = worker(part(1), {"phase": "Pending", "conditions": [unschedulable]})
    first = plan(notebook(part(1)), [pod], NOW, 4)
    waits = CREATING._replace(message="Unschedulable: 1 had a taint.")
    assert (first.statuses, first.look_at) == ({"w1": waits}, NOW + 60)
    assert plan(notebook(part(1), statuses={"w1": waits}), [pod], NOW + 59, 4) == first
    later = plan(notebook(part(1), statuses={"w1": waits}), [pod], NOW + 60, 4)
    message = "Kubernetes has not placed the worker on node2 within 60 seconds: Unschedulable: 1 had a taint."
    lost = WorkerStatus(WorkerState.FAILED, message, 0, 1_060)
    assert later == Plan({"w1": lost})
    assert plan(notebook(part(1), statuses={"w1": lost}), [pod], NOW + 99, 4) == later, "it stays so"
    placed = plan(notebook(part(1), statuses={"w1": lost}), [worker(part(1), RUNNING)], NOW + 99, 4)
    assert placed == Plan({"w1": WorkerStatus(WorkerState.RUNNING, "", 0, 1_099)})


def test_time_without_a_node_begins_with_the_pod() -> None:
    """While an earlier pod ends, kube-scheduler has nothing to place."""
    ends = CREATING._replace(message=ENDS_FIRST)
    found = plan(notebook(part(1), statuses={"w1": ends}), [], NOW + 500, 4)
    assert found.statuses == {"w1": CREATING._replace(since=1_500)}


def test_image_that_is_refused_is_told_and_left_to_the_kubelet() -> None:
    """The pod stays: the kubelet tries again by itself."""
    found = plan(notebook(part(1)), [worker(part(1), waiting("ErrImagePull", "no such tag"))], NOW, 4)
    assert (found.remove, found.create) == ((), ())
    assert found.statuses == {"w1": WorkerStatus(WorkerState.REFUSED, "ErrImagePull: no such tag", 0, 1_000)}


def test_notebook_has_no_more_workers_than_allowed() -> None:
    """The oldest are created; the others are told why not, and tried again later."""
    found = plan(notebook(part(1), part(2)), [], NOW, 1)
    assert found.create == (part(1),)
    assert found.statuses
    refused = found.statuses["w2"]
    assert (refused.state, refused.tries) == (WorkerState.REFUSED, 1)
    assert "may have 1 workers" in refused.message
    assert found.look_at == retry_at(refused) == NOW + 10


def test_records_are_read_from_their_own_pods_only() -> None:
    """A worker is no notebook, whatever `service` it has; a pod without a readable record is no worker."""
    pod = notebook_pod(part(1), metadata={"annotations": {WORKER: "{}", SERVICE: "{}"}})
    assert (read_notebook(pod), read_worker(pod)) == (None, None)
    assert read_notebook({}) is None
    assert notebook(part(1)).owner == Owner("Namespace", "team")
    annotations = {**notebook_pod(part(1))["metadata"]["annotations"], USERNAME: "ann"}
    assert notebook(metadata={"annotations": annotations}).owner == Owner("User", "ann", "team")


def test_node_of_an_odd_worker_is_unknown() -> None:
    """It is on no node that `service` could name, and so is replaced."""
    identity = {WORKER: f'{{"notebook":"{UID}","id":"w1"}}'}
    odd: tuple[Any, ...] = ({}, None, {"affinity": {"nodeAffinity": {}}}, _affinity(7))
    for spec in odd:
        found = read_worker({"metadata": {"uid": "u", "annotations": identity}, "spec": spec})
        assert found
        assert found.node == ""
    found = read_worker({"metadata": {"annotations": identity}, "spec": _affinity("node2")})
    assert found
    assert found.node == "node2"


def _affinity(value: object) -> dict[str, Any]:
    terms = [{"matchFields": [{"values": [value]}]}]
    required = {"nodeSelectorTerms": terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_what_is_kept_of_a_pod_is_read_the_same() -> None:
    """Only the names are kept of pods that have no workers and are none."""
    pod = notebook_pod(part(1))
    pod["metadata"]["managedFields"] = ["much"]
    kept = trim(pod)
    assert "managedFields" not in kept["metadata"]
    assert (one := read_notebook(kept)) is not None
    assert (one.parts, one.uid, one.pod["spec"]) == (notebook(part(1)).parts, UID, pod["spec"])
    plain = {"metadata": {"name": "a", "uid": "u", "annotations": {USERNAME: "ann"}}, "spec": {"containers": []}}
    assert trim(plain) == {"metadata": {"name": "a", "uid": "u", "annotations": {USERNAME: "ann"}}}
    assert trim({}) == {"metadata": {"annotations": {}}}


def test_pace_lets_some_pass_at_once_and_then_one_a_second() -> None:
    """Unused creations come back, up to the burst."""
    pace = Pace(4.0, 0.0)
    for _ in range(4):
        pace = pace.after(0.0, 4, 1.0).taken()
    assert pace.after(0.5, 4, 1.0).left == 0.5
    assert pace.after(1.0, 4, 1.0).left == 1.0
    assert pace.after(100.0, 4, 1.0) == Pace(4.0, 100.0)


@given(
    st.lists(st.sets(st.integers(1, 4), max_size=4), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([RUNNING, EVICTED, {"phase": "Pending"}])), max_size=8),
    st.integers(1, 4),
)
def test_worlds_come_to_rest_with_the_named_workers(
    wishes: list[set[int]], events: list[tuple[int, dict[str, Any]]], most: int
) -> None:
    """Whatever is named, and whatever happens to pods: at rest what is named is there, as far as the bound allows,
    nothing else is, and the next look changes nothing.
    """
    pods: dict[str, WorkerPod] = {}
    statuses: dict[str, WorkerStatus] = {}
    now, happens = NOW, list(events)
    for number, wish in enumerate(wishes):
        parts = [part(each) for each in sorted(wish)]
        for _ in range(4):
            now += 400  # later than any wait
            found = plan(notebook(*parts, statuses=statuses), list(pods.values()), now, most)
            statuses = dict(found.statuses or {})
            assert set(statuses) == {each.id for each in parts}
            for gone in found.remove:
                del pods[gone.identity.id]
            for new in found.create:
                assert new.id not in pods
                pods[new.id] = worker(new)
            if happens and number < len(wishes) - 1:
                which, status = happens.pop()
                if f"w{which}" in pods:
                    pods[f"w{which}"] = worker(part(which), status)
    # Nothing happened to pods since the last wish: four looks replace what ended before, and come to rest.
    assert set(pods) <= set(statuses)
    assert len(pods) == min(most, len(parts))
    last = plan(notebook(*parts, statuses=statuses), list(pods.values()), now, most)
    assert (last.create, last.remove) == ((), ())
