"""Jobs and notebooks on the same GPUs, in the whole cluster: a preemptible Job works on what notebooks leave."""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import REQUESTED
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from tests.cluster.testbed import binaries
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import pods
from tests.cluster.whole.states import PodState
from tests.cluster.whole.world import World

pytestmark = [
    pytest.mark.root,
    pytest.mark.cluster,
    pytest.mark.existing,
    pytest.mark.timeout(900),  # the first of all installs the product
]

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "job.yaml"
USER = "ann.jobs"
LIMITS = ("ann-jobs", "batch-jobs")
NOTICE = 60
"""Seconds between the notice and the time when GPUs go."""
GRACE = 40
"""Seconds that the Job's programs have for their checkpoint."""
PROGRAM = """
descriptor=3
for gpu in $GPUS; do
  until (exec 9<>$gpu) 2>/dev/null; do sleep 0.2; done
  eval "exec $descriptor<>$gpu"
  descriptor=$((descriptor + 1))
done
save() {
  for gpu in $GPUS; do (exec 9<>$gpu) && echo opens; done
  sleep 1
  echo saved
  exit 143
}
trap save TERM
echo trains
while :; do sleep 3600 & wait; done
"""
"""Opens all GPUs and keeps them open; on SIGTERM it still needs them, as for a checkpoint, and takes its time."""


@pytest.fixture
def batch(corner: World) -> Iterator[World]:
    """Return a corner with limits: one user has two guaranteed GPUs, and pods of the namespace what is free."""
    _set_limit(corner, LIMITS[0], subject={"kind": "User", "name": USER}, max=2, guaranteed=2)
    _set_limit(
        corner, LIMITS[1], subject={"kind": "Namespace", "name": corner.namespace}, max="unlimited", grace=f"{NOTICE}s"
    )
    yield corner
    for name in ("job/training", *(f"gpulimits/{name}" for name in LIMITS)):
        with contextlib.suppress(CommandFailed):
            corner.kubectl("delete", name, "--ignore-not-found", "--wait=false")


def _set_limit(corner: World, name: str, **spec: Any) -> None:
    body = {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuLimit", "metadata": {"name": name}, "spec": spec}
    corner.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def job(corner: World) -> dict[str, Any]:
    """Return the example, with a program of these tests that wants all GPUs of the first node."""
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    template = found["spec"]["template"]
    wish = json.loads(template["metadata"]["annotations"][REQUESTED])
    assert wish["preemptible"] is True
    template["metadata"]["annotations"][REQUESTED] = json.dumps({**wish, "milli": 4000})
    spec = template["spec"]
    spec |= {"nodeSelector": {pods.HOST: corner.one}, "terminationGracePeriodSeconds": GRACE}
    (container,) = spec["containers"]
    container |= {
        "image": pods.BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", PROGRAM],
        "env": [{"name": "GPUS", "value": " ".join(corner.devices(corner.one))}],
        "resources": {"requests": {"cpu": "10m"}, "limits": {SLOT: container["resources"]["limits"][SLOT]}},
    }
    return found


def of_user(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod as one of the user."""
    annotations = {**pod["metadata"]["annotations"], USERNAME: USER, HUB: "hub"}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def pod_of_job(corner: World, condition: Callable[[PodState], object]) -> PodState:
    """Wait for a pod of the Job of which the condition is true."""
    return corner.until(
        lambda: next(
            (pod for pod in corner.history.pods() if pod.name.startswith("training-") and condition(pod)), None
        ),
        "a pod of the Job",
        150,
    ) or pytest.fail("There is none.")


@contextmanager
def followed(corner: World, name: str, lines: list[str]) -> Iterator[None]:
    """Have the block's pod followed until it ends: what it wrote is in ``lines`` after the block."""
    flags = ["--kubeconfig", str(corner.cluster.kubeconfig), "--namespace", corner.namespace]
    words = [str(binaries.path("kubectl")), *flags, "logs", "--follow", name]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            lines.append(process.stdout.readline().strip())
            yield
            lines += process.communicate(timeout=60)[0].split()
        finally:
            process.kill()


def test_notebook_takes_its_guaranteed_gpus_back_from_a_job(batch: World) -> None:
    """A Job fills a resting node. It is told what goes and when, gets SIGTERM while it has its GPUs, and the notebook
    has them by then. The Job did not fail: another pod of it waits, and goes on when the notebook ends.
    """
    batch.create(job(batch))
    trains = pod_of_job(batch, lambda pod: pod.ready and sum(pod.usable.values()) == 4000)
    assert '"shares"' in batch.exec(trains.name, "cat", "/etc/podinfo/allocated")
    lines: list[str] = []
    with followed(batch, trains.name, lines):
        batch.until(lambda: len(_open(batch, trains.name)) == 4, "its open GPUs to be known")
        batch.create(of_user(pods.pod("notebook", wants=2, node=batch.one)))
        told = pod_of_job(batch, lambda pod: pod.allocated and pod.allocated.limit and pod.allocated.limit.reclaimed)
        assert told.allocated
        assert told.allocated.limit
        (notice,) = told.allocated.limit.reclaimed
        assert notice.milli == 2000
        event = batch.event(trains.name, "the notice", lambda reason, _: reason == "GpusReclaimed")
        assert f"it gets SIGTERM up to {GRACE} s before" in event
        batch.has("notebook", 2000)
        assert time.time() <= notice.at
    assert lines == ["trains", *["opens"] * 4, "saved"]
    assert NOTICE - GRACE - 5 <= _ended_at(batch, trains) - (notice.at - NOTICE) <= NOTICE
    batch.event(trains.name, "the end", lambda reason, message: reason == "GpuJobEnded" and "SIGTERM now" in message)
    again = pod_of_job(batch, lambda pod: pod.uid != trains.uid and not pod.ready)
    assert not json.loads(batch.kubectl("get", "job", "training", "-o", "json"))["status"].get("failed")
    batch.delete("notebook")
    assert pod_of_job(batch, lambda pod: pod.ready and sum(pod.usable.values()) == 4000).uid == again.uid


def _ended_at(batch: World, pod: PodState) -> float:
    """Return when the pod was asked to end, in seconds since 1970; its GPUs were its own then."""
    asked = batch.history.first(pod.name, lambda state: state.deleting)
    assert sum(asked.state.usable.values()) == 4000
    return time.time() - (time.monotonic() - asked.heard)


def _open(batch: World, name: str) -> tuple[str, ...]:
    """Return the GPUs that a pod has open, as its node has told so far."""
    attached = batch.pod(name).attached
    return attached.open if attached else ()
