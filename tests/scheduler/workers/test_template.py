"""The JSON of worker pods. Whether a cluster's policy accepts it is tested on a real API server."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.common.settings_file import SettingsError, parse
from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import WORKER
from jupyter_gpu_scheduler.workers.rules.template import (
    Template,
    Unfit,
    image_of,
    slot_container,
    worker_name,
    worker_pod,
)
from jupyter_gpu_scheduler.workers.settings import WorkerSettings
from tests.scheduler.workers.pods import DIGEST, UID, notebook, notebook_pod, part, worker

LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?){0,9}", fullmatch=True)
SECRETS: dict[str, Any] = {
    "spec": {
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "secret"}}],
        "serviceAccountName": "secret",
        "nodeName": "secret",
        "priorityClassName": "secret",
        "hostNetwork": True,
    },
    "container": {
        "env": [
            {"name": "TOKEN", "value": "secret"},
            {"name": "TZ", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "secret"}}},
            {"name": "HOME", "value": "/secret"},
            {"name": "LANG", "value": "C.UTF-8"},
            {"name": 1, "value": "secret"},
            "secret",
        ],
        "envFrom": [{"secretRef": {"name": "secret"}}],
        "volumeMounts": [{"name": "home", "mountPath": "/secret"}],
        "args": ["secret"],
        "securityContext": {"privileged": True, "capabilities": {"add": ["SECRET"]}},
    },
}


def spec_of(template: Template | None = None, **more: Any) -> dict[str, Any]:
    """Return the spec of a worker of such a notebook."""
    made: dict[str, Any] = worker_pod(notebook(part(), **more), part(), template or Template())["spec"]
    return made


@given(NAMES, st.uuids(), st.integers(1, 10**9 - 1))
def test_name_is_a_dns_label_of_notebook_and_worker(name: str, uid: Any, number: int) -> None:
    """It is short enough, always the same, and another one for another notebook of that name, or another worker."""
    found = worker_name(name, str(uid), f"w{number}")
    assert re.fullmatch(LABEL, found)
    assert re.fullmatch(rf"{LABEL}-gpu-w{number}-[0-9a-f]{{8}}", found)
    assert found == worker_name(name, str(uid), f"w{number}")
    assert found != worker_name(name, UID, f"w{number}") or str(uid) == UID
    assert found != worker_name(name, str(uid), f"w{number % 10**8 + 1}") or number == number % 10**8 + 1


def test_worker_says_whose_it_is() -> None:
    """Its owner is the notebook's pod; a reader finds notebook, id and node again."""
    made = worker_pod(notebook(part(3)), part(3), Template())
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "ann", "uid": UID}]
    assert made["metadata"]["labels"] == {WORKER: "w3"}
    assert made["metadata"]["annotations"] == {WORKER: f'{{"notebook":"{UID}","id":"w3"}}'}
    found = worker(part(3))
    assert (found.namespace, found.identity.notebook, found.identity.id, found.node) == ("team", UID, "w3", "node2")


def test_nothing_secret_is_copied() -> None:
    """No volume, token, account, argument or right of the notebook; of variables plain values of named ones."""
    spec = spec_of(**SECRETS)
    assert "secret" not in json.dumps(spec).lower().replace("secretkeyref", "")
    assert spec["containers"][0]["env"] == [
        {"name": "HOME", "value": "/home/jovyan"},
        {"name": "LANG", "value": "C.UTF-8"},
    ]
    assert spec["automountServiceAccountToken"] is False
    assert spec_of(container={"env": None})["containers"][0]["env"] == [{"name": "HOME", "value": "/home/jovyan"}]


def test_what_programs_need_is_copied() -> None:
    """User and groups, secrets for the image, how it is pulled, and the sandbox are the notebook's."""
    given = {
        "imagePullSecrets": [{"name": "registry"}],
        "runtimeClassName": "gvisor",
        "hostUsers": False,
        "securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]},
    }
    spec = spec_of(spec=given, container={"imagePullPolicy": "Never", "securityContext": {"runAsUser": 1000}})
    assert {key: spec[key] for key in ("imagePullSecrets", "runtimeClassName", "hostUsers")} == {
        key: given[key] for key in ("imagePullSecrets", "runtimeClassName", "hostUsers")
    }
    users = {"runAsUser": 1000, "runAsGroup": 2, "fsGroup": 3}
    assert spec["securityContext"] == {"runAsNonRoot": True, **users, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["containers"][0]["imagePullPolicy"] == "Never"
    assert "priorityClassName" not in spec
    assert spec_of(Template(priority_class="low"))["priorityClassName"] == "low"


def test_lost_node_is_left_soon() -> None:
    """Our tolerations come first, as the first one that fits counts; the notebook's for that trouble are left out."""
    mine = [
        {"operator": "Exists"},
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
        {"key": "gpu", "operator": "Exists"},
        "odd",
    ]
    found = spec_of(spec={"tolerations": mine})["tolerations"]
    assert [item["tolerationSeconds"] for item in found[:2]] == [30, 30]
    assert found[2:] == [mine[0], mine[2]]
    assert len(spec_of()["tolerations"]) == 2


@pytest.mark.parametrize(
    ("image", "pulled", "expected"),
    [
        ("example.org/lab:1", f"example.org/lab@{DIGEST}", f"example.org/lab@{DIGEST}"),
        ("example.org/lab:1", f"docker-pullable://example.org/lab@{DIGEST}", f"example.org/lab@{DIGEST}"),
        ("example.org:5000/lab", f"example.org:5000/lab@{DIGEST}", f"example.org:5000/lab@{DIGEST}"),
        ("lab:1", f"docker.io/library/lab@{DIGEST}", f"lab@{DIGEST}"),
        ("jupyter/lab:1", f"docker.io/jupyter/lab@{DIGEST}", f"jupyter/lab@{DIGEST}"),
        (f"example.org/lab:1@{DIGEST}", f"example.org/lab@{DIGEST}", f"example.org/lab@{DIGEST}"),
        ("localhost/lab:1", f"docker.io/localhost/lab@{DIGEST}", "localhost/lab:1"),
        ("example.org/lab:1", f"elsewhere.org/lab@{DIGEST}", "example.org/lab:1"),
        ("example.org/lab:1", DIGEST, "example.org/lab:1"),
        ("example.org/lab:1", "", "example.org/lab:1"),
    ],
)
def test_image_is_the_one_that_the_notebook_got(image: str, pulled: str, expected: str) -> None:
    """Its digest is used where the node names it in the same repository; else the notebook's own words."""
    statuses = [
        {"name": "sidecar", "imageID": f"example.org/lab@sha256:{64 * 'f'}"},
        "odd",
        {"name": "notebook", "imageID": pulled},
    ]
    pod = notebook_pod(part(), container={"image": image}, status={"containerStatuses": statuses})
    assert image_of(pod) == expected


def test_image_before_the_node_says_which_it_got() -> None:
    """The notebook's own words."""
    assert image_of(notebook_pod(part())) == "example.org/lab:1"
    assert image_of({**notebook_pod(part()), "status": None}) == "example.org/lab:1"


def test_container_with_the_slot_is_meant() -> None:
    """Whatever stands beside it."""
    beside = {"name": "sidecar", "image": "none"}
    pod = notebook_pod(part())
    pod["spec"]["containers"] = [beside, *pod["spec"]["containers"]]
    assert slot_container(pod)["name"] == "notebook"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"container": {"resources": {}}}, "No container .* has a slot"),
        ({"container": {"image": None}}, "image .* is not known"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "runs as root"),
        ({"container": {"securityContext": {"runAsUser": 0}}}, "runs as root"),
    ],
)
def test_notebook_without_a_worker_is_told_why(more: dict[str, Any], words: str) -> None:
    """A worker is never root, has an image, and is for a notebook with a slot."""
    with pytest.raises(Unfit, match=words):
        spec_of(**more)


def test_odd_pod_is_unfit() -> None:
    """A pod without a spec has no worker."""
    odd = replace(notebook(part()), pod={"spec": None})
    with pytest.raises(Unfit, match="slot"):
        worker_pod(odd, part(), Template())


def test_amounts_are_those_of_the_settings() -> None:
    """Requests, limits and sizes; one slot in both."""
    settings = parse(
        {
            "namespaces": ["team"],
            "template": {
                "requests": {"cpu": "1", "memory": "1Gi"},
                "limits": {"cpu": "2", "memory": "2Gi"},
                "homeSize": "1Gi",
                "sharedMemory": "512Mi",
            },
        },
        WorkerSettings,
    )
    spec = spec_of(settings.template)
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi", SLOT: "1"},
        "limits": {"cpu": "2", "memory": "2Gi", SLOT: "1"},
    }
    assert [volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"]] == ["1Gi", "10Gi", "512Mi"]
    assert spec["volumes"][2]["emptyDir"]["medium"] == "Memory"
    assert {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]} == {
        "home": "/home/jovyan",
        "tmp": "/tmp",
        "shm": "/dev/shm",
    }


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"home": "jovyan"}, "'home' must be a path"),
        ({"home": "/home/../etc"}, "'home' must be a path"),
        ({"environment": ["A=B"]}, "'environment' has 'A=B'"),
        ({"environment": ["HOME"]}, "'environment' has 'HOME'"),
        ({"homeSize": "much"}, "'homeSize' must be an amount"),
        ({"temporarySize": "-1"}, "'temporarySize' must be an amount"),
        ({"sharedMemory": "a"}, "'sharedMemory' must be an amount"),
        ({"sharedMemory": "0Gi"}, "'sharedMemory' must be more than 0"),
        ({"limits": {"cpu": "1e3", "memory": "1Gi"}}, "'cpu' must be an amount"),
        ({"limits": {"cpu": "1", "memory": ""}}, "'memory' must be an amount"),
    ],
)
def test_unusable_settings_are_refused(template: dict[str, Any], words: str) -> None:
    """The sentence names what is wrong."""
    with pytest.raises(SettingsError, match=words):
        parse({"namespaces": ["team"], "template": template}, WorkerSettings)


@pytest.mark.parametrize(
    ("body", "words"), [({"namespaces": []}, "'namespaces' must name"), ({}, "'namespaces' is missing")]
)
def test_namespaces_are_named(body: dict[str, Any], words: str) -> None:
    """The controller has no rights elsewhere."""
    with pytest.raises(SettingsError, match=words):
        parse(body, WorkerSettings)
