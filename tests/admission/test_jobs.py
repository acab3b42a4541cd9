"""The only pods that the scheduler may end: those of preemptible Jobs. The chart's policies on a real API server."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.admission.test_admission import some_plane
from tests.admission.world import ONE, PODS, World, slot_pod

pytestmark = [pytest.mark.cluster]
OF_JOB: Mapping[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "name": "training", "controller": True}
JOB: Mapping[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "training"},
    "spec": {
        "managedBy": "example.org/tests",  # so the cluster's own controller leaves its pods alone
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
        },
    },
}
OF_WORKFLOW: Mapping[str, Any] = {**OF_JOB, "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
PREEMPTIBLE = '{"generation": 1, "milli": 2000, "preemptible" : true}'


def made(name: str, requested: str = PREEMPTIBLE, owner: Mapping[str, Any] = OF_JOB) -> dict[str, Any]:
    """Return a pod with this request and controller."""
    return slot_pod(name, annotations={"requested": requested}, metadata={"ownerReferences": [dict(owner)]})


REFUSED: dict[str, dict[str, Any]] = {
    "notebook": slot_pod("notebook", annotations={"requested": PREEMPTIBLE}),
    "of-a-notebook": made("of-a-notebook", owner={**OF_JOB, "apiVersion": "kubeflow.org/v1", "kind": "Notebook"}),
    "of-another-job": made("of-another-job", owner={**OF_JOB, "apiVersion": "example.org/v1"}),
    "not-its-controller": made("not-its-controller", owner={**OF_JOB, "controller": False}),
    "keeps-what-it-has": made("keeps-what-it-has", '{"generation": 1, "milli": 2000, "preemptible": false}'),
    "says-nothing": made("says-nothing", "2"),
    "says-it-in-a-text": made(
        "says-it-in-a-text", r'{"generation": 1, "milli": 2000, "note": "\"preemptible\": true"}'
    ),
    "without-annotations": slot_pod("without-annotations", metadata={"ownerReferences": [dict(OF_JOB)]}),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world with pods of several controllers."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("jobs"))
        world.build()
        job = world.admin.need("POST", PODS.replace("/api/v1", "/apis/batch/v1").replace("/pods", "/jobs"), dict(JOB))
        for pod in (made("job"), made("workflow", owner=OF_WORKFLOW), *REFUSED.values()):
            for owner in pod["metadata"].get("ownerReferences", ()):
                owner["uid"] = job["metadata"]["uid"]
            world.place(pod, ONE)
        yield world
        world.close()


@pytest.mark.parametrize("name", ["job", "workflow"])
def test_scheduler_ends_pods_of_preemptible_jobs(world: World, name: str) -> None:
    """It has the right, and the policy lets it pass."""
    answer = world.identities["scheduler"]("DELETE", f"{PODS}/{name}?dryRun=All")
    assert answer.ok, answer.message


@pytest.mark.parametrize("name", [*REFUSED, "lab", "mine", "plain"])
def test_scheduler_ends_no_other_pod(world: World, name: str) -> None:
    """Not a notebook, whatever it asks for, nor a Job that did not say that it is preemptible."""
    answer = world.identities["scheduler"]("DELETE", f"{PODS}/{name}?dryRun=All")
    assert answer.status == 403, answer.body
    assert "whose request is preemptible, and no others" in answer.message


def test_scheduler_deletes_no_collection(world: World) -> None:
    """The right is about single pods."""
    assert world.identities["scheduler"]("DELETE", f"{PODS}?dryRun=All").status == 403


@pytest.mark.parametrize("name", ["editor", "masters"])
def test_others_delete_pods_as_before(world: World, name: str) -> None:
    """Everybody else with the right may delete pods: the policy is about the scheduler alone."""
    answer = world.identities[name]("DELETE", f"{PODS}/lab?dryRun=All")
    assert answer.ok, answer.message
