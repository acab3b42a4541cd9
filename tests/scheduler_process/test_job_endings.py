"""Pods of preemptible Jobs on a real API server: ended when others wait for GPUs that they have open, and no others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage
from tests.scheduler_process.test_limits import limited, pod_of, set_limit
from tests.scheduler_process.test_notices import notices

pytestmark = pytest.mark.cluster

__all__ = ["limited"]
ENDED = "GpuJobEnded"
WISH = {"generation": 1, "milli": 4000, "preemptible": True}
CONTROLLER = {"apiVersion": "batch/v1", "kind": "Job", "name": "training", "uid": "u", "controller": True}


def job_pod(stage: Stage, name: str, node: str, wants: object = WISH, *, grace: int = 5, job: bool = True) -> str:
    """Create a pod as a Job makes it, of a user; return its uid. Without ``job``: one that no Job controls."""
    owners = [CONTROLLER] if job else []
    words = {USERNAME: "bob", HUB: "hub"}
    return stage.pod(name, node, wants, annotations=words, owners=owners, terminationGracePeriodSeconds=grace)


def filled(stage: Stage, limit_grace: str, *, user: str = "", **fields: Any) -> tuple[str, str]:
    """Have a preemptible pod fill a node and open all its GPUs; return the node and the pod's uid."""
    node = stage.node()
    set_limit(stage, "default", subject={"kind": "Default"}, grace=limit_grace)
    stage.scheduler(user=user)
    uid = job_pod(stage, "job", node, **fields)
    stage.until_count("job", 4)
    stage.hold_open(uid, *(f"GPU-{node}-{index}" for index in range(4)))
    until(lambda: (found := stage.attached("job")) and len(found.open) == 4, what="its open GPUs to be known")
    return node, uid


def is_ending(stage: Stage, name: str) -> bool:
    """Tell whether a pod is asked to end, or gone."""
    return stage.missing(name) or objects.deleting(stage.get(name))


def until_ending(stage: Stage, name: str) -> dict[str, Any]:
    """Wait until a pod is asked to end; return it."""
    until(lambda: objects.deleting(stage.get(name)), what=f"{name} to be asked to end")
    return stage.get(name)


def test_pod_of_a_job_is_ended_when_its_notice_ends(limited: Stage) -> None:
    """It is asked to end as long before its GPUs go as its own grace is, and still has them then."""
    node, _ = filled(limited, "12s", grace=5)
    began = time.time()
    pod_of(limited, "ann", "notebook", node, 1)
    (told,) = until(lambda: notices(limited, limited.namespace, "job", "GpusReclaimed"), what="the notice") or []
    assert "This is one: it gets SIGTERM up to 5 s before" in told["message"]
    assert not is_ending(limited, "job")
    pod = until_ending(limited, "job")
    assert 5 <= time.time() - began <= 12
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 5
    attached = limited.attached("job")
    assert attached
    assert len(attached.shares) == 4
    (event,) = until(lambda: notices(limited, limited.namespace, "job", ENDED), what="the event") or []
    assert "gets SIGTERM now, and is killed after 5 s" in event["message"]
    limited.delete("job")
    limited.until_count("notebook", 1)


def test_job_that_closed_a_gpu_goes_on(limited: Stage) -> None:
    """The GPU that it closed is taken when its notice ends, and the pod keeps the others."""
    node, uid = filled(limited, "6s", grace=3)
    pod_of(limited, "ann", "notebook", node, 1)
    until(lambda: notices(limited, limited.namespace, "job", "GpusReclaimed"), what="the notice")
    limited.hold_open(uid, *(f"GPU-{node}-{index}" for index in range(3)))
    limited.until_count("notebook", 1)
    assert not is_ending(limited, "job")
    assert limited.until_count("job", 3)
    assert notices(limited, limited.namespace, "job", ENDED) == []


@pytest.mark.parametrize("what", ["a notebook", "a Job that is not preemptible"])
def test_no_other_pod_is_ended(limited: Stage, what: str) -> None:
    """A notebook that asked for what others do not use drains and goes on; a Job that did not keeps what it has."""
    notebook = what == "a notebook"
    wants = WISH if notebook else {"generation": 1, "milli": 4000}
    node, _ = filled(limited, "2s", grace=1, wants=wants, job=not notebook)
    pod_of(limited, "ann", "notebook", node, 1)
    if notebook:
        until(lambda: (found := limited.attached("job")) and found.draining, what="a GPU to drain")
    time.sleep(5)
    assert not is_ending(limited, "job")
    attached = limited.attached("job")
    assert attached
    assert len(attached.shares) == (3 if notebook else 4)
    assert notices(limited, limited.namespace, "job", ENDED) == []


def test_next_leader_ends_what_a_killed_one_owes(limited: Stage) -> None:
    """A scheduler that is killed before it asks the pod to end is replaced by one that does."""
    node = limited.node()
    set_limit(limited, "default", subject={"kind": "Default"}, grace="4s")
    first = limited.scheduler(environ={faults.VARIABLE: "scheduler:ending"})
    uid = job_pod(limited, "job", node, grace=2)
    limited.until_count("job", 4)
    limited.hold_open(uid, *(f"GPU-{node}-{index}" for index in range(4)))
    pod_of(limited, "ann", "notebook", node, 1)
    until(lambda: first.process.poll() is not None, what="the process to die")
    assert not is_ending(limited, "job")
    limited.scheduler(environ={"POD_NAME": "second"})
    assert until_ending(limited, "job")["metadata"]["deletionGracePeriodSeconds"] == 2


def test_pod_that_may_not_be_deleted_drains(limited: Stage) -> None:
    """Without the right, the scheduler says so and tries again, and the pod drains like any other."""
    may = "pods/status,nodes,events,leases.coordination.k8s.io,gpulimits.jupyter-gpu.io,gpuaccounts.jupyter-gpu.io"
    for name, verbs, resources in (("all", "*", may), ("pods", "get,list,watch", "pods")):
        role = f"timid-{name}"
        limited.plane.kubectl("create", "clusterrole", role, f"--verb={verbs}", f"--resource={resources}")
        limited.plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=timid")
    node, _ = filled(limited, "2s", user="timid", grace=1)
    (scheduler,) = limited.schedulers
    pod_of(limited, "ann", "notebook", node, 1)
    until(lambda: (found := limited.attached("job")) and found.draining, what="a GPU to drain")
    refused = 'jupyter_gpu_scheduler_writes_total{kind="end",outcome="refused"}'
    until(lambda: scheduler.metric(refused) >= 2, what="another try")
    assert scheduler.log.count("of a preemptible Job can't be ended now") == 1
    assert not is_ending(limited, "job")
