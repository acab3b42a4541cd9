"""The worker controller as the chart renders it, without a cluster."""

import json
from typing import Any

import pytest

from jupyter_gpu.common import settings_file
from jupyter_gpu_scheduler.settings import NotebookWorkerSettings, SchedulerSettings
from jupyter_gpu_scheduler.workers.rules.template import Template
from jupyter_gpu_scheduler.workers.settings import WorkerSettings
from tests.cluster.testbed.commands import CommandFailed
from tests.deploy import chart

ENABLED: dict[str, Any] = {"workers": {"enabled": True, "namespaces": ["alice"]}}


def test_worker_controller_is_off_by_default() -> None:
    """Nothing of it is there but the policy, which must be there before; rights are in the named namespaces alone."""
    assert not [item for item in chart.render() if "workers" in item["metadata"]["name"]]
    assert "validatingadmissionpolicies.jupyter-gpu-workers.yaml" in chart.hook_files()
    objects = chart.render(ENABLED)
    bindings = [item for item in objects if item.get("roleRef", {}).get("name") == "jupyter-gpu-workers"]
    assert [(item["kind"], item["metadata"]["namespace"]) for item in bindings] == [("RoleBinding", "alice")]
    text = chart.find(objects, "ConfigMap", "jupyter-gpu-workers")["data"]["settings.json"]
    settings = settings_file.parse(json.loads(text), WorkerSettings)
    assert settings == WorkerSettings(("alice",), Template())
    theirs = {**ENABLED, "kubeScheduler": {"enabled": False}}
    text = chart.find(chart.render(theirs), "ConfigMap", "jupyter-gpu-workers")["data"]["settings.json"]
    assert json.loads(text)["template"]["schedulerName"] == "default-scheduler"


def test_controller_has_exactly_the_rights_that_it_uses() -> None:
    """Those on pods are bound in the named namespaces; the lease is in the release's own."""
    found = {
        item["metadata"]["name"]: {
            f"{verb} {resource}" for rule in item["rules"] for resource in rule["resources"] for verb in rule["verbs"]
        }
        for item in chart.render(ENABLED)
        if item["kind"] in ("Role", "ClusterRole") and item["metadata"]["name"].startswith("jupyter-gpu-workers")
    }
    assert found == {
        "jupyter-gpu-workers": {"list pods", "watch pods", "create pods", "delete pods", "patch pods/status"},
        "jupyter-gpu-workers-lease": {"create leases", "get leases", "patch leases"},
    }


def test_scheduler_has_the_same_settings() -> None:
    """It knows what the controller may create and what that asks for; its own settings come before these."""

    def settings(values: dict[str, Any]) -> NotebookWorkerSettings:
        text = chart.find(chart.render(values), "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"]
        return settings_file.parse(json.loads(text), SchedulerSettings).workers

    assert settings({}) == NotebookWorkerSettings()
    assert settings(ENABLED) == NotebookWorkerSettings(("alice",))
    resources = {"requests": {"cpu": "1.5", "memory": "2Gi"}}
    workers = {**ENABLED["workers"], "perPod": 2, "graceSeconds": 60.5, "pod": {"resources": resources}}
    assert settings({"workers": workers}) == NotebookWorkerSettings(("alice",), 2, 60.5, 1500, 2 * 1024**3)
    own: dict[str, Any] = {"settings": {"workers": {"namespaces": []}}}
    assert settings({**ENABLED, "scheduler": own}).namespaces == ()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"workers": {"enabled": True}}, "/workers/namespaces"),
        ({"workers": {"pod": {"python": "it's"}}}, "/workers/pod/python"),
        ({"workers": {"pod": {"home": "jovyan"}}}, "/workers/pod/home"),
        ({"workers": {"pod": {"environment": ["HOME"]}}}, "/workers/pod/environment/0"),
        ({"workers": {"pod": {"resources": {"limits": {"cpu": 4}}}}}, "/workers/pod/resources/limits/cpu"),
        ({"workers": {"pod": {"storage": {"shm": "much"}}}}, "/workers/pod/storage/shm"),
        ({"workers": {"perPod": 9}}, "/workers/perPod"),
        ({"workers": {"graceSeconds": -1}}, "/workers/graceSeconds"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any], named: str) -> None:
    """The message names the value."""
    with pytest.raises(CommandFailed, match=named):
        chart.text({"workers": values["workers"]})
