"""The worker controller as a process on a real API server: the test writes `service`, as the scheduler will, and is the
kubelet of the worker pods.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import SERVICE, WORKER, WORKER_STATUS, encode
from jupyter_gpu.model.limits.owner import USERNAME
from jupyter_gpu.model.service import Service, WorkerPart, WorkerState, WorkerStatus, decode_worker_status
from jupyter_gpu_scheduler.workers.rules.template import worker_name
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage

pytestmark = pytest.mark.cluster
SANDBOX = {"type": "PodReadyToStartContainers", "status": "True"}
CREATING, PULLING, RUNNING, REFUSED, FAILED = WorkerState


class Controller:
    """One process; `log` is all that it wrote."""

    def __init__(self, stage: Stage, settings: Mapping[str, Any] | None = None, point: str = "") -> None:
        stage.folder.mkdir(parents=True, exist_ok=True)
        self._file = stage.folder / f"workers-{time.monotonic_ns()}.log"
        path = stage.folder / f"workers-{time.monotonic_ns()}.json"
        lease = {"name": f"{stage.prefix}-workers", "durationSeconds": 3, "renewSeconds": 2, "retrySeconds": 0.3}
        usual = {"namespaces": [stage.namespace], "lease": lease, "status": {"address": "127.0.0.1", "port": 0}}
        path.write_text(json.dumps({**usual, **(settings or {})}))
        variables = {
            **os.environ,
            "KUBECONFIG": str(stage.plane.kubeconfig),
            **({faults.VARIABLE: point} if point else {}),
        }
        variables.pop("KUBERNETES_SERVICE_HOST", None)
        with self._file.open("wb") as log:
            words = [sys.executable, "-m", "jupyter_gpu_scheduler.workers", "--settings", str(path)]
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=variables)

    @property
    def log(self) -> str:
        """All lines."""
        return self._file.read_text(errors="replace")

    def until_leading(self) -> Controller:
        """Wait for it."""
        until(lambda: "It leads." in self.log, what="the controller to lead")
        return self

    def until_dead(self) -> None:
        """Wait until it has killed itself."""
        until(lambda: self.process.poll() is not None, what="the process to die")

    def stop(self) -> int:
        """Stop it as the kubelet would; return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(30)


class Workers:
    """A notebook `ann` and its workers, on two nodes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.near, self.far = stage.node("n1"), stage.node("n2")
        self.uids: dict[str, str] = {}
        self._processes: list[Controller] = []

    def start(self, settings: Mapping[str, Any] | None = None, point: str = "") -> Controller:
        """Start a controller."""
        self._processes.append(Controller(self.stage, settings, point))
        return self._processes[-1]

    def close(self) -> None:
        """End all controllers."""
        for process in self._processes:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait(30)

    def notebook(self, name: str = "ann", user: str = "", **fields: Any) -> None:
        """Create a notebook's pod, bound to the first node."""
        annotations = {USERNAME: user} if user else None
        self.uids[name] = self.stage.pod(name, self.near, annotations=annotations, **fields)

    def serve(self, *numbers: int, name: str = "ann", node: str = "") -> None:
        """Write `service`, as the scheduler does."""
        parts = tuple(WorkerPart(f"w{number}", node or self.far, 1000) for number in numbers)
        self.stage.annotate(name, **{SERVICE: encode(Service(1, parts))})

    def name(self, number: int = 1, notebook: str = "ann") -> str:
        """Return the name of a worker pod."""
        return worker_name(notebook, self.uids[notebook], f"w{number}")

    def there(self) -> set[str]:
        """Return the names of the worker pods that there are."""
        found = self.stage.do(self.stage.kube.list(paths.pods(self.stage.namespace))).items
        return {objects.name(pod) for pod in found if objects.annotation(pod, WORKER) and not objects.deleting(pod)}

    def until_there(self, *names: str) -> None:
        """Wait until exactly these worker pods are there."""
        until(lambda: self.there() == set(names), what=f"the workers {names}, not {self.there()}")

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod's JSON."""
        return self.stage.do(self.stage.kube.get(paths.pod(self.stage.namespace, name)))

    def told(self, number: int = 1, notebook: str = "ann") -> WorkerStatus | None:
        """Return what is told about a worker; None: nothing."""
        text = objects.annotation(self.pod(notebook), WORKER_STATUS)
        return decode_worker_status(text).by_worker.get(f"w{number}") if text is not None else None

    def until_told(self, state: WorkerState, words: str = "", number: int = 1, notebook: str = "ann") -> WorkerStatus:
        """Wait until a worker is in this state, for this reason."""

        def said() -> bool:
            found = self.told(number, notebook)
            return found is not None and found.state is state and words in found.message

        until(said, what=f"{state}: {words}, not {self.told(number, notebook)}")
        found = self.told(number, notebook)
        assert found
        return found

    def report(self, name: str, *, phase: str = "Pending", **status: Any) -> None:
        """Report the status of a pod, as its kubelet does."""
        body = {"status": {"phase": phase, **status}}
        path = paths.pod(self.stage.namespace, name, "status")
        self.stage.do(self.stage.kube.patch(path, body))

    def container(self, name: str, state: Mapping[str, Any], *, phase: str = "Pending", **status: Any) -> None:
        """Report the state of a worker's container."""
        each = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        self.report(name, phase=phase, containerStatuses=[each], **status)


@pytest.fixture
def workers(stage: Stage) -> Iterator[Workers]:
    """Yield a notebook's surroundings, without a controller."""
    made = Workers(stage)
    yield made
    made.close()


def test_workers_follow_service(workers: Workers) -> None:
    """A named worker is created for its node, told from step to step, and removed when it is named no more."""
    workers.notebook()
    assert workers.start().until_leading()
    workers.serve(1, 2)
    workers.until_there(workers.name(1), workers.name(2))
    made = workers.pod(workers.name(1))
    assert made["metadata"]["ownerReferences"][0]["uid"] == workers.uids["ann"]
    assert made["spec"]["containers"][0]["image"] == "busybox:1"
    assert made["spec"]["schedulerName"] == "jupyter-gpu-scheduler"
    workers.until_told(CREATING)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit."}
    workers.report(workers.name(1), conditions=[unscheduled])
    workers.until_told(CREATING, "Unschedulable: 0/2 nodes fit.")
    workers.container(workers.name(1), {"waiting": {"reason": "ContainerCreating"}}, conditions=[SANDBOX])
    workers.until_told(PULLING)
    workers.container(workers.name(1), {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}})
    assert workers.until_told(REFUSED, "ErrImagePull: no such tag").tries == 0
    workers.container(workers.name(1), {"running": {}}, phase="Running")
    assert workers.until_told(RUNNING).message == ""
    workers.serve(2)
    workers.until_there(workers.name(2))
    until(lambda: workers.told(1) is None, what="the first worker to be forgotten")
    workers.stage.annotate("ann", **{SERVICE: None})
    workers.until_there()
    until(lambda: objects.annotation(workers.pod("ann"), WORKER_STATUS) is None, what="nothing to be told")


def test_part_that_moves_gets_another_worker(workers: Workers) -> None:
    """The worker of the old node is removed first."""
    workers.notebook()
    workers.start()
    workers.serve(1)
    workers.until_there(workers.name())
    before = objects.uid(workers.pod(workers.name()))
    workers.serve(1, node=workers.near)
    until(lambda: workers.there() and objects.uid(workers.pod(workers.name())) != before, what="another worker")
    fields = _node_fields(workers.pod(workers.name()))
    assert fields == [{"key": "metadata.name", "operator": "In", "values": [workers.near]}]


def _node_fields(pod: Mapping[str, Any]) -> Any:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"][0]["matchFields"]


@pytest.mark.parametrize("end", ["deleted", "finished"])
def test_workers_end_with_their_notebook(workers: Workers, end: str) -> None:
    """Its pod is gone, or has ended: nothing that it had stays. Another one of that name has workers of its own."""
    workers.notebook()
    workers.start().until_leading()
    workers.serve(1)
    workers.until_there(workers.name())
    if end == "deleted":
        workers.stage.delete("ann")
    else:
        workers.stage.finish("ann")
    workers.until_there()
    if end == "deleted":
        workers.notebook()
        workers.serve(1)
        workers.until_there(workers.name())


def test_workers_of_before_are_found_again(workers: Workers) -> None:
    """Workers created, named no more or left without a notebook while no controller ran are seen to at its start."""
    workers.notebook()
    workers.notebook("bob")
    first = workers.start()
    workers.serve(1)
    workers.serve(1, name="bob")
    workers.until_there(workers.name(), workers.name(1, "bob"))
    assert first.stop() == 0
    workers.serve(2)
    workers.stage.delete("bob")
    workers.start()
    workers.until_there(workers.name(2))


def test_second_process_takes_over(workers: Workers) -> None:
    """One leads, the other waits; after SIGTERM of the first it goes on."""
    workers.notebook()
    first = workers.start().until_leading()
    second = workers.start()
    workers.serve(1)
    workers.until_there(workers.name())
    assert "is created" in first.log
    assert "It leads." not in second.log
    assert first.stop() == 0
    second.until_leading()
    workers.serve(1, 2)
    workers.until_there(workers.name(1), workers.name(2))


@pytest.mark.parametrize("point", faults.WORKER_POINTS)
def test_killed_controller_is_replaced(workers: Workers, point: str) -> None:
    """Another one goes on from what the API server has: nothing is created twice, nothing stays behind."""
    workers.notebook()
    workers.serve(1)
    removing = point == "workers:removing"
    first = workers.start(point=point)
    if removing:
        workers.until_there(workers.name())
        workers.serve()
    first.until_dead()
    workers.start()
    workers.until_there(*() if removing else (workers.name(),))
    made = [pod for kind, _, pod in workers.stage.watcher.seen if kind == "added" and objects.annotation(pod, WORKER)]
    assert len(made) == 1
    if not removing:
        workers.until_told(CREATING)


def test_quota_is_told_in_kubernetes_words_and_tried_again(workers: Workers) -> None:
    """A worker that is over a quota is refused; once there is room, it is created, after a while."""
    workers.notebook()
    workers.start().until_leading()
    quotas = f"/api/v1/namespaces/{workers.stage.namespace}/resourcequotas"
    spec = {"hard": {"limits.cpu": "3"}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": spec}
    workers.stage.do(workers.stage.kube.create(quotas, body))
    used = {"status": {**spec, "used": {"limits.cpu": "0"}}}
    workers.stage.do(workers.stage.kube.patch(f"{quotas}/small/status", used))
    workers.serve(1)
    refused = workers.until_told(REFUSED, "exceeded quota: small, requested: limits.cpu=4, used: limits.cpu=0")
    assert refused.tries == 1
    workers.stage.do(workers.stage.kube.delete(f"{quotas}/small"))
    workers.until_there(workers.name())
    found = workers.until_told(CREATING)
    assert found.tries == 1
    assert (found.since or 0) - (refused.since or 0) >= 10


def test_restricted_namespace_takes_workers(workers: Workers) -> None:
    """Pod Security's strictest level lets them pass; a notebook that runs as root has none, and is told why."""
    workers.notebook()
    workers.notebook("root", securityContext={"runAsUser": 0})
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    workers.stage.do(workers.stage.kube.patch(f"/api/v1/namespaces/{workers.stage.namespace}", label))
    workers.start()
    workers.serve(1)
    workers.serve(1, name="root")
    workers.until_there(workers.name())
    workers.until_told(REFUSED, "The notebook runs as root", notebook="root")


def test_name_that_another_pod_has_is_told(workers: Workers) -> None:
    """A pod that somebody made under the worker's name is no worker, and is left alone."""
    workers.notebook()
    name = workers.name()
    workers.stage.pod(name)
    workers.start()
    workers.serve(1)
    workers.until_told(REFUSED, f'pods "{name}" already exists')
    assert objects.annotation(workers.pod(name), WORKER) is None


def test_evicted_worker_is_replaced_after_a_while(workers: Workers) -> None:
    """Its pod is removed at once, and the reason is told until another one is there."""
    workers.notebook()
    workers.start()
    workers.serve(1)
    workers.until_there(workers.name())
    before = objects.uid(workers.pod(workers.name()))
    workers.report(workers.name(), phase="Failed", reason="Evicted", message="The node was low on memory.")
    lost = workers.until_told(FAILED, "Evicted: The node was low on memory.")
    assert lost.tries == 1
    workers.until_there()
    workers.until_there(workers.name())
    assert objects.uid(workers.pod(workers.name())) != before
    workers.container(workers.name(), {"running": {}}, phase="Running")
    assert workers.until_told(RUNNING).tries == 0


def test_bounds_of_an_owner_hold(workers: Workers) -> None:
    """All notebooks of a user together have so many workers and no more; another user's are not concerned."""
    for name, user in (("ann", "ann"), ("other", "ann"), ("bob", "bob")):
        workers.notebook(name, user)
    workers.start({"bounds": {"perPod": 2, "perOwner": 3}})
    workers.serve(1, 2, 3)
    workers.until_told(REFUSED, "A notebook may have 2 workers", number=3)
    workers.serve(1, 2, name="other")
    workers.until_told(REFUSED, "The notebooks of one user may have 3 workers together", 2, "other")
    workers.serve(1, name="bob")
    mine = {workers.name(1), workers.name(2), workers.name(1, "other")}
    workers.until_there(*mine, workers.name(1, "bob"))


def test_creations_keep_a_pace(workers: Workers) -> None:
    """Some at once, then one in a while: a user who asks in a loop does not fill the cluster."""
    workers.notebook()
    workers.start({"bounds": {"burst": 2, "perSecond": 0.5}}).until_leading()
    workers.serve(1, 2, 3, 4)
    workers.until_there(*(workers.name(number) for number in (1, 2, 3, 4)))
    times = [at for kind, at, pod in workers.stage.watcher.seen if kind == "added" and objects.annotation(pod, WORKER)]
    assert times[3] - times[0] > 3.0


def test_outage_of_the_api_server_is_survived(workers: Workers) -> None:
    """A worker that was named just before is created afterwards."""
    workers.notebook()
    process = workers.start().until_leading()
    workers.serve(1)
    workers.until_there(workers.name())
    workers.serve(1, 2)
    with workers.stage.plane.without("apiserver"):
        time.sleep(3)  # longer than the lease is kept without a renewal
    workers.until_there(workers.name(1), workers.name(2))
    assert process.process.poll() is None


def test_unreadable_service_leaves_workers_alone(workers: Workers) -> None:
    """Nothing is created or removed by what cannot be read; the log says why."""
    workers.notebook()
    process = workers.start()
    workers.serve(1)
    workers.until_there(workers.name())
    workers.stage.annotate("ann", **{SERVICE: '{"generation": 1, "workers": [{"id": "../w"}]}'})
    until(lambda: "stay as they are" in process.log, what="the warning")
    assert workers.there() == {workers.name()}
    workers.serve(1, 2)
    workers.until_there(workers.name(1), workers.name(2))


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"namespaces": []}, "'namespaces' must name"), ({"namespace": ["a"]}, "'namespace' is not known")],
)
def test_unusable_settings_end_the_process_in_words(workers: Workers, settings: Mapping[str, Any], words: str) -> None:
    """One sentence and exit status 2."""
    process = workers.start(settings)
    assert process.process.wait(60) == 2
    assert words in process.log
    assert "Traceback" not in process.log
