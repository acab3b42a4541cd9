"""Operators' settings: how pods are spread and shaped, network access, and what OpenShift and quotas require."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu.remote.rules.control import LAST_PORT, PORT
from tests.cluster.testbed.commands import CommandFailed
from tests.deploy import chart
from tests.deploy.test_chart import EVERYTHING, FULL

SCHEDULERS = {"scheduler": "scheduler", "kubeScheduler": "kube-scheduler"}
"""Paths in the values, and names of the parts."""
PARTS = {**SCHEDULERS, "node": "node", "hooks": "hook"}
COMPONENT = "app.kubernetes.io/component"


def templates(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return part and template of every pod that can be created."""
    for item in chart.render(values):
        if item["kind"] in ("Deployment", "DaemonSet", "Job"):
            template = item["spec"]["template"]
            yield template["metadata"]["labels"][COMPONENT], template
    cleaner = json.loads(chart.hook_files(values)["cleaner.json"])
    yield cleaner["metadata"]["labels"][COMPONENT], cleaner


def of(values: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the templates of one part."""
    return [template for name, template in templates(values) if name == part]


def selects(selector: dict[str, str], template: dict[str, Any]) -> bool:
    """Return whether a selector matches labels."""
    labels: dict[str, str] = template["metadata"]["labels"]
    return selector.items() <= labels.items()


@pytest.mark.parametrize("part", SCHEDULERS.values())
def test_one_node_may_be_lost_or_drained(part: str) -> None:
    """Two replicas prefer different nodes and are replaced soon; only one at a time is evicted."""
    objects = chart.render()
    assert chart.find(objects, "Deployment", f"jupyter-gpu-{part}")["spec"]["replicas"] == 2
    (template,) = of({}, part)
    spec = template["spec"]
    found = {each["key"]: each for each in spec["tolerations"]}
    for trouble in ("not-ready", "unreachable"):
        assert found[f"node.kubernetes.io/{trouble}"]["effect"] == "NoExecute"
        assert found[f"node.kubernetes.io/{trouble}"]["tolerationSeconds"] <= 30
    (term,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert selects(term["podAffinityTerm"]["labelSelector"]["matchLabels"], template)
    budget = chart.find(objects, "PodDisruptionBudget", f"jupyter-gpu-{part}")["spec"]
    assert selects(budget["selector"]["matchLabels"], template)
    assert budget["maxUnavailable"] == 1


def test_disruption_budgets_can_be_changed() -> None:
    """Each can be switched off by itself, or made more generous."""
    values = {
        "scheduler": {"podDisruptionBudget": {"enabled": False}},
        "kubeScheduler": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
    }
    (budget,) = (item for item in chart.render(values) if item["kind"] == "PodDisruptionBudget")
    assert (budget["metadata"]["name"], budget["spec"]["maxUnavailable"]) == ("jupyter-gpu-kube-scheduler", "50%")


@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_every_pod_and_hook_can_be_shaped(name: str, part: str) -> None:
    """Class, resources, placement, environment, labels and annotations can be set, but not our selectors."""
    resources = {"requests": {"cpu": "7m", "memory": "70Mi"}, "limits": {"cpu": "77m", "memory": "777Mi"}}
    own: dict[str, Any] = {
        "priorityClassName": "very-special",
        "resources": resources,
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "podLabels": {"team": "gpus", COMPONENT: "stolen"},
        "podAnnotations": {"sidecar.example/inject": "no"},
    }
    values = {name: own}
    found = of(values, part) + (of(values, "cleaner") if part == "node" else [])
    assert len(found) == (1 if name in SCHEDULERS else 2)
    for template in found:
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert spec["priorityClassName"] == "very-special"
        assert {"key": "dedicated", "operator": "Exists"} in spec["tolerations"]
        assert container["resources"] == resources
        assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in container["env"]
        assert template["metadata"]["labels"]["team"] == "gpus"
        assert template["metadata"]["labels"][COMPONENT] in (part, "cleaner")
        assert template["metadata"]["annotations"]["sidecar.example/inject"] == "no"
        if template["metadata"]["labels"][COMPONENT] != "cleaner":  # that one gets its node by name
            assert spec["nodeSelector"] == {"pool": "system"}


def test_every_container_declares_its_resources() -> None:
    """Quotas on requests and memory admit it by default; classes are Kubernetes' own.

    Hooks and the hub's page have none: GPUs are decided and attached, and limits hold, without them.
    """
    for part, template in templates(FULL):
        for container in template["spec"]["containers"]:
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), part
            assert "memory" in container["resources"]["limits"], part
        assert template["spec"].get("priorityClassName", "").startswith("system-") == (part not in ("hook", "hub"))


def test_hooks_and_kube_scheduler_follow_the_scheduler() -> None:
    """They do so unless they are configured otherwise."""
    values = {"scheduler": {"nodeSelector": {"pool": "system"}, "tolerations": [{"key": "only", "operator": "Exists"}]}}
    for part in ("scheduler", "kube-scheduler", "hook"):
        for template in of(values, part):
            assert template["spec"]["nodeSelector"] == {"pool": "system"}
            assert {"key": "only", "operator": "Exists"} in template["spec"]["tolerations"]
    for template in of({**values, "hooks": {"nodeSelector": {"pool": "jobs"}}}, "hook"):
        assert template["spec"]["nodeSelector"] == {"pool": "jobs"}


@pytest.mark.parametrize(("name", "part"), SCHEDULERS.items())
def test_replicas_are_spread_as_configured(name: str, part: str) -> None:
    """Configured affinities replace ours; constraints without a selector apply to the replicas."""
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    other = {**constraint, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    affinity: dict[str, Any] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    values = {name: {"affinity": affinity, "topologySpreadConstraints": [constraint, other], "unreachableSeconds": 3}}
    (template,) = of(values, part)
    spec = template["spec"]
    assert spec["affinity"] == affinity
    first, second = spec["topologySpreadConstraints"]
    assert selects(first["labelSelector"]["matchLabels"], template)
    assert second == other
    assert {each["tolerationSeconds"] for each in spec["tolerations"]} == {3}


def test_update_strategy_is_free() -> None:
    """There are never two node plugins on one node, though."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    values = {name: {"updateStrategy": strategy} for name in SCHEDULERS}
    for part in SCHEDULERS.values():
        assert chart.find(chart.render(values), "Deployment", f"jupyter-gpu-{part}")["spec"]["strategy"] == strategy
    alone = chart.find(chart.render({"kubeScheduler": {"replicas": 1}}), "Deployment", "jupyter-gpu-kube-scheduler")
    assert alone["spec"]["strategy"] == {"type": "Recreate"}

    def of_nodes(**values: Any) -> Any:
        return chart.find(chart.render({"node": {"updateStrategy": values}}), "DaemonSet", "jupyter-gpu-node")["spec"][
            "updateStrategy"
        ]

    assert of_nodes(type="OnDelete") == {"type": "OnDelete"}
    assert of_nodes(maxUnavailable="10%")["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}
    with pytest.raises(CommandFailed, match="/node/updateStrategy"):
        of_nodes(maxSurge=1)


def test_network_policies_admit_the_needed_connections() -> None:
    """For every part; our kube-scheduler may call the extender, and so may configured clients."""

    def policies(**values: Any) -> dict[str, list[dict[str, Any]]]:
        objects = chart.render({**values, "networkPolicy": {"enabled": True, **values.get("networkPolicy", {})}})
        found = [item["spec"] for item in objects if item["kind"] == "NetworkPolicy"]
        assert all(each["policyTypes"] == ["Ingress"] for each in found)
        return {each["podSelector"]["matchLabels"][COMPONENT]: each["ingress"] for each in found}

    def ports(rules: list[dict[str, Any]]) -> list[tuple[int, Any]]:
        return [(each["port"], rule.get("from")) for rule in rules for each in rule["ports"]]

    assert not [item for item in chart.render() if item["kind"] == "NetworkPolicy"]
    found = policies()
    assert set(found) == {part for part, _ in templates({})}
    assert ports(found["node"]) == [(8081, None)]
    assert found["hook"] == found["cleaner"] == []
    (extender, metrics) = ports(found["scheduler"])
    assert metrics == (8080, None)
    ((port, (peer,)),) = [extender]
    assert port == 8443
    assert selects(peer["podSelector"]["matchLabels"], of({}, "kube-scheduler")[0])
    prometheus: dict[str, Any] = {"namespaceSelector": {}}
    plane = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    own = {"metricsFrom": [prometheus], "extenderFrom": [plane]}
    found = policies(networkPolicy=own, kubeScheduler={"enabled": False})
    assert ports(found["scheduler"]) == [(8443, [plane]), (8080, [prometheus])]
    assert ports(found["node"]) == [(8081, [prometheus])]
    without = policies(kubeScheduler={"enabled": False})["scheduler"]
    assert [port for port, _ in ports(without)] == [8080]  # no rule without a source, which would admit everyone


def test_network_policies_of_workers_are_chosen_by_direction() -> None:
    """In each of their namespaces: workers take their ports from other pods, which may reach them."""

    def policies(**chosen: bool) -> dict[tuple[str, str], dict[str, Any]]:
        workers = {"enabled": True, "namespaces": ["alice", "bob"], "networkPolicy": chosen}
        found = [item for item in chart.render({"workers": workers}) if item["kind"] == "NetworkPolicy"]
        return {(one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"] for one in found}

    def pods(operator: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "jupyter-gpu.io/worker", "operator": operator}]}

    ports = [{"protocol": "TCP", "port": PORT, "endPort": LAST_PORT}]
    workers, others = pods("Exists"), pods("DoesNotExist")
    assert not policies()
    into = policies(ingress=True)
    assert list(into) == [("alice", "jupyter-gpu-workers-ingress"), ("bob", "jupyter-gpu-workers-ingress")]
    rule = {"ports": ports, "from": [{"podSelector": others}]}
    assert into["bob", "jupyter-gpu-workers-ingress"] == {
        "podSelector": workers,
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    out = policies(egress=True)
    rule = {"ports": ports, "to": [{"podSelector": workers}]}
    assert out["alice", "jupyter-gpu-workers-egress"] == {
        "podSelector": others,
        "policyTypes": ["Egress"],
        "egress": [rule],
    }
    assert len(policies(ingress=True, egress=True)) == 4


@pytest.mark.parametrize("values", [{}, {"workers": {"enabled": True, "namespaces": ["alice"]}}], ids=str)
def test_api_server_gives_our_programs_a_priority_level(values: dict[str, Any]) -> None:
    """It comes after the system's and before that of all service accounts."""
    objects = chart.render(values)
    schema = chart.find(objects, "FlowSchema", "jupyter-gpu")["spec"]
    (rule,) = schema["rules"]
    named = {(each["serviceAccount"]["namespace"], each["serviceAccount"]["name"]) for each in rule["subjects"]}
    accounts = {template["spec"].get("serviceAccountName") for part, template in templates(values) if part != "hook"}
    assert named == {("jupyter-gpu", name) for name in accounts - {None}}
    assert 500 < schema["matchingPrecedence"] < 9000
    level = chart.find(objects, "PriorityLevelConfiguration", schema["priorityLevelConfiguration"]["name"])
    assert level["spec"]["limited"]["nominalConcurrencyShares"] == 20
    off = chart.render({"flowControl": {"enabled": False}})
    assert not [item for item in off if item["kind"] in ("FlowSchema", "PriorityLevelConfiguration")]


@pytest.mark.parametrize(
    "node", [{}, {"withoutPins": True}, {"privileged": True}, {"simulated": {"count": 2}}], ids=str
)
def test_openshift_admits_our_pods(node: dict[str, Any]) -> None:
    """The constraints allow exactly the capabilities, volumes and accounts of the node plugin's pods and cleaners."""
    values = {"openShift": {"enabled": True}, "node": node}
    objects = chart.render(values)
    found = {item["metadata"]["name"]: item for item in objects if item["kind"] == "SecurityContextConstraints"}
    for part, name, account in (
        ("node", "jupyter-gpu-node", "jupyter-gpu-node"),
        ("cleaner", "jupyter-gpu-hook", "jupyter-gpu-hook"),
    ):
        ((template,), allowed) = of(values, part), found[name]
        assert allowed["users"] == [f"system:serviceaccount:jupyter-gpu:{account}"]
        assert chart.is_hook(allowed) == (part == "cleaner")
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert {key for volume in spec["volumes"] for key in volume} - {"name"} <= set(allowed["volumes"])
        assert allowed["allowHostPID"] == spec["hostPID"]
        security = container["securityContext"]
        assert allowed["allowPrivilegedContainer"] == security.get("privileged", False)
        assert allowed["allowedCapabilities"] == security.get("capabilities", {}).get("add", [])
        assert spec["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    others = {
        subject["name"]
        for item in objects
        if item["kind"] == "RoleBinding" and item["roleRef"]["name"] == "system:openshift:scc:nonroot-v2"
        for subject in item["subjects"]
    }
    accounts = {template["spec"].get("serviceAccountName") for _, template in templates(values)}
    assert others == accounts - {None, "jupyter-gpu-node"}


def test_selinux_options_are_those_configured() -> None:
    """There are none by default; ours come before those of OpenShift."""
    for part in ("node", "cleaner"):
        assert "seLinuxOptions" not in of({}, part)[0]["spec"]["securityContext"]
        own = {"level": "s0:c1,c2"}
        values = {"node": {"seLinuxOptions": own}, "openShift": {"enabled": True}}
        assert of(values, part)[0]["spec"]["securityContext"]["seLinuxOptions"] == own


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"scheduler": {"updateStrategy": {"type": "Sometimes"}}}, "/scheduler/updateStrategy/type"),
        ({"kubeScheduler": {"podDisruptionBudget": {"maxUnavailable": "all"}}}, "podDisruptionBudget/maxUnavailable"),
        ({"hooks": {"resources": {"request": {}}}}, "/hooks/resources"),
        ({"hooks": {"priorityClassName": "Very High"}}, "/hooks/priorityClassName"),
        ({"node": {"podLabels": {"a": 1}}}, "/node/podLabels/a"),
        ({"node": {"extraEnv": [{"value": "1"}]}}, "/node/extraEnv/0"),
        ({"node": {"tolerations": [{"operator": "Maybe"}]}}, "/node/tolerations/0/operator"),
        ({"scheduler": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "/scheduler/topologySpreadConstraints/0"),
        ({"scheduler": {"affinity": {"nodeSelector": {}}}}, "/scheduler/affinity"),
        ({"networkPolicy": {"metricsFrom": [{}]}}, "/networkPolicy/metricsFrom/0"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
        ({"flowControl": {"shares": -1}}, "/flowControl/shares"),
        ({"openShift": {"enabled": "yes"}}, "/openShift/enabled"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any], named: str) -> None:
    """The message names the value."""
    with pytest.raises(CommandFailed, match=named):
        chart.text(values)


def test_no_switch_hides_an_object_of_another() -> None:
    """With all switches on, every object is there that any single one adds."""
    names = {(item["kind"], item["metadata"]["name"]) for item in chart.render(EVERYTHING)}
    for switch in ("metrics", "networkPolicy", "openShift"):
        one = {(item["kind"], item["metadata"]["name"]) for item in chart.render({**FULL, switch: EVERYTHING[switch]})}
        assert one - {(item["kind"], item["metadata"]["name"]) for item in chart.render(FULL)}
        assert one <= names
