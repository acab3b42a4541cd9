"""Pods of notebooks and workers, as the API server has them."""

from typing import Any

from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import SERVICE, WORKER_STATUS, encode
from jupyter_gpu.model.service import Service, WorkerPart, WorkerStatus, WorkerStatuses
from jupyter_gpu_scheduler.workers.rules.records import Notebook, WorkerPod, read_notebook, read_worker
from jupyter_gpu_scheduler.workers.rules.template import Template, worker_pod

UID = "11111111-2222-3333-4444-555555555555"
DIGEST = "sha256:" + "0123456789abcdef" * 4


def part(number: int = 1, node: str = "node2") -> WorkerPart:
    """Return a worker that `service` names."""
    return WorkerPart(f"w{number}", node, 1000)


def notebook_pod(*parts: WorkerPart, statuses: dict[str, WorkerStatus] | None = None, **more: Any) -> dict[str, Any]:
    """Return a notebook's pod; `more` is merged into its metadata, spec and status, and into its container."""
    annotations = {SERVICE: encode(Service(1, parts))}
    if statuses:
        annotations[WORKER_STATUS] = encode(WorkerStatuses(statuses))
    container = {"name": "notebook", "image": "example.org/lab:1", "resources": {"limits": {SLOT: "1"}}}
    metadata = {"namespace": "team", "name": "ann", "uid": UID, "resourceVersion": "7", "annotations": annotations}
    spec = {"containers": [{**container, **more.get("container", {})}], **more.get("spec", {})}
    status = {"phase": "Running", **more.get("status", {})}
    return {"metadata": {**metadata, **more.get("metadata", {})}, "spec": spec, "status": status}


def notebook(*parts: WorkerPart, **more: Any) -> Notebook:
    """Return a notebook, read from its pod."""
    found = read_notebook(notebook_pod(*parts, **more))
    assert found
    return found


def worker(of: WorkerPart, status: dict[str, Any] | None = None, *, removing: bool = False) -> WorkerPod:
    """Return the worker pod of a part, read from the pod that the template makes, in this status."""
    made = worker_pod(notebook(of), of, Template())
    made["metadata"]["uid"] = f"uid-of-{of.id}"
    if removing:
        made["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    found = read_worker({**made, "status": status or {"phase": "Pending"}})
    assert found
    return found


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """Return the status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return {"phase": "Pending", "containerStatuses": [{"name": "worker", "state": state, **more}]}


RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "worker", "state": {"running": {}}}]}
EVICTED: dict[str, Any] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
