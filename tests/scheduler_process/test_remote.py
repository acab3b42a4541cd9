"""GPUs of another node, on a real API server: scheduler and worker controller as processes, from the wish to `service`
and a worker's GPUs, and back. The test is kube-scheduler and the kubelet of the worker pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    SERVICE,
    WORKER,
    WORKER_STATUS,
    Allocated,
    decode_allocated,
    encode,
)
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.service import (
    Peer,
    WorkerPart,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
    decode_service,
    decode_worker_service,
)
from jupyter_gpu_scheduler.workers.rules.template import worker_name
from tests.cluster.testbed import until
from tests.scheduler_process.extender_client import ExtenderClient
from tests.scheduler_process.stage import Scheduler, Stage
from tests.scheduler_process.test_limits import limits_in_use, set_limit
from tests.scheduler_process.test_workers import Controller

pytestmark = pytest.mark.cluster
KEY, OTHER = "a" * 40, "b" * 40


class Remote:
    """A notebook `ann` on a node with one GPU, another node with two, and the processes that serve it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.near, self.far = stage.node("n1", gpus=1), stage.node("n2", gpus=2)
        self.ann = stage.pod("ann", self.near)
        self._processes: list[Controller] = []

    def scheduler(self, **workers: Any) -> Scheduler:
        """Start a scheduler for which workers are allowed."""
        return self.stage.scheduler(settings={"workers": {"namespaces": [self.stage.namespace], **workers}})

    def controller(self) -> Controller:
        """Start a worker controller."""
        self._processes.append(Controller(self.stage))
        return self._processes[-1].until_leading()

    def close(self) -> None:
        """End the controllers."""
        for process in self._processes:
            process.stop()

    def name(self, number: int = 1) -> str:
        """Return the name of a worker's pod."""
        return worker_name("ann", self.ann, f"w{number}")

    def parts(self) -> tuple[WorkerPart, ...]:
        """Return the parts of `service`."""
        text = objects.annotation(self.stage.get("ann"), SERVICE)
        return decode_service(text).workers if text is not None else ()

    def until_parts(self, **parts: int) -> tuple[WorkerPart, ...]:
        """Wait until the workers have these amounts."""

        def there() -> bool:
            return {part.id: part.milli for part in self.parts()} == parts

        until(there, what=f"{parts}, not {self.parts()}")
        return self.parts()

    def until_worker(self, number: int = 1) -> dict[str, Any]:
        """Wait until a worker's pod is there."""
        until(lambda: not self.stage.missing(self.name(number)), what="the worker pod")
        return self.stage.get(self.name(number))

    def bind(self, scheduler: Scheduler, number: int = 1, node: str = "") -> str:
        """Bind a worker as kube-scheduler does; return the node."""
        pod, client = self.until_worker(number), ExtenderClient(scheduler.extender_port)
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        where = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        assert client.filter(pod, [where])["NodeNames"] == [where]
        assert client.bind(pod, where) == ""
        return str(where)

    def run(self, number: int = 1, address: str = "10.0.2.7") -> None:
        """Report that a worker runs."""
        state = {
            "name": "worker",
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {}},
        }
        body = {
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [state]}
        }
        self.stage.do(self.stage.kube.patch(paths.pod(self.stage.namespace, self.name(number), "status"), body))

    def say(self, name: str, peer: Peer) -> None:
        """A node plugin writes what its pod says of its keys."""
        attached = json.loads(objects.annotation(self.stage.get(name), ATTACHED) or "{}")
        self.stage.annotate(name, **{ATTACHED: json.dumps({**attached, "peer": peer.to_json()})})


@pytest.fixture
def remote(stage: Stage) -> Iterator[Remote]:
    """Yield the surroundings, without a process."""
    made = Remote(stage)
    yield made
    made.close()
    assert not stage.watcher.decided_twice


def test_whole_way_to_another_node_and_back(remote: Remote) -> None:
    """It gets what is there, and the rest by a worker; keys on both sides; a shrink keeps the worker for a while."""
    stage = remote.stage
    scheduler = remote.scheduler(graceSeconds=2)
    remote.controller()
    stage.request("ann", 3)
    assert stage.until_count("ann", 1) == ["0"]
    (part,) = remote.until_parts(w1=2000)
    assert (part.node, part.relation) == (remote.far, "unknown")
    assert remote.bind(scheduler) == remote.far
    stage.until_count(remote.name(), 2)
    remote.run()
    stage.pause(remote.near, remote.far)  # node plugins do not keep keys yet
    remote.say(remote.name(), Peer(KEY, 47100))
    remote.say("ann", Peer(keys=(("w1", OTHER),)))
    until(lambda: remote.parts()[0].ready, what=f"the worker to be ready, not {remote.parts()}")
    (part,) = remote.parts()
    assert (part.pod, part.uid, part.address, part.port, part.key) == (
        *(remote.name(), objects.uid(stage.get(remote.name()))),
        *("10.0.2.7", 47100, KEY),
    )
    assert [share.milli for share in part.attached] == [1000, 1000]

    def accepts() -> str:
        text = objects.annotation(stage.get(remote.name()), SERVICE)
        return decode_worker_service(text).key if text else ""

    until(lambda: accepts() == OTHER, what="the worker to accept the notebook")
    stage.pause()
    stage.request("ann", 1)
    remote.until_parts(w1=0)
    stage.until_count(remote.name(), 0)
    assert stage.until_count("ann", 1) == ["0"]
    stage.request("ann", 2)
    remote.until_parts(w1=1000)
    stage.until_count(remote.name(), 1)
    stage.request("ann", 1)
    remote.until_parts()
    until(lambda: stage.missing(remote.name()) or objects.deleting(stage.get(remote.name())), what="its end")
    assert decode_allocated(objects.annotation(stage.get("ann"), ALLOCATED) or "").reason is None


def test_gpu_of_a_worker_that_stopped_working_is_told(remote: Remote) -> None:
    """In `service`, and as an Event of both pods; it stays until it is given back, before all that works.

    A scheduler that starts after another was killed says the same, and what changed meanwhile.
    """
    stage = remote.stage
    scheduler = remote.scheduler()
    remote.controller()
    stage.request("ann", 3)
    remote.until_parts(w1=2000)
    remote.bind(scheduler)
    stage.until_count(remote.name(), 2)
    until(lambda: len(remote.parts()[0].attached) == 2, what="both to be attached")
    assert not remote.parts()[0].unhealthy
    stage.put_inventory(remote.far, 2, unhealthy=(0,))
    for name in ("ann", remote.name()):
        assert "broken by a test" in stage.until_event(name, "GpusUnhealthy")
    (broken,) = until(lambda: remote.parts()[0].unhealthy, what="the reason in `service`") or ()
    assert (broken.health, broken.uuid) == ("broken by a test", stage.inventory(remote.far, 2)[0].uuid)
    assert stage.has(remote.name()) == ["0", "1"]
    scheduler.kill()
    stage.put_inventory(remote.far, 2)
    remote.scheduler()
    until(lambda: not remote.parts()[0].unhealthy, what="nothing broken to be told")
    stage.put_inventory(remote.far, 2, unhealthy=(0,))
    until(lambda: remote.parts()[0].unhealthy == (broken,), what="the same reason again")
    stage.request("ann", 2)
    remote.until_parts(w1=1000)
    assert stage.until_count(remote.name(), 1) == ["1"]
    until(lambda: not remote.parts()[0].unhealthy, what="nothing broken to be left")


def test_nothing_goes_to_other_nodes_unless_it_is_allowed(remote: Remote) -> None:
    """Neither by default, nor for a wish that is local; the rest waits in the own node's line."""
    stage = remote.stage
    first = stage.scheduler()
    stage.request("ann", {"generation": 1, "milli": 1000})
    stage.until_count("ann", 1)
    stage.request("ann", {"generation": 2, "milli": 2000, "placement": "any"})
    refused = stage.until_reason("ann", "Infeasible")
    first.kill()
    stage.request("ann", {"generation": 3, "milli": 2000, "placement": "local"})
    remote.scheduler()
    until(lambda: stage.allocated("ann") == replace(refused, observed_generation=3), what="the same answer")
    assert objects.annotation(stage.get("ann"), SERVICE) is None
    stage.request("ann", {"generation": 4, "milli": 2000})
    remote.until_parts(w1=1000)


def test_another_leader_goes_on(remote: Remote) -> None:
    """After the first was killed, a second one goes on from what was written, and a third one changes nothing."""
    stage = remote.stage
    stage.request("ann", 2)
    workers = {"workers": {"namespaces": [stage.namespace]}}
    dying = stage.scheduler(lead=False, settings=workers, environ={faults.VARIABLE: "scheduler:written"})
    dying.stop_by_itself()
    second = remote.scheduler()
    remote.controller()
    remote.until_parts(w1=1000)
    stage.until_count("ann", 1)
    remote.bind(second)
    stage.until_count(remote.name(), 1)
    until(lambda: bool(remote.parts()[0].attached), what="`service` to tell what is attached")
    assert len(stage.watcher.writes(remote.ann)) == 1
    before = stage.watcher.writes(remote.ann, SERVICE)
    second.kill()
    remote.scheduler()
    stage.request("ann", 3)
    remote.until_parts(w1=2000)
    stage.until_count(remote.name(), 2)
    assert stage.watcher.writes(remote.ann, SERVICE)[: len(before)] == before
    assert len({part.id for part in remote.parts()}) == 1


def test_worker_with_another_image_gets_nothing(remote: Remote) -> None:
    """Nor does one that `service` does not name, whoever made it."""
    stage = remote.stage
    remote.scheduler()
    stage.request("ann", 2)
    remote.until_parts(w1=1000)
    for name, worker, image in (("forged", "w1", "evil:1"), ("stray", "w7", "busybox:1")):
        identity = json.dumps({"notebook": remote.ann, "id": worker})
        container = {"name": "c", "image": image, "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}}
        stage.pod(name, remote.far, annotations={WORKER: identity}, containers=[container])
    other = stage.pod("bob", remote.far, 2)
    assert len(stage.until_count("bob", 2)) == 2, f"a GPU is kept from {other}"
    assert not (stage.allocated("forged") or Allocated(0)).shares
    assert not (stage.allocated("stray") or Allocated(0)).shares


def test_limit_keeps_a_notebook_on_its_node(remote: Remote) -> None:
    """With ``remote: false`` it is given nothing elsewhere, and gives back what it has there; without, as before."""
    stage = remote.stage
    subject = {"kind": "Namespace", "name": stage.namespace}
    with limits_in_use(stage):
        set_limit(stage, stage.prefix, subject=subject, max=3, remote=False)
        remote.scheduler(graceSeconds=1)
        remote.controller()
        stage.request("ann", 3)
        stage.until_reason("ann", "Infeasible")
        assert remote.parts() == ()
        set_limit(stage, stage.prefix, subject=subject, max=3, remote=True)
        stage.until_count("ann", 1)
        remote.until_parts(w1=2000)
        set_limit(stage, stage.prefix, subject=subject, max=3, remote=False)
        remote.until_parts()


def test_wishes_in_loops(remote: Remote) -> None:
    """Two notebooks of a namespace ask for all and nothing in turn: its limit holds, and each has one worker pod."""
    stage = remote.stage
    stage.pod("bob", remote.near)
    with limits_in_use(stage):
        set_limit(stage, stage.prefix, subject={"kind": "Namespace", "name": stage.namespace}, max=2, grace="0s")
        remote.scheduler()
        remote.controller()
        seen = stage.follow(paths.pods(stage.namespace))
        for number in range(30):
            stage.request(("ann", "bob")[number // 2 % 2], 3 * (number % 2))

        def served() -> bool:
            limit = (stage.allocated("ann") or Allocated(0)).limit
            told = limit is not None and limit.together().milli == 2000
            return told and len(stage.has("ann")) + sum(part.milli for part in remote.parts()) // 1000 == 2

        stage.request("bob", 0)
        until(served, what=f"what the limit permits, not {remote.parts()}")
    held: dict[str, int] = {}
    for pod in seen:
        text = objects.annotation(pod, ALLOCATED)
        held[objects.uid(pod)] = total(decode_allocated(text).shares) if text else 0
        assert sum(held.values()) <= 2000
    workers = {objects.uid(pod) for pod in seen if objects.annotation(pod, WORKER)}
    assert len(workers) <= 2


def test_part_of_a_failed_worker_moves(remote: Remote) -> None:
    """The worker controller tells that it could not run there; what it owes goes to another node."""
    stage = remote.stage
    third = stage.node("n3", gpus=1)
    remote.scheduler()
    stage.request("ann", 2)
    (part,) = remote.until_parts(w1=1000)
    failed = WorkerStatuses({"w1": WorkerStatus(WorkerState.FAILED, "Evicted", 1, 1)})
    stage.annotate("ann", **{WORKER_STATUS: encode(failed)})
    parts = remote.until_parts(w1=0, w2=1000)
    assert {part.node, parts[1].node} == {remote.far, third}
