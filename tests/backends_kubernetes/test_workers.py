"""A pod's workers on other nodes, in its view."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes import silent_workers
from jupyter_gpu.backends.kubernetes.backend import KubernetesBackend
from jupyter_gpu.backends.kubernetes.rules import workers
from jupyter_gpu.backends.kubernetes.rules.views import KnownState, Node, Records, answered, candidates, compose, read
from jupyter_gpu.backends.kubernetes.settings import Settings
from jupyter_gpu.model.annotations import SERVICE, WORKER_STATUS, Wish, encode
from jupyter_gpu.model.gpu import DrainingShare, GpuShare, Holder
from jupyter_gpu.model.gpu_kind import GpuKind, gpu_kind
from jupyter_gpu.model.limits.pod_limit import LimitWithWorkers, PodLimit, Reclaim
from jupyter_gpu.model.limits.source import UNSET
from jupyter_gpu.model.pod_worker import Stage
from jupyter_gpu.model.refusal import refusal
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.service import Relation, Service, WorkerPart, WorkerState, WorkerStatus, WorkerStatuses
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import LIMIT_LOWERED, View
from tests.builders import GIB, allocated, attached, inventory, requested
from tests.model import strategies as any_

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
READY: dict[str, Any] = {"address": "10.0.0.7", "port": 47100, "key": KEY}
THERE = (GpuShare("GPU-far", 1000),)


def a_part(milli: int = 1000, gpus: tuple[GpuShare, ...] = THERE, **fields: Any) -> WorkerPart:
    """Return a worker on n2 that can be reached."""
    return WorkerPart("w1", "n2", milli, Relation.SWITCH, attached=gpus, **{**READY, **fields})


def a_pod(own: list[int], *parts: WorkerPart, status: WorkerStatus | None = None, **fields: Any) -> dict[str, Any]:
    """Return a pod that asked for two GPUs, with these of its own node and these workers."""
    texts = {
        "requested": encode(requested(2)),
        "allocated": encode(allocated(own)),
        "attached": encode(attached(own)),
        "service": encode(Service(1, parts, **fields)),
    }
    if status:
        texts["worker-status"] = encode(WorkerStatuses({"w1": status}))
    return {"metadata": {"uid": "u", "annotations": {f"jupyter-gpu.io/{key}": text for key, text in texts.items()}}}


def seen(pod: dict[str, Any], gpus: int = 2) -> View:
    """Return the view of ``pod`` on a node with so many GPUs."""
    return compose(1, KnownState(instance="i", pod=pod, node=Node("n1", False, inventory(gpus))), Settings())


def test_gpus_of_a_worker_count() -> None:
    """They are in amounts, phase, sentence and the slider's end, and not among the pod's own cards."""
    view = seen(a_pod([0], a_part()))
    assert (view.status.phase, view.status.attached, view.status.settled) == (Phase.READY, 2000, True)
    assert (view.total, view.limit, view.steps[-1]) == (3000, 3000, 3000)
    assert sentence(view) == "2 of 3 GPUs attached: 1 here, 1 on n2"
    assert [card.gpu.index for card in view.gpus] == [0]
    assert [(worker.node, worker.stage, worker.gpus) for worker in view.workers] == [("n2", Stage.READY, THERE)]
    assert View.from_json(view.to_json()) == view


@pytest.mark.parametrize(
    ("limit", "milli"),
    [
        (PodLimit(0, 2000, with_workers=LimitWithWorkers(2000, 2000, UNSET)), 2000),
        (PodLimit(1000, 1000, with_workers=LimitWithWorkers(None, None, UNSET)), 3000),
        (PodLimit(0, 500, with_workers=LimitWithWorkers(500, 500, UNSET)), 500),
        (PodLimit(1000, 2000), 1000),  # as schedulers before said it: at worst too little is permitted
        (PodLimit(None, None), 3000),
    ],
)
def test_own_worker_is_no_other_server(limit: PodLimit, milli: int) -> None:
    """The limit is that of the pod and its workers as one, whatever their parts are."""
    pod = a_pod([0], a_part())
    pod["metadata"]["annotations"]["jupyter-gpu.io/allocated"] = encode(replace(allocated([0]), limit=limit))
    assert seen(pod).limit == milli
    found = read(pod).allocated
    assert found is not None
    assert refusal(Wish(milli), None, limit=None, of_user=found.limit, gpus=None) is None
    assert (refusal(Wish(milli + 1000), None, limit=None, of_user=found.limit, gpus=None) is None) == (milli == 3000)


def test_what_is_taken_back_from_a_worker_is_told() -> None:
    """As what is taken back on the own node: with the time, and a condition that says how much and why."""
    limit = PodLimit(2000, 2000, with_workers=LimitWithWorkers(2000, 2000, UNSET, (Reclaim(1000, 1767225600.0),)))
    pod = a_pod([0], a_part())
    pod["metadata"]["annotations"]["jupyter-gpu.io/allocated"] = encode(replace(allocated([0]), limit=limit))
    view = seen(pod)
    assert view.user_limit
    assert view.user_limit.give_back_at == 1767225600.0
    (condition,) = (one for one in view.conditions if one.type == LIMIT_LOWERED)
    assert "1 GPU at 00:00 UTC on 1 January will be taken back" in condition.message


def test_slider_ends_at_all_that_other_nodes_could_serve() -> None:
    """The scheduler says how much that is; without a GPU here the pod is not told that there is none."""
    view = seen(a_pod([], a_part(milli=0, gpus=()), elsewhere=4000), gpus=0)
    assert (view.total, view.limit, view.conditions) == (4000, 4000, ())
    assert [one.type for one in seen(a_pod([]), gpus=0).conditions] == ["NoGpu"]


@pytest.mark.parametrize(
    ("placement", "service", "elsewhere"),
    [(None, True, 4000), ("any", True, 4000), ("any", False, None), (None, False, None), ("local", False, 0)],
)
def test_view_says_what_other_nodes_could_give(placement: str | None, service: bool, elsewhere: int | None) -> None:
    """It is not said where none serves the pod; a pod that wished for its own node alone can change its mind."""
    pod = a_pod([], elsewhere=4000)
    notes = pod["metadata"]["annotations"]
    notes["jupyter-gpu.io/requested"] = encode(requested(1, placement=placement))
    if not service:
        del notes[SERVICE]
    view = seen(pod, gpus=1)
    assert (view.elsewhere, view.total) == (elsewhere, 1000 + (elsewhere or 0))
    assert View.from_json(view.to_json()) == view


def test_view_tells_kinds_of_other_nodes_apart() -> None:
    """A request can choose among all; only whole GPUs are offered where no kind has shares."""
    amd, here = GpuKind("MI300X", 192 * GIB, "amd"), gpu_kind(inventory(1)[0])
    view = seen(a_pod([], elsewhere=4000, kinds=(amd, here)), gpus=1)
    assert (view.kinds, view.kinds_elsewhere) == ((here,), (amd, here))
    assert view.all_kinds == (here, amd)
    assert View.from_json(view.to_json()) == view
    offers = [seen(a_pod([], elsewhere=1000, kinds=kinds), gpus=0).steps for kinds in ((), (amd, here), (amd,))]
    assert [250 in steps for steps in offers] == [True, True, False]


def test_pod_without_a_service_is_as_before() -> None:
    """Without ``service`` nothing of workers is read, not even a status."""
    pod = a_pod([0])
    del pod["metadata"]["annotations"][SERVICE]
    pod["metadata"]["annotations"][WORKER_STATUS] = "["
    view = seen(pod)
    assert (read(pod).workers, view.workers, view.conditions, view.total) == (None, (), (), 2000)
    assert "workers" not in view.to_json()


@pytest.mark.parametrize(("key", "known"), [(SERVICE, 0), (WORKER_STATUS, 1)])
def test_annotation_that_cannot_be_read_has_a_condition(key: str, known: int) -> None:
    """The pod then has no remote GPUs, or no reasons; what it has of its own node is as it was."""
    pod = a_pod([0], a_part())
    pod["metadata"]["annotations"][key] = "["
    view = seen(pod)
    assert [one.type for one in view.conditions] == ["WorkersDamaged"]
    assert (len(view.workers), len(view.gpus)) == (known, 1)


BROKEN: dict[str, Any] = {"address": "", "port": None, "key": ""}


@pytest.mark.parametrize(
    ("state", "message", "kind", "advice"),
    [
        (WorkerState.REFUSED, "ImagePullBackOff: Back-off pulling image", "WorkerImage", "let n2 pull it"),
        (WorkerState.REFUSED, "ErrImagePull: not found", "WorkerImage", "administrator"),
        (WorkerState.REFUSED, "pods is forbidden: exceeded quota: small", "WorkerQuota", "no longer need"),
        (WorkerState.REFUSED, 'violates PodSecurity "restricted:latest"', "WorkerSecurity", "runs as root"),
        (WorkerState.REFUSED, "admission webhook says no", "WorkerRefused", "administrator"),
        (WorkerState.REFUSED, "", "WorkerRefused", "administrator"),
        (WorkerState.FAILED, "The worker's process ended with code 137 (OOMKilled).", "WorkerFailed", "is lost"),
        (WorkerState.CREATING, "Unschedulable: 0/3 nodes: insufficient cpu", "WorkerWaits", "room for it"),
    ],
)
def test_each_trouble_of_a_worker_says_what_to_do(state: WorkerState, message: str, kind: str, advice: str) -> None:
    """One condition in plain words, with those of Kubernetes after them."""
    view = seen(a_pod([0], a_part(gpus=(), **BROKEN), status=WorkerStatus(state, message)))
    (condition,) = view.conditions
    assert condition.type == kind
    assert "The worker on n2 " in condition.message
    assert advice in condition.message
    assert condition.message.endswith(f"Kubernetes says: {message}") is bool(message)


def test_gpu_that_programs_of_a_worker_keep_open_is_told() -> None:
    """With their names, each once; it is counted nowhere, as it can be used by nobody."""
    holds = (Holder(7, "python"), Holder(0, "sh"))
    one = (DrainingShare("GPU-far", 1000, holds),)
    view = seen(a_pod([0], a_part(milli=0, gpus=(), draining=one)))
    (condition,) = view.conditions
    assert condition.type == "WorkerHolds"
    assert condition.message.startswith("A GPU of n2, given back, is still open")
    assert "the worker there: python (process 7), sh. Nobody has it" in condition.message
    assert (view.status.attached, view.status.draining) == (1000, 0)
    two = (*one, DrainingShare("GPU-too", 500, holds[:1]))
    (condition,) = seen(a_pod([0], a_part(milli=0, gpus=(), draining=two))).conditions
    assert "2 GPUs of n2, given back, are still open" in condition.message


CONNECTING = WorkerStatus(WorkerState.RUNNING)


@pytest.mark.parametrize(
    ("status", "milli", "waited", "kind"),
    [
        (None, 1000, "creating", "WorkerControllerSilent"),
        (CONNECTING, 1000, "connecting", "WorkerSilent"),
        (WorkerStatus(WorkerState.CREATING), 1000, "", ""),
        (CONNECTING, 0, "", ""),
    ],
)
def test_silent_worker_has_a_condition(status: WorkerStatus | None, milli: int, waited: str, kind: str) -> None:
    """It should have been created, or have said its key; Kubernetes may take its time."""
    pod = a_pod([0], a_part(milli=milli, gpus=(), **BROKEN), status=status)
    found = read(pod).workers
    assert found
    assert found.waited_for == (frozenset({("w1", waited)}) if waited else frozenset())
    state = KnownState("i", pod, node=Node("n1", False, inventory(2)), silent=found.waited_for)
    assert [one.type for one in compose(1, state, Settings()).conditions] == ([kind] if kind else [])


def test_backend_waits_for_a_silent_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition comes by itself, and goes when something is heard."""
    monkeypatch.setattr(silent_workers, "PATIENCE", 0.01)

    async def run() -> list[list[str]]:
        backend = KubernetesBackend()
        come = asyncio.Event()
        pulling = WorkerStatus(WorkerState.PULLING)
        kinds: list[list[str]] = []
        for version, status in enumerate((CONNECTING, pulling, CONNECTING, pulling)):
            pod = a_pod([0], a_part(gpus=(), **BROKEN), status=status)
            pod["metadata"]["resourceVersion"] = str(version + 1)
            backend._adopt(pod)
            kinds.append([one.type for one in backend.view().conditions])
            if version == 0:
                backend.subscribe(lambda _: come.set())
                await asyncio.wait_for(come.wait(), 10)
                kinds.append([one.type for one in backend.view().conditions])
        return kinds

    looking = ["LookingForGpus"]
    assert asyncio.run(run()) == [looking, ["WorkerSilent", *looking], looking, looking, looking]


def test_same_trouble_of_two_workers_is_told_once() -> None:
    """A panel is no log: one condition for each kind."""
    failed = WorkerStatus(WorkerState.FAILED, "Ended.")
    view = seen(a_pod([0], a_part(gpus=(), **BROKEN), WorkerPart("w2", "n3", 1000)))
    known = [worker._replace(stage=Stage.FAILED, message=failed.message) for worker in view.workers]
    assert [one.type for one in workers.troubles(known)] == ["WorkerFailed"]
    assert list(workers.troubles(view.workers)) == []  # they start, and nothing is wrong


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (a_part(), True),
        (a_part(gpus=()), False),  # its node attaches the GPU in a moment
        (a_part(gpus=(), **BROKEN), True),  # a worker that starts takes longer than a request waits
        (a_part(milli=0), True),
    ],
)
def test_request_waits_for_workers_that_run(part: WorkerPart, expected: bool) -> None:
    """An answer waits for GPUs that are there in a moment, and for no start of a worker."""
    assert answered(read(a_pod([0], part)), 1) is expected


def test_wish_is_refused_by_the_scheduler_where_other_nodes_serve() -> None:
    """A pod with a ``service`` has GPUs of other nodes, which its server does not know, unless it says ``local``."""
    node, far = Node("n1", False, inventory(2)), workers.Workers()
    assert candidates(Wish(1000), node) == candidates(Wish(1000, placement="local"), node, far) == node.gpus
    assert candidates(Wish(1000), node, far) is candidates(Wish(1000, placement="any"), node) is None


TEXT = st.text(max_size=30) | any_.services.map(encode)


@pytest.mark.uncounted(after=25)
@given(TEXT, st.text(max_size=30) | any_.worker_statuses.map(encode))
def test_view_of_any_service_can_be_sent(service: str, status: str) -> None:
    """No annotation of workers can break the panel."""
    pod = a_pod([0])
    pod["metadata"]["annotations"] |= {SERVICE: service, WORKER_STATUS: status}
    view = seen(pod)
    assert View.from_json(view.to_json()).to_json() == view.to_json()
    assert answered(Records(), 1) is False
