"""The workers of a pod as its user sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.pod_worker import PodWorker, Stage, elsewhere, pod_workers
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.service import Relation, Service, WorkerPart, WorkerState, WorkerStatus
from jupyter_gpu.model.strict import FieldError

from . import strategies as any_

pytestmark = pytest.mark.uncounted(after=25)

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
A, B = GpuShare("GPU-a", 1000), GpuShare("GPU-b", 500)


def part(**fields: object) -> WorkerPart:
    """Return a part of 1000 on another node, whose worker can be reached."""
    usual = {"id": "w1", "node": "n2", "milli": 1000, "address": "10.0.0.7", "port": 47100, "key": KEY}
    return WorkerPart.from_json({**usual, "relation": "switch", **fields})


def one(status: WorkerStatus | None, **fields: object) -> PodWorker:
    """Return what is seen of that part with this status."""
    (worker,) = pod_workers(Service(1, (part(**fields),)), {"w1": status} if status else {})
    return worker


@given(any_.pod_workers)
def test_worker_survives_a_round_trip(worker: PodWorker) -> None:
    """It is read as it was written."""
    assert PodWorker.from_json(strict.loads(strict.dumps(worker.to_json()), 10**6)) == worker


@given(any_.pod_workers, st.sampled_from(["id", "node", "stage", "milli", "gpus", "roundTrip"]), any_.json_values)
def test_any_field_is_read_or_refused(worker: PodWorker, key: str, value: object) -> None:
    """Whatever stands in a field, the worker is read or refused by name."""
    field = key
    try:
        PodWorker.from_json({**worker.to_json(), key: value})
    except FieldError as error:
        field = error.field
    assert field


def test_gpu_that_stopped_working_is_one_that_the_worker_has() -> None:
    """With its reason, in the order of the GPUs; what ``service`` says of others counts for nothing."""
    shares = [A.to_json(), B.to_json()]
    broken = [{"uuid": uuid, "health": health} for uuid, health in (("GPU-b", "gone"), ("GPU-c", "gone, too"))]
    worker = one(None, attached=shares, unhealthy=broken)
    assert (worker.health, worker.unhealthy, worker.usable) == (("", "gone"), (B,), 1500)
    assert worker.to_json()["gpus"] == [A.to_json(), {**B.to_json(), "health": "gone"}]
    (nameless,) = one(None, attached=shares, unhealthy=[{"uuid": "GPU-a", "health": ""}]).unhealthy
    assert nameless == A, "no reason is known, and it is broken"
    works = one(None, attached=shares, unhealthy=broken[1:])
    assert (works.health, works.unhealthy) == ((), ())


@pytest.mark.parametrize(
    ("state", "reachable", "stage"),
    [
        (None, False, Stage.CREATING),
        (WorkerState.CREATING, False, Stage.CREATING),
        (WorkerState.PULLING, False, Stage.PULLING),
        (WorkerState.RUNNING, False, Stage.CONNECTING),
        (WorkerState.RUNNING, True, Stage.READY),
        (None, True, Stage.READY),
        (WorkerState.CREATING, True, Stage.READY),  # the status is older than the key
        (WorkerState.REFUSED, False, Stage.REFUSED),
        (WorkerState.FAILED, True, Stage.FAILED),  # its container ended, and its pod stays
    ],
)
def test_stage_follows_the_key_and_the_controllers_word(
    state: WorkerState | None, reachable: bool, stage: Stage
) -> None:
    """A worker is ready once it can be reached, if the controller does not say that it ended."""
    status = WorkerStatus(state, "Back-off") if state else None
    worker = one(status, **({} if reachable else {"key": None}))
    assert worker.stage is stage
    assert worker.hindered is (stage in (Stage.REFUSED, Stage.FAILED))
    assert worker.message == ("Back-off" if status and stage is not Stage.READY else "")


@pytest.mark.parametrize(
    ("stage", "milli", "gpus", "usable", "missing", "leaving", "attaching"),
    [
        (Stage.READY, 1000, (A,), 1000, 0, 0, False),
        (Stage.READY, 1500, (A,), 1000, 500, 0, True),
        (Stage.READY, 500, (A, B), 1500, 0, 1000, False),
        (Stage.READY, 0, (), 0, 0, 0, False),
        (Stage.CONNECTING, 1000, (A,), 0, 1000, 0, False),
        (Stage.FAILED, 0, (A,), 0, 0, 1000, False),
    ],
)
def test_amounts_of_a_worker(
    stage: Stage, milli: int, gpus: tuple[GpuShare, ...], usable: int, missing: int, leaving: int, attaching: bool
) -> None:
    """A GPU that cannot be reached is missing, and one above the part is being given back."""
    worker = PodWorker("w1", "n2", Relation.SWITCH, stage, milli, gpus)
    assert (worker.usable, worker.missing, worker.leaving) == (usable, missing, leaving)
    assert worker.attaching is attaching


@given(any_.services)
def test_no_worker_of_a_service_is_left_out(service: Service) -> None:
    """Each worker is shown, in the same order, and what other nodes serve is never less than what is there."""
    workers = pod_workers(service, {})
    assert [worker.id for worker in workers] == [found.id for found in service.workers]
    most = elsewhere(service, workers)
    assert min(MAX_MILLI, max(service.elsewhere, sum(worker.milli for worker in workers))) <= most <= MAX_MILLI
