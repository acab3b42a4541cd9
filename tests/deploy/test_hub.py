"""The hub's service as the chart renders it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpu.common import settings_file
from jupyter_gpu_hub import settings as hub_settings
from tests.cluster.testbed.commands import CommandFailed
from tests.deploy import chart

HUB: dict[str, Any] = {
    "enabled": True,
    "apiUrl": "http://hub.hub:8081/hub/api",
    "tokenSecret": {"name": "gpu-token"},
}


def test_hub_s_service_knows_the_hub() -> None:
    """Its environment is that of an external service, its prefix is where the proxy leads, and it may reach the hub."""
    values = {"hub": {**HUB, "baseUrl": "/jupyter/", "name": "east", "settings": {"mirrorSeconds": 5}}}
    objects = chart.render({**values, "limits": {"timeZone": "Europe/Berlin"}})
    deployment = chart.find(objects, "Deployment", "jupyter-gpu-hub")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item.get("value") for item in container["env"]}
    assert environment["JUPYTERHUB_SERVICE_PREFIX"] == "/jupyter/services/gpu/"
    assert environment["JUPYTERHUB_CLIENT_ID"] == "service-gpu"
    hub_settings.check_environment({name: value or "from a Secret" for name, value in environment.items()})
    settings = settings_file.parse(
        json.loads(chart.find(objects, "ConfigMap", "jupyter-gpu-hub")["data"]["settings.json"]),
        hub_settings.HubServiceSettings,
    )
    assert (settings.hub, settings.mirror_seconds, settings.time_zone) == ("east", 5, "Europe/Berlin")
    assert deployment["spec"]["template"]["metadata"]["labels"]["hub.jupyter.org/network-access-hub"] == "true"
    service = chart.find(objects, "Service", "jupyter-gpu-hub")["spec"]
    assert service["ports"][0]["port"] == settings.port
    assert service["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    names = {(item["kind"], item["metadata"]["name"]) for item in chart.render({"hub": {"enabled": True}})}
    assert ("ServiceAccount", "jupyter-gpu-hub") in names
    assert ("Deployment", "jupyter-gpu-hub") not in names


def test_hub_s_service_has_no_rights_where_it_is_not_enabled() -> None:
    """Neither account nor role are there; with limits in files it writes nothing but the members of groups."""
    assert not [item for item in chart.render() if item["metadata"]["name"] == "jupyter-gpu-hub-service"]
    assert not [
        item
        for item in chart.render()
        if item["kind"] == "ServiceAccount" and item["metadata"]["name"] == "jupyter-gpu-hub"
    ]
    role = chart.find(chart.render({"hub": {"enabled": True, "edit": False}}), "ClusterRole", "jupyter-gpu-hub-service")
    written = {resource for rule in role["rules"] for resource in rule["resources"] if "patch" in rule["verbs"]}
    assert written == {"gpulimits/status"}
    assert not {"create", "update", "delete"} & {verb for rule in role["rules"] for verb in rule["verbs"]}


NAMED = {"name": "east", "namespace": "hub", "serviceAccount": "hub", "notebookNamespaces": ["a", "b"]}
UNNAMED = {"namespace": "jhub", "serviceAccount": "hub", "notebookNamespaces": ["jhub", "c"]}


@pytest.mark.parametrize(
    ("hubs", "name", "namespaces"),
    [
        ([NAMED, UNNAMED], "east", ["a", "b"]),
        ([NAMED, UNNAMED], "jhub", ["jhub"]),  # the namespace is the name of the hub there
        ([NAMED, UNNAMED], "c", ["c"]),
        ([{"namespace": "jupyter-gpu", "serviceAccount": "hub"}], "", ["jupyter-gpu"]),
    ],
)
def test_service_writes_requests_where_its_hubs_pods_are(
    hubs: list[dict[str, Any]], name: str, namespaces: list[str]
) -> None:
    """It may patch the status of pods in these namespaces, and update their requests, and nothing else of pods."""
    objects = chart.render({"hubs": hubs, "hub": {**HUB, "write": True, "name": name}})
    bindings = [item for item in objects if item["metadata"]["name"] == "jupyter-gpu-hub-requests"]
    bound = [item["metadata"]["namespace"] for item in bindings if item["kind"] == "RoleBinding"]
    assert bound == namespaces
    role = chart.find(objects, "ClusterRole", "jupyter-gpu-hub-requests")
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["pods/status"], ["patch"]),
        (["pods/requested"], ["update"]),
    ]
    file = json.loads(chart.find(objects, "ConfigMap", "jupyter-gpu-hub")["data"]["settings.json"])
    assert settings_file.parse(file, hub_settings.HubServiceSettings).write
    files = chart.hook_files({"hubs": hubs, "hub": {**HUB, "write": True, "name": name}})
    wanted = json.dumps(f'variables.hub == "{name or "jupyter-gpu"}"')[1:-1]
    assert wanted in "".join(files.values())


def test_service_writes_no_requests_by_default() -> None:
    """The switch is off, and one without the namespaces of the hub's pods is refused."""
    objects = chart.render({"hubs": [NAMED], "hub": {**HUB, "name": "east"}})
    assert not [item for item in objects if item["metadata"]["name"] == "jupyter-gpu-hub-requests"]
    file = json.loads(chart.find(objects, "ConfigMap", "jupyter-gpu-hub")["data"]["settings.json"])
    assert not settings_file.parse(file, hub_settings.HubServiceSettings).write
    with pytest.raises(CommandFailed, match=r"hub\.write: true needs an entry in hubs"):
        chart.render({"hubs": [NAMED], "hub": {**HUB, "write": True, "name": "west"}})


def test_hub_with_a_namespace_for_each_user_has_its_rights_everywhere() -> None:
    """So do the service of its limits, for requests, and both nothing else; the hub must have a name of its own."""
    everywhere = {"name": "east", "namespace": "hub", "serviceAccount": "hub", "notebookNamespaces": ["a", "*"]}
    objects = chart.render({"hubs": [everywhere, UNNAMED], "hub": {**HUB, "write": True, "name": "east"}})
    bound = {
        (item["kind"], item["roleRef"]["name"], item["subjects"][0]["name"], item["metadata"].get("namespace"))
        for item in objects
        if item["kind"].endswith("Binding") and item["subjects"][0]["name"].endswith("hub")
    }
    assert bound == {
        ("ClusterRoleBinding", "jupyter-gpu-users-hub-hub", "hub", None),
        ("ClusterRoleBinding", "jupyter-gpu-hub", "hub", None),
        ("ClusterRoleBinding", "jupyter-gpu-hub-requests", "jupyter-gpu-hub", None),
        ("ClusterRoleBinding", "jupyter-gpu-hub-service", "jupyter-gpu-hub", None),
        *(
            ("RoleBinding", role, "hub", namespace)
            for role in ("jupyter-gpu-users-jhub-hub", "jupyter-gpu-hub")
            for namespace in ("jhub", "c")
        ),
    }
    with pytest.raises(CommandFailed, match="needs a name"):
        chart.render({"hubs": [{**UNNAMED, "notebookNamespaces": ["*"]}]})
