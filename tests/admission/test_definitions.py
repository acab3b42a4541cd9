"""Limits and accounts on a real API server: what it takes, what it refuses with which words, and how it shows them."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_gpu.model.limits.read_limit import read_limit
from tests.admission import specs
from tests.admission.api import MERGE, Answer
from tests.admission.world import SYSTEM, World
from tests.cluster.testbed import ControlPlane, control_plane, until
from tests.deploy import chart

pytestmark = [pytest.mark.cluster]
GROUP = "/apis/jupyter-gpu.io/v1alpha1"
LIMITS, ACCOUNTS = f"{GROUP}/gpulimits", f"{GROUP}/gpuaccounts"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFAULT = {"kind": "Default"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Define the kinds by the chart's hook, on an API server without controllers."""
    with control_plane(parts=("etcd", "apiserver")) as plane:
        plane.namespace(SYSTEM)
        world = World(plane, tmp_path_factory.mktemp("definitions"))
        said = world.apply_policies()
        assert said.count("defined /apis") == 2
        yield world
        world.close()


def limit(spec: dict[str, Any], name: str = "new") -> dict[str, Any]:
    """Return a limit with this spec."""
    return {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuLimit", "metadata": {"name": name}, "spec": spec}


def account(owner: dict[str, str], name: str = "new") -> dict[str, Any]:
    """Return an account of this owner."""
    return {**limit({"owner": owner}, name), "kind": "GpuAccount"}


def tried(world: World, spec: dict[str, Any]) -> Answer:
    """Try to create a limit, without effect; a field that is not known is an error."""
    return world.glass("POST", f"{LIMITS}?dryRun=All&fieldValidation=Strict", limit(spec))


def told(answer: Answer) -> dict[str, str]:
    """Return by field what the API server says of it."""
    causes = answer.body.get("details", {}).get("causes", [])
    return {each["field"]: each["message"] for each in causes}


def test_good_specs_are_taken_as_they_are(world: World) -> None:
    """Nothing is lost, rounded or rewritten; our reader reads all of it, and what our writer makes of it is taken."""
    for spec in specs.good():
        whole = {"subject": DEFAULT, **spec}
        answer = tried(world, whole)
        assert answer.ok, f"{spec}: {answer.message}"
        assert answer.body["spec"] == whole
        read = read_limit(answer.body)
        assert read.problem == "", spec
        again = tried(world, read.spec())
        assert again.ok, f"{read.spec()}: {again.message}"
        assert read_limit(again.body) == read


def test_bad_specs_are_refused_with_a_sentence(world: World) -> None:
    """The answer names the field and says what to write instead; no rule fails by itself."""
    for spec, field, words in specs.bad():
        answer = tried(world, {"subject": DEFAULT, **spec})
        assert answer.status == 422, f"{spec}: {answer.status} {answer.message}"
        found = told(answer)
        assert words in found.get(field, ""), f"{spec}: {answer.message}"
        assert "no such overload" not in answer.message
        assert "evaluat" not in answer.message


def test_subjects_are_taken_or_refused_with_a_sentence(world: World) -> None:
    """Names are as the hub has them; kinds have the fields that they need, and no others."""
    for subject in specs.SUBJECTS:
        answer = tried(world, {"subject": subject})
        assert answer.ok, f"{subject}: {answer.message}"
        assert answer.body["spec"]["subject"] == subject
    for subject, field, words in specs.NO_SUBJECTS:
        answer = tried(world, {"subject": subject})
        assert answer.status == 422, f"{subject}: {answer.status} {answer.message}"
        assert words in told(answer).get(field, ""), f"{subject}: {answer.message}"
    assert tried(world, {"subject": DEFAULT, "maxi": 2}).status == 400
    assert told(tried(world, {}))["spec.subject"] == "Required value"


def test_subject_of_a_limit_never_changes(world: World) -> None:
    """Another one is refused, for each part of it; the rest of the spec may change."""
    path = f"{LIMITS}/fixed"
    world.glass.need(
        "POST", LIMITS, limit({"subject": {"kind": "User", "name": "ann", "hub": "jhub"}, "max": 1}, "fixed")
    )
    for change in ({"name": "Ann"}, {"hub": "other"}, {"hub": None}, {"kind": "Group"}):
        answer = world.glass("PATCH", path, {"spec": {"subject": change}}, MERGE)
        assert answer.status == 422, change
        assert told(answer)["spec.subject"].endswith(
            "the subject of a limit never changes: delete this limit and create another"
        )
    world.glass.need("PATCH", path, {"spec": {"max": 2, "grace": "1m"}}, MERGE)
    assert world.glass.need("GET", path)["spec"]["max"] == 2
    world.glass.need("DELETE", path)


def test_status_is_written_apart_from_the_spec(world: World) -> None:
    """Each way leaves the other part as it is."""
    world.glass.need(
        "POST", LIMITS, {**limit({"subject": {"kind": "Group", "name": "ml"}}, "ml"), "status": {"used": "9"}}
    )
    assert "status" not in world.glass.need("GET", f"{LIMITS}/ml")
    said = {
        "type": "Conflicting",
        "status": "True",
        "reason": "Twice",
        "message": "…",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"members": ["ann", "ünï"], "used": "2", "waiting": "500m", "conditions": [said]}
    world.glass.need("PATCH", f"{LIMITS}/ml/status", {"status": status, "spec": {"max": 7}}, MERGE)
    found = world.glass.need("GET", f"{LIMITS}/ml")
    assert found["status"] == status
    assert "max" not in found["spec"]
    world.glass.need("DELETE", f"{LIMITS}/ml")


def test_two_limits_of_one_subject_are_taken(world: World) -> None:
    """The API server cannot compare objects: which of them holds is decided by who reads them."""
    for name in ("one", "two"):
        world.glass.need("POST", LIMITS, limit({"subject": {"kind": "User", "name": "twice"}}, name))
        world.glass.need("DELETE", f"{LIMITS}/{name}")


def test_kubectl_shows_what_matters(world: World) -> None:
    """The columns of a limit and of an account."""
    user = {"kind": "User", "name": "ünï", "hub": "jhub"}
    world.glass.need("POST", LIMITS, limit({"subject": user, "max": 2, "guaranteed": "0.5"}, "shown"))
    world.glass.need("PATCH", f"{LIMITS}/shown/status", {"status": {"used": "1", "waiting": "3"}}, MERGE)
    world.glass.need("POST", ACCOUNTS, account(user, "shown"))
    world.glass.need("PATCH", f"{ACCOUNTS}/shown/status", {"status": {"used": "1", "waiting": "0"}}, MERGE)
    config = _config(world, "shower")
    head, row = world.plane.kubectl("get", "gpulimits", config=config).splitlines()
    assert head.split() == ["NAME", "SUBJECT", "NAME", "HUB", "MAX", "GUARANTEED", "USED", "WAITING", "AGE"]
    assert row.split()[:8] == ["shown", "User", "ünï", "jhub", "2", "0.5", "1", "3"]
    head, row = world.plane.kubectl("get", "gpuaccounts", config=config).splitlines()
    assert head.split() == ["NAME", "OWNER", "NAME", "HUB", "USED", "WAITING", "AGE"]
    assert row.split()[:6] == ["shown", "User", "ünï", "jhub", "1", "0"]
    for path in (LIMITS, ACCOUNTS):
        world.glass.need("DELETE", f"{path}/shown")


@pytest.mark.parametrize(
    ("owner", "field", "words"),
    [
        ({"kind": "User", "name": "ann"}, "spec.owner.hub", "users have a hub, and namespaces none"),
        ({"kind": "Namespace", "name": "a", "hub": "h"}, "spec.owner.hub", "users have a hub, and namespaces none"),
        ({"kind": "Group", "name": "ml"}, "spec.owner.kind", 'Unsupported value: "Group"'),
        ({"kind": "User", "name": "x" * 256, "hub": "h"}, "spec.owner.name", "may not be more than 255"),
    ],
)
def test_bad_accounts_are_refused(world: World, owner: dict[str, str], field: str, words: str) -> None:
    """An account says whose it is."""
    answer = world.glass("POST", f"{ACCOUNTS}?dryRun=All", account(owner))
    assert answer.status == 422
    assert words in told(answer)[field]


def test_account_keeps_its_owner_and_all_of_its_status(world: World) -> None:
    """The owner never changes; what a newer scheduler adds to the status is kept."""
    world.glass.need("POST", ACCOUNTS, account({"kind": "Namespace", "name": "team"}, "team"))
    answer = world.glass("PATCH", f"{ACCOUNTS}/team", {"spec": {"owner": {"name": "other"}}}, MERGE)
    assert "the owner of an account never changes" in told(answer)["spec.owner"]
    status = {
        "used": "2",
        "waiting": "0",
        "limits": {"max": {"value": "2", "source": {"kind": "Default"}}},
        "hours": [1, 2],
    }
    world.glass.need("PATCH", f"{ACCOUNTS}/team/status", {"status": status}, MERGE)
    assert world.glass.need("GET", f"{ACCOUNTS}/team")["status"] == status
    world.glass.need("DELETE", f"{ACCOUNTS}/team")


def test_older_api_servers_could_afford_the_rules(world: World) -> None:
    """Before 1.33 the estimate of what a rule costs takes no notice of the length of what is an integer or text."""
    for path in sorted((chart.CHART / "crds").glob("*.yaml")):
        body = yaml.safe_load(path.read_text())
        dropped = without_lengths(body)
        assert dropped == (6 if path.name == "gpulimits.yaml" else 0)
        body["metadata"]["name"] = body["metadata"]["name"].replace("jupyter-gpu.io", "jupyter-gpu.example")
        body["spec"]["group"] = "jupyter-gpu.example"
        answer = world.glass("POST", f"{DEFINITIONS}?dryRun=All", body)
        assert answer.ok, answer.message


def without_lengths(part: Any) -> int:
    """Drop the lengths of what may be an integer or text; return how many there were."""
    found = 0
    if isinstance(part, dict):
        if part.get("x-kubernetes-int-or-string"):
            found += part.pop("maxLength", None) is not None
        found += sum(without_lengths(each) for each in part.values())
    elif isinstance(part, list):
        found += sum(without_lengths(each) for each in part)
    return found


def test_stored_limits_outlive_stricter_rules(world: World) -> None:
    """Objects that an older definition let pass can be read, given a status, changed elsewhere and removed."""
    path = f"{DEFINITIONS}/gpulimits.jupyter-gpu.io"
    old = copy.deepcopy(world.admin.need("GET", path))
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["grace"].pop("x-kubernetes-validations")
    spec["properties"]["weight"].pop("maximum")
    spec["properties"]["formerly"] = {"type": "string"}
    # As helm wrote it: the field of another manager, which must go nevertheless.
    spec["x-kubernetes-validations"].append({"rule": "!has(self.weight) || self.weight != 7", "message": "no seven"})
    world.admin.need("PUT", f"{path}?fieldManager=helm", old)
    seven = limit({"subject": DEFAULT, "weight": 7})
    until(lambda: "no seven" in world.glass("POST", f"{LIMITS}?dryRun=All", seven).message, what="the older definition")
    loose = {"subject": {"kind": "User", "name": "old"}, "max": 1, "grace": "soon", "weight": 2000, "formerly": "here"}
    world.glass.need("POST", LIMITS, limit(loose, "old"))
    world.apply_policies()
    until(
        lambda: world.glass("POST", f"{LIMITS}?dryRun=All", seven).ok,
        what="the rule of the older definition to be gone",
    )
    assert "grace" in tried(world, {"subject": DEFAULT, "grace": "soon"}).message
    found = world.glass.need("GET", f"{LIMITS}/old")["spec"]
    assert found == {key: value for key, value in loose.items() if key != "formerly"}
    world.glass.need("PATCH", f"{LIMITS}/old/status", {"status": {"used": "1"}}, MERGE)
    world.glass.need("PATCH", f"{LIMITS}/old", {"spec": {"max": 2}}, MERGE)
    assert world.glass("PATCH", f"{LIMITS}/old", {"spec": {"grace": "later"}}, MERGE).status == 422
    world.glass.need("PATCH", f"{LIMITS}/old", {"spec": {"grace": "10m", "weight": 5}}, MERGE)
    world.glass.need("DELETE", f"{LIMITS}/old")


def test_definition_keeps_what_others_wrote_about_it(world: World) -> None:
    """Labels and annotations of other tools survive an upgrade; our label comes back."""
    path = f"{DEFINITIONS}/gpuaccounts.jupyter-gpu.io"
    mine = {"labels": {"example.com/own": "1", "app.kubernetes.io/name": None}, "annotations": {"example.com/own": "2"}}
    world.admin.need("PATCH", path, {"metadata": mine}, MERGE)
    world.apply_policies()
    metadata = world.admin.need("GET", path)["metadata"]
    assert metadata["labels"] == {"example.com/own": "1", "app.kubernetes.io/name": "jupyter-gpu"}
    assert metadata["annotations"]["example.com/own"] == "2"


def test_definition_that_goes_is_made_anew(world: World) -> None:
    """One that is being removed is waited for, and created again."""
    path = f"{DEFINITIONS}/gpuaccounts.jupyter-gpu.io"
    before = world.admin.need("GET", path)["metadata"]["uid"]
    world.glass.need("POST", ACCOUNTS, account({"kind": "Namespace", "name": "team"}, "team"))
    world.admin.need("DELETE", path)
    world.apply_policies()
    assert world.admin.need("GET", path)["metadata"]["uid"] != before
    until(lambda: world.glass("GET", ACCOUNTS).body.get("items") == [], what="the new kind")


def test_values_become_limits(world: World) -> None:
    """Each entry of `limits.objects` is an object that the API server takes, parts of GPUs that are numbers too."""
    bodies: list[dict[str, Any]] = [{"subject": subject} for subject in specs.SUBJECTS]
    bodies += [
        {"subject": {"kind": "User", "name": f"user {number}"}, **spec} for number, spec in enumerate(specs.good())
    ]
    part: dict[str, Any] = {"max": 0.5, "models": [{"model": "T4", "max": 0.25}], "hours": [{**specs.DAY, "max": 1.5}]}
    bodies.append({"subject": {"kind": "User", "name": "parts"}, **part, "budget": {"gpuHours": 2.5, "window": "Day"}})
    rendered = [item for item in chart.render({"limits": {"objects": bodies}}) if item["kind"] == "GpuLimit"]
    assert len(rendered) == len(bodies)
    assert len({item["metadata"]["name"] for item in rendered}) == len(bodies)
    for item, body in zip(rendered, bodies, strict=True):
        answer = world.glass("POST", f"{LIMITS}?dryRun=All&fieldValidation=Strict", item)
        assert answer.ok, f"{body}: {answer.message}"
        assert item["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    assert [item["spec"] for item in rendered[:-1]] == bodies[:-1]
    assert rendered[-1]["spec"]["models"] == [{"model": "T4", "max": "0.25"}]
    assert rendered[-1]["spec"]["budget"]["gpuHours"] == "2.5"


def _config(world: World, user: str) -> Path:
    assert isinstance(world.plane, ControlPlane)
    return world.plane.kubeconfig_for(user, ("system:masters",))
