"""The example for Zero to JupyterHub: what it names is what the chart makes and the service asks for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from jupyter_gpu.server.rules import hub_service
from jupyter_gpu_hub.rules.access import EDIT, READ
from tests.deploy import chart

EXAMPLES = chart.CHART.parents[1] / "examples"
HUB: dict[str, Any] = {"enabled": True, "apiUrl": "http://hub.jhub:8081/hub/api", "tokenSecret": {"name": "gpu-token"}}


@pytest.fixture(scope="module")
def values() -> Any:
    """Read the values."""
    return yaml.safe_load((EXAMPLES / "z2jh-values.yaml").read_text())


def test_service_is_the_one_that_the_chart_makes(values: Any) -> None:
    """The hub's proxy finds it by its name and port in the chart's namespace."""
    (service,) = (
        item
        for item in chart.render({"hub": HUB})
        if item["kind"] == "Service" and item["metadata"]["name"].endswith("-hub")
    )
    (port,) = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert values["hub"]["services"]["gpu"]["url"] == f"http://{host}:{port['port']}"


def test_scopes_are_those_that_the_service_knows(values: Any) -> None:
    """Roles can give them, and the login asks for them."""
    assert set(values["hub"]["config"]["JupyterHub"]["custom_scopes"]) == {EDIT, READ}
    assert set(values["hub"]["services"]["gpu"]["oauth_client_allowed_scopes"]) == {EDIT, READ}
    assert "access:services!service=gpu" in values["hub"]["loadRoles"]["user"]["scopes"]


def test_profiles_start_with_what_they_say(values: Any) -> None:
    """Each names an amount that our reader takes, and the first none."""
    overrides = [profile.get("kubespawner_override") for profile in values["singleuser"]["profileList"]]
    assert overrides[0] is None
    asked = [each["extra_annotations"]["jupyter-gpu.io/requested"] for each in overrides[1:]]
    assert asked == ["1", "0.5"]


def test_no_pod_has_a_privileged_container(values: Any) -> None:
    """The chart's default container is absent: policies refuse it beside a slot, and a network policy replaces it."""
    assert values["singleuser"]["cloudMetadata"]["blockWithIptables"] is False
    assert values["singleuser"]["networkPolicy"]["enabled"]
    assert values["singleuser"]["networkPolicy"]["egressAllowRules"] == {"cloudMetadataServer": False}


def configured(environment: dict[str, Any] | None) -> Any:
    """Run the example for the hub with this environment of servers; return what it sets for KubeSpawner."""
    config = Config()
    if environment is not None:
        config.KubeSpawner.environment = environment
    names: dict[str, Any] = {"c": config}
    client = ModuleType("kubernetes_asyncio.client")
    client.ApiException = Exception  # type: ignore[attr-defined] # the hub's package, which only its hooks need
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "kubernetes_asyncio", ModuleType("kubernetes_asyncio"))
        patch.setitem(sys.modules, "kubernetes_asyncio.client", client)
        exec((EXAMPLES / "jupyterhub_config.py").read_text(), names)
    return config.KubeSpawner


def test_pods_have_a_token_of_their_account() -> None:
    """One that is bound to the pod, and no scope of the hub's tokens is changed."""
    spawner = configured({"A": "1"})
    assert spawner.service_account == "notebook"
    assert spawner.volumes["jupyter-gpu-token"]["projected"]["sources"][0]["serviceAccountToken"]
    assert set(spawner.environment) == {"A", "POD_NAME", "POD_NAMESPACE", "POD_UID"}
    assert "server_token_scopes" not in spawner
    assert configured(None).service_account == "notebook"


def test_pods_of_the_other_example_have_none() -> None:
    """Neither account nor token: the server knows the service, and its own token may enter it."""
    values = yaml.safe_load((EXAMPLES / "z2jh-without-token.yaml").read_text())["singleuser"]
    assert values["serviceAccountName"] is None
    assert values["networkPolicy"]["egress"] == []
    address = values["extraEnv"][hub_service.VARIABLE]
    assert hub_service.check(address) == address
    assert address.endswith("/services/gpu/")
    spawner = configured(dict(values["extraEnv"]))
    assert "service_account" not in spawner
    assert "volumes" not in spawner
    assert spawner.automount_service_account_token is False
    assert {"access:servers!server", "access:services!service=gpu"} < set(spawner.server_token_scopes)
    assert spawner.environment[hub_service.VARIABLE] == address


def test_configuration_uses_what_every_hub_provides() -> None:
    """Zero to JupyterHub has a function of its own by the name `get_config`, which takes the name of a value."""
    code = (EXAMPLES / "jupyterhub_config.py").read_text()
    assert "get_config" not in code
    compile(code, "jupyterhub_config.py", "exec")
