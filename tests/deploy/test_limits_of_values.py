"""Limits in the chart's values through helm itself, on a real API server without nodes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu.model.limits.read_limit import read_limit
from tests.admission.api import Api
from tests.admission.test_definitions import DEFINITIONS, LIMITS, limit
from tests.cluster.testbed import ControlPlane, binaries, control_plane, until
from tests.cluster.testbed.commands import CommandFailed, run
from tests.deploy import chart
from tests.deploy.recipes import outcome, recipes

pytestmark = [pytest.mark.cluster]
NAMESPACE = "jupyter-gpu"
ANN: dict[str, Any] = {"subject": {"kind": "User", "name": "ann"}, "max": 0.5}
ML: dict[str, Any] = {"subject": {"kind": "Group", "name": "ml"}, "max": 4}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Start an API server alone."""
    with control_plane(parts=("etcd", "apiserver")) as plane:
        plane.namespace(NAMESPACE)
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """Yield a client of an administrator."""
    api = Api(plane.kubeconfig)
    yield api
    api.close()


def helm(plane: ControlPlane, *words: str, objects: list[dict[str, Any]] | None = None) -> str:
    """Run helm without the chart's hooks, which need nodes; with these limits in the values."""
    return helm_with(plane, *words, values=None if objects is None else {"limits": {"objects": objects}})


def helm_with(plane: ControlPlane, *words: str, values: dict[str, Any] | None) -> str:
    """Run helm without the chart's hooks, with these values."""
    more = () if values is None else ("--values", "-", *chart.REGISTRY)
    flags = ("--kubeconfig", plane.kubeconfig, "--namespace", NAMESPACE, "--no-hooks")
    return run(binaries.path("helm"), *words, *flags, *more, stdin=json.dumps(values or {}))


def kept(api: Api) -> dict[str, Any]:
    """Return what each limit says, by the name of its subject."""
    items = api.need("GET", LIMITS)["items"]
    return {item["spec"]["subject"]["name"]: item["spec"].get("max") for item in items}


def test_limits_follow_the_values(plane: ControlPlane, api: Api) -> None:
    """From the first installation on they are made, changed and removed with them; people's stay, as do the kinds."""
    release = ("jupyter-gpu", str(chart.CHART))
    helm(plane, "install", *release, objects=[ANN, ML])
    assert kept(api) == {"ann": "0.5", "ml": 4}
    own = limit({"subject": {"kind": "User", "name": "bob"}, "max": 1}, "by-hand")
    api.need("POST", LIMITS, own)
    before = {item["metadata"]["name"]: item["metadata"]["uid"] for item in api.need("GET", LIMITS)["items"]}
    helm(plane, "upgrade", *release, objects=[{**ANN, "max": "unlimited"}])
    assert kept(api) == {"ann": "unlimited", "bob": 1}
    after = {item["metadata"]["name"]: item["metadata"]["uid"] for item in api.need("GET", LIMITS)["items"]}
    assert after.items() < before.items()  # changed in place
    with pytest.raises(
        CommandFailed, match="this is not a duration up to 8784h"
    ):  # what no schema of values calculates
        helm(plane, "upgrade", *release, objects=[{**ANN, "grace": "9000h"}])
    helm(plane, "uninstall", "jupyter-gpu")
    assert kept(api) == {"bob": 1}


def test_recipes_lead_to_what_their_tables_say(plane: ControlPlane, api: Api) -> None:
    """Helm and the API server take the values of each, one after the other, and the limits there have that effect."""
    api.need("DELETE", LIMITS)
    found = recipes()
    assert len(found) == 10
    for recipe in found:
        helm_with(plane, "upgrade", "--install", "jupyter-gpu", str(chart.CHART), values=recipe.values)
        limits = [read_limit(item) for item in api.need("GET", LIMITS)["items"]]
        assert len(limits) == len(recipe.values["limits"]["objects"])
        assert not [limit.problem for limit in limits if limit.problem]
        assert [outcome(recipe, row, limits) for row in recipe.rows] == [*recipe.rows], recipe.title
    helm(plane, "uninstall", "jupyter-gpu")


def test_values_have_no_limits_before_the_kind_is_there(plane: ControlPlane, api: Api) -> None:
    """An upgrade from a chart that did not bring the kinds is refused with what to do, and changes nothing."""
    release = ("jupyter-gpu", str(chart.CHART))
    helm(plane, "install", *release, objects=[])
    for name in ("gpulimits", "gpuaccounts"):
        api.need("DELETE", f"{DEFINITIONS}/{name}.jupyter-gpu.io")
    until(lambda: api("GET", LIMITS).status == 404, what="the end of the kinds")
    with pytest.raises(CommandFailed, match=r"Upgrade once without limits\.objects, then with them"):
        helm(plane, "upgrade", *release, objects=[ANN])
    helm(plane, "upgrade", *release, objects=[])
    helm(plane, "uninstall", "jupyter-gpu")
