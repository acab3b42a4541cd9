"""The example for Zero to JupyterHub: what it names is what the chart makes and the service asks for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

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


def test_configuration_uses_what_every_hub_provides() -> None:
    """Zero to JupyterHub has a function of its own by the name `get_config`, which takes the name of a value."""
    code = (EXAMPLES / "jupyterhub_config.py").read_text()
    assert "get_config" not in code
    compile(code, "jupyterhub_config.py", "exec")
