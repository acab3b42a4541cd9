"""Processes that are killed, twice there, or cut off: the rules hold, and everything converges."""

import time

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import Allocated
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Scheduler, Stage

pytestmark = pytest.mark.cluster


def _dead(scheduler: Scheduler) -> None:
    until(lambda: scheduler.process.poll() is not None, what="the process to die")


@pytest.mark.parametrize("point", ["scheduler:decided", "scheduler:written"])
def test_scheduler_killed_while_deciding_is_replaced(stage: Stage, point: str) -> None:
    """Another one completes what was begun: each GPU has one owner, and each pod has what there is."""
    assert point in faults.SCHEDULER_POINTS
    node = stage.node(gpus=3)
    names = ("a", "b", "c")
    for name in names:
        stage.pod(name, node)
    first = stage.scheduler(environ={faults.VARIABLE: point})
    for name in names:
        stage.request(name, 1)
    _dead(first)
    stage.scheduler()
    for name in names:
        stage.until_count(name, 1)
    assert not stage.watcher.decided_twice


def test_places_in_line_outlive_the_process(stage: Stage) -> None:
    """Places in line outlive the process: they are in the annotations."""
    node = stage.node(gpus=1)
    first = stage.scheduler()
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    for name in ("early", "late"):
        stage.pod(name, node, 1)
        stage.until_reason(name, "Deferred")
    tickets = [(stage.allocated(name) or Allocated(0)).ticket for name in ("early", "late")]
    first.kill()
    stage.request("owner", "0")
    stage.scheduler()
    stage.until_count("early", 1)
    assert (stage.allocated("late") or Allocated(0)).ticket == tickets[1]


def test_one_leads_and_the_next_takes_over(stage: Stage) -> None:
    """One of two leads; after SIGTERM the other does at once, after kill -9 when the lease has run out."""
    node = stage.node(gpus=2)
    first = stage.scheduler()
    second = stage.scheduler(lead=False)
    until(lambda: second.get("/readyz")[0] == 200, what="the second to know the cluster")
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    assert first.leads()
    assert not second.leads()
    assert first.stop() == 0
    assert "leads" in second.until_leading().log
    third = stage.scheduler(lead=False)
    second.kill()
    stage.request("a", 2)
    third.until_leading()
    stage.until_count("a", 2)
    assert not stage.watcher.decided_twice


def test_two_leaders_do_no_harm(stage: Stage) -> None:
    """Forced to lead at once: nothing is ever attached twice, and what contradicts itself is mended."""
    node = stage.node(gpus=3)
    for number in (1, 2):
        stage.scheduler(settings={"lease": {"name": f"{stage.prefix}-{number}"}})
    names = [f"p{number}" for number in range(4)]
    for name in names:
        stage.pod(name, node)
    for turn in range(1, 6):
        for number, name in enumerate(names):
            stage.request(name, {"generation": turn, "milli": 1000 * ((turn + number) % 3)})
    wants = {name: number % 2 for number, name in enumerate(names)}
    for name, count in wants.items():
        stage.request(name, {"generation": 9, "milli": 1000 * count})
    for name, count in wants.items():
        stage.until_count(name, count)
    assert not stage.watcher.attached_twice


def test_outage_of_the_api_server_is_survived(stage: Stage) -> None:
    """Wishes made just before are served afterwards; the process survives and then leads again."""
    node = stage.node(gpus=2)
    scheduler = stage.scheduler()
    stage.pod("a", node, 1)
    stage.until_count("a", 1)
    stage.request("a", 2)
    with stage.plane.without("apiserver"):
        until(lambda: not scheduler.leads(), what="it to lead no more")
    stage.until_count("a", 2)
    stage.pod("b", node, 1)
    stage.until_reason("b", "Deferred")
    stage.request("a", 1)
    stage.until_count("b", 1)
    assert scheduler.process.poll() is None
    assert scheduler.metric("jupyter_gpu_scheduler_watch_troubles_total") > 0
    assert not stage.watcher.decided_twice


def test_unusable_settings_end_the_process_in_words(stage: Stage) -> None:
    """One sentence and exit status 2; a credential that is missing likewise."""
    process = stage.scheduler(lead=False, settings={"leese": {}})
    assert process.stop_by_itself() == 2
    assert "'leese' is not known" in process.log
    assert "Traceback" not in process.log
    other = stage.scheduler(lead=False, environ={"KUBECONFIG": "/nowhere"})
    assert other.stop_by_itself() == 2
    assert "/nowhere" in other.log


def test_refused_write_is_repeated_ever_less_often(stage: Stage) -> None:
    """An API server that refuses a write is not pressed: the tries become rare, and nothing else waits for them."""
    node = stage.node(gpus=2)
    scheduler = stage.scheduler(environ={})
    policy = _policy(stage)
    stage.plane.kubectl("apply", "-f", "-", stdin=policy)
    until(lambda: _refuses(stage, node), what="the policy to be in force")
    stage.pod("barred", node)
    stage.request("barred", 1)
    until(lambda: scheduler.metric(REFUSED) >= 3, what="three tries")
    stage.pod("free", node, 1)
    stage.until_count("free", 1)
    assert scheduler.metric(REFUSED) < 12
    stage.plane.kubectl("delete", "-f", "-", stdin=policy)
    stage.until_count("barred", 1)


REFUSED = 'jupyter_gpu_scheduler_writes_total{kind="allocated",outcome="refused"'


def _policy(stage: Stage) -> str:
    """Deny all writes of `allocated` of pods whose name begins with "barred"."""
    return f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {stage.prefix}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}}
  validations:
  - expression: >-
      !object.metadata.name.startsWith("barred") || object.metadata.namespace != "{stage.namespace}"
      || !("jupyter-gpu.io/allocated" in object.metadata.annotations)
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {stage.prefix}}}
spec: {{policyName: {stage.prefix}, validationActions: [Deny]}}
"""


def _refuses(stage: Stage, node: str) -> bool:
    """Whether the policy holds already, tried on a pod of its own."""
    name = f"barred-{time.monotonic_ns()}"
    stage.pod(name, node)
    try:
        stage.annotate(name, **{"jupyter-gpu.io/allocated": '{"observedGeneration":0,"shares":[]}'})
    except Exception as error:
        return "denied" in str(error)
    return False
