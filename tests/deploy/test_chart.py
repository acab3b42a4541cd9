"""The manifests that the chart renders, without a cluster."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped,unused-ignore]

from jupyter_gpu.common import settings_file
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu_node import settings as node_settings
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules, of
from jupyter_gpu_node.shares.rules.turns import elasticity, timing
from jupyter_gpu_node.shares.rules.violations import penalties
from jupyter_gpu_scheduler.rules.limits.job_end import JOB_KINDS
from jupyter_gpu_scheduler.settings import SchedulerSettings
from tests.admission import specs
from tests.cluster.testbed import binaries
from tests.cluster.testbed.commands import CommandFailed, run
from tests.deploy import chart

GUIDE = chart.CHART.parents[2] / "docs" / "cluster-guide.md"
REAL: dict[str, Any] = {}
SIMULATED = {"node": {"simulated": {"count": 4, "nodes": {"node2": {"firstMinor": 44}}}}}
FULL: dict[str, Any] = {
    "node": {**SIMULATED["node"], "managed": {"models": ["NVIDIA T4"], "nodes": {"node2": {"indexes": [0, 1]}}}},
    "scheduler": {"service": {"clusterIP": "10.96.0.99"}, "policy": {"name": "pack"}},
    "kubeScheduler": {"replicas": 1},
    "notebooks": {"namespaces": [{"namespace": "alice"}], "readEvents": True},
    "hubs": [
        {"namespace": "hub", "serviceAccount": "hub", "notebookNamespaces": ["alice", "bob"]},
        {"namespace": "hub", "serviceAccount": "second", "notebookNamespaces": ["alice"], "name": "second"},
    ],
    "hub": {"enabled": True, "apiUrl": "http://hub.hub:8081/hub/api", "tokenSecret": {"name": "gpu-token"}},
    "limits": {"objects": [{"subject": {"kind": "Default"}, "max": 1}], "timeZone": "Europe/Berlin"},
    "image": {"pullSecrets": ["registry"]},
    "workers": {"enabled": True, "namespaces": ["alice"]},
}
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "FlowSchema",
    "GpuLimit",
    "PriorityLevelConfiguration",
    "SecurityContextConstraints",
}
EVERYTHING: dict[str, Any] = {
    **FULL,
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
    },
    "networkPolicy": {"enabled": True},
    "openShift": {"enabled": True},
}
"""With every switch on."""
WORLDS = pytest.mark.parametrize(
    "values", [REAL, SIMULATED, FULL, EVERYTHING], ids=["real", "simulated", "full", "all"]
)


def test_helm_lint_finds_nothing() -> None:
    """Helm itself reports nothing."""
    said = run(
        binaries.path("helm"), "lint", "--strict", "--kube-version", binaries.version(), *chart.REGISTRY, chart.CHART
    )
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


def test_chart_has_the_package_s_version() -> None:
    """Chart, images and package have one version."""
    package = json.loads((chart.CHART.parents[2] / "labextension" / "package.json").read_text())
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == package["version"]
    assert described["kubeVersion"] == ">=1.30.0-0"


@WORLDS
def test_objects_lie_in_the_release_s_namespace(values: dict[str, Any]) -> None:
    """This holds for any namespace; only what serves notebooks and reads the API server's settings is elsewhere."""
    objects = chart.render(values, namespace="elsewhere")
    named = {"alice", "bob", "hub", "kube-system"}
    for item in objects:
        namespace = item["metadata"].get("namespace")
        cluster_wide = item["kind"] in CLUSTER_WIDE
        assert (namespace is None) == cluster_wide, item["metadata"]
        assert namespace in (None, "elsewhere") or (item["kind"] == "RoleBinding" and namespace in named)
    for subject in _subjects(objects):
        assert subject["namespace"] in ("elsewhere", *named)
    files = chart.hook_files(values, namespace="elsewhere")
    assert (
        "system:serviceaccount:elsewhere:jupyter-gpu-scheduler"
        in files["validatingadmissionpolicies.jupyter-gpu-pods.yaml"]
    )
    assert not any("system:serviceaccount:jupyter-gpu:" in text for text in files.values())


@WORLDS
def test_names_are_used_once(values: dict[str, Any]) -> None:
    """No object is rendered twice."""
    keys = [
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in chart.render(values)
    ]
    assert len(set(keys)) == len(keys)


def test_image_registry_is_required() -> None:
    """There is no default that others could take over; the refusal says what is missing, and where to read how."""
    words = ("template", "jupyter-gpu", chart.CHART, "--kube-version", binaries.version())
    helm = binaries.path("helm")
    with pytest.raises(
        CommandFailed, match=r"/image/repository.*registry\.example/gpu \(docs/cluster-guide\.md, Images\)"
    ):
        run(helm, *words)
    with pytest.raises(CommandFailed, match="/image/repository"):
        run(helm, *words, "--set", "image.node=only/one@sha256:0")
    whole = ("--set", "image.node=their/node:1,image.scheduler=their/scheduler:2")
    found = {line.split()[1] for line in run(helm, *words, *whole).splitlines() if line.strip().startswith("image: ")}
    assert found == {"their/node:1", "their/scheduler:2", f"registry.k8s.io/kube-scheduler:{binaries.version()}"}
    assert "Images" in [line.strip("# ") for line in GUIDE.read_text().splitlines() if line.startswith("#")]


def test_values_and_schema_name_the_same() -> None:
    """Every value is checked, and what is checked is documented by a default."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())

    def keys(part: dict[str, Any], values: Any, path: str = "") -> Iterator[str]:
        part = schema["definitions"].get(part.get("$ref", "").rpartition("/")[2], part)
        known = part.get("properties", {})
        if known and isinstance(values, dict):
            if path.rpartition(".")[2] not in ("resources", "affinity", "updateStrategy", "seLinuxOptions"):
                assert set(known) - {"global"} == set(values), path
            for key, value in values.items():
                yield f"{path}.{key}"
                yield from keys(known[key], value, f"{path}.{key}")

    assert len(list(keys(schema, values))) > 130


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 2}, "replicas"),
        ({"scheduler": {"replicas": 0}}, "/scheduler/replicas"),
        ({"scheduler": {"policy": {"name": "random"}}}, "/scheduler/policy/name"),
        ({"scheduler": {"policy": {"weights": {"cpu": "much"}}}}, "/scheduler/policy/weights/cpu"),
        ({"scheduler": {"service": {"clusterIP": "host"}}}, "/scheduler/service/clusterIP"),
        ({"kubeScheduler": {"enabled": "yes"}}, "/kubeScheduler/enabled"),
        ({"kubeScheduler": {"extenderTimeoutSeconds": 0}}, "/kubeScheduler/extenderTimeoutSeconds"),
        ({"node": {"simulated": {"count": 25}}}, "/node/simulated/count"),
        ({"node": {"simulated": {"nodes": {"a": {"minor": 4}}}}}, "/node/simulated/nodes/a"),
        ({"node": {"managed": {"indices": [0]}}}, "/node/managed"),
        ({"node": {"managed": {"nodes": {"a": {"indexes": ["0"]}}}}}, "/node/managed/nodes/a/indexes/0"),
        ({"node": {"slots": -1}}, "/node/slots"),
        ({"node": {"shares": {"timing": {"lease": 1}}}}, "/node/shares/timing/lease"),
        ({"node": {"shares": {"gpus": {"GPU-1": {"elastic": {"grow": 2}}}}}}, "/node/shares/gpus/GPU-1/elastic/grow"),
        ({"node": {"shares": {"penalties": {"stikes": 3}}}}, "/node/shares/penalties"),
        ({"node": {"kubeletDirectory": "var/lib"}}, "/node/kubeletDirectory"),
        ({"notebooks": {"namespaces": ["alice"]}}, "/notebooks/namespaces/0"),
        ({"hubs": [{"namespace": "hub"}]}, "/hubs/0"),
        ({"hubs": [{"namespace": "hub", "serviceAccount": "hub", "name": "My hub"}]}, "/hubs/0/name"),
        ({"limits": {"timeZone": "Europe/../Berlin"}}, "/limits/timeZone"),
        ({"limits": {"jobKinds": ["job.batch"]}}, "/limits/jobKinds/0"),
        ({"limits": {"attest": "yes"}}, "/limits/attest"),
        ({"limits": {"askAtCreation": 1}}, "/limits/askAtCreation"),
        ({"limits": {"objects": [{"max": 2}]}}, "/limits/objects/0"),
        ({"limits": {"objects": [{"subject": {"kind": "User"}}]}}, "/limits/objects/0/subject"),
        ({"limits": {"objects": [{"subject": {"kind": "Cap"}, "maxi": 2}]}}, "/limits/objects/0"),
        ({"limits": {"objects": [{"subject": {"kind": "Cap"}, "max": "two"}]}}, "/limits/objects/0/max"),
        ({"hub": {"edit": "no"}}, "/hub/edit"),
        ({"hub": {"apiUrl": "hub:8081"}}, "/hub/apiUrl"),
        ({"hub": {"baseUrl": "jupyter"}}, "/hub/baseUrl"),
        ({"hub": {"enabled": True, "apiUrl": "http://hub:8081/hub/api"}}, "hub.tokenSecret.name"),
        ({"policies": {"breakGlassGroup": "it's"}}, "/policies/breakGlassGroup"),
        ({"policies": {"allowedHostPaths": ["/"]}}, "/policies/allowedHostPaths/0"),
        ({"policies": {"allowedHostPaths": ["srv"]}}, "/policies/allowedHostPaths/0"),
        ({"policies": {"allowedHostPaths": ["/srv", "/srv/../etc"]}}, "/policies/allowedHostPaths/1"),
        ({"policies": {"allowedHostPaths": ["/srv/*/data"]}}, "/policies/allowedHostPaths/0"),
        ({"policies": {"allowedHostPaths": ["/srv'"]}}, "/policies/allowedHostPaths/0"),
        ({"policies": {"visibleDevices": {"refuse": "yes"}}}, "/policies/visibleDevices/refuse"),
        (
            {"policies": {"visibleDevices": {"exceptNamespaces": ["a'b"]}}},
            "/policies/visibleDevices/exceptNamespaces/0",
        ),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"tag": 1}}, "/image/tag"),
        ({"certificates": {"serverSecret": "mine"}}, "/certificates/clientSecret.*too, as serverSecret is"),
        ({"certificates": {"clientSecret": "theirs"}}, "/certificates/clientSecret.*serverSecret named too"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any], named: str) -> None:
    """The message names the value."""
    with pytest.raises(CommandFailed, match=named):
        chart.text(values)


@WORLDS
def test_programs_understand_their_settings(values: dict[str, Any], tmp_path: Path) -> None:
    """The code that reads them accepts what is rendered, on every node."""
    objects = chart.render(values)
    file = tmp_path / "settings.json"
    file.write_text(chart.find(objects, "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"])
    scheduler = settings_file.read(file, SchedulerSettings)
    assert scheduler.extender.secure
    assert str(scheduler.limits.time_zone) == values.get("limits", {}).get("timeZone", "UTC")
    file.write_text(chart.find(objects, "ConfigMap", "jupyter-gpu-node")["data"]["settings.json"])
    assert (values is REAL) == (node_settings.load(file, {"NODE_NAME": "node1"}).simulated is None)
    if values is not REAL:
        second = node_settings.load(file, {"NODE_NAME": "node2"}).simulated
        assert second is not None
        assert (second.count, second.first_minor) == (4, 44)
    if values is FULL:
        managed = node_settings.load(file, {"NODE_NAME": "node2"}).managed
        assert (managed.on("node1").models, managed.on("node2").indexes) == (("NVIDIA T4",), (0, 1))
    assert json.loads(file.read_text()) == json.loads(chart.hook_files(values)["settings.json"])


def test_settings_of_shares_have_the_program_s_own_defaults_and_bounds(tmp_path: Path) -> None:
    """The chart repeats them, so that they can be read there."""
    file = tmp_path / "settings.json"
    file.write_text(chart.find(chart.render(), "ConfigMap", "jupyter-gpu-node")["data"]["settings.json"])
    shares = node_settings.load(file, {"NODE_NAME": "node1"}).shares
    assert of(shares, "node1", "GPU-1") == GpuRules()
    assert {name: len(section) for name, section in shares.base.items()} == {
        "timing": len(timing.LIMITS),
        "elastic": len(elasticity.LIMITS) + 1,
        "penalties": len(penalties.LIMITS),
    }
    known = json.loads((chart.CHART / "values.schema.json").read_text())["definitions"]
    for name, limits in (("timing", timing.LIMITS), ("elastic", elasticity.LIMITS), ("penalties", penalties.LIMITS)):
        said = {
            key: (each["minimum"], each["maximum"])
            for key, each in known[name]["properties"].items()
            if key != "enabled"
        }
        assert said == limits


def test_stand_in_driver_is_mounted_for_simulated_gpus() -> None:
    """The plugin finds it at its usual path; with simulated GPUs alone neither a driver nor the devices are mounted."""
    for root, volumes in (("/", set[str]()), ("/opt/stand-in", {"driver"})):
        values = {"node": {"simulated": {"count": 1}, "driver": {"root": root}}}
        (node,) = (item for item in _pods(chart.render(values)) if item["part"] == "node")
        assert {volume["name"] for volume in node["spec"]["volumes"]} & {"driver", "dev"} == volumes
        settings = json.loads(
            chart.find(chart.render(values), "ConfigMap", "jupyter-gpu-node")["data"]["settings.json"]
        )
        assert settings.get("driver") == ({"root": root, "seen": "/host/driver"} if volumes else None)


@WORLDS
def test_containers_have_no_more_rights_than_they_need(values: dict[str, Any]) -> None:
    """None is privileged, roots are read-only, capabilities are listed one by one."""
    for item in _pods(chart.render(values)):
        spec = item["spec"]
        assert not spec.get("hostNetwork")
        assert not spec.get("hostIPC")
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert security["allowPrivilegeEscalation"] is False
            assert not security.get("privileged")
            assert security["capabilities"]["drop"] == ["ALL"]
            assert not container["image"].endswith(":latest")
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        added = {
            name
            for container in spec["containers"]
            for name in container["securityContext"]["capabilities"].get("add", ())
        }
        if item["part"] in ("node", "cleaner"):
            needed = {"BPF", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE", "KILL"}
            assert added == needed | (set() if values is REAL else {"MKNOD"})
        else:
            assert not added
            assert not spec.get("hostPID")
            assert spec["securityContext"]["runAsNonRoot"]
            assert not any("hostPath" in volume for volume in spec["volumes"])


def test_plugin_may_look_up_programs_only_without_pins() -> None:
    """Only then it has CAP_SYS_ADMIN, and no file system of programs."""
    (node,) = (item for item in _pods(chart.render({"node": {"withoutPins": True}})) if item["part"] == "node")
    assert "SYS_ADMIN" in node["spec"]["containers"][0]["securityContext"]["capabilities"]["add"]
    assert "bpf" not in {volume["name"] for volume in node["spec"]["volumes"]}


def test_hardened_runtime_needs_a_privileged_plugin() -> None:
    """A value of its own makes the plugin's container privileged, and no other."""
    privileged = [
        (item["part"], container["securityContext"].get("privileged", False))
        for item in _pods(chart.render({"node": {"privileged": True}}))
        for container in item["spec"]["containers"]
    ]
    assert {part for part, is_privileged in privileged if is_privileged} == {"node", "cleaner"}
    assert {part for part, is_privileged in privileged if not is_privileged} >= {"scheduler"}


def test_plugin_never_runs_twice_on_a_node() -> None:
    """The old one ends before the new one registers."""
    daemons = chart.find(chart.render(), "DaemonSet", "jupyter-gpu-node")
    assert daemons["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    assert {"livenessProbe", "readinessProbe"} <= set(container)
    assert daemons["spec"]["template"]["spec"]["priorityClassName"] == "system-node-critical"


@WORLDS
def test_rights_are_listed_one_by_one(values: dict[str, Any]) -> None:
    """There is no wildcard, no secret, no exec, no node proxy, and nothing that grants rights."""
    for item in chart.render(values):
        if item["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in item["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"secrets", "pods/exec", "nodes/proxy", "serviceaccounts/token"} & set(rule["resources"])
            assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
            if "pods" in rule["resources"] and not chart.is_hook(item):
                more = {"jupyter-gpu-scheduler": {"delete"}, "jupyter-gpu-workers": {"create", "delete"}}
                assert set(rule["verbs"]) <= {"get", "list", "watch"} | more.get(item["metadata"]["name"], set())


def test_programs_have_exactly_the_rights_that_they_use() -> None:
    """Each verb that a program of ours or kube-scheduler's election uses is granted, and no other."""
    names = (
        "jupyter-gpu-scheduler",
        "jupyter-gpu-node",
        "jupyter-gpu-kube-scheduler",
        "jupyter-gpu-notebook",
        "jupyter-gpu-hub-service",
        "jupyter-gpu-users-hub-hub",
        "jupyter-gpu-users-hub-second",
    )
    found: dict[str, set[str]] = {name: set() for name in names}
    for item in chart.render(FULL):
        if item["kind"] in ("Role", "ClusterRole") and item["metadata"]["name"] in names:
            found[item["metadata"]["name"]] |= {
                f"{verb} {resource}"
                for rule in item["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    pods = {"get pods", "list pods", "watch pods", "patch pods/status"}
    told = {"create events", "patch events"}
    nodes = {"list nodes", "watch nodes"}
    leads = {"create leases", "get leases"}
    limits = {"list gpulimits", "watch gpulimits", "patch gpulimits/status"}
    accounts = {"list gpuaccounts", "watch gpuaccounts"}
    assert found == {
        "jupyter-gpu-scheduler": pods
        | nodes
        | told
        | leads
        | limits
        | accounts
        | {"create gpuaccounts", "delete gpuaccounts", "patch gpuaccounts/status", "get customresourcedefinitions"}
        | {"patch leases", "create pods/binding", "get services", "delete pods"}
        | {"create endpointslices", "get endpointslices", "patch endpointslices"},
        "jupyter-gpu-node": pods | nodes | told | {"patch nodes/status"},
        "jupyter-gpu-kube-scheduler": leads | {"update leases"},
        "jupyter-gpu-notebook": {"patch pods/status", "update-own pods/requested"},
        "jupyter-gpu-hub-service": limits
        | accounts
        | nodes
        | {"list pods", "watch pods"}
        | {"get gpulimits", "create gpulimits", "patch gpulimits", "delete gpulimits"},
        "jupyter-gpu-users-hub-hub": {"attribute users"},
        "jupyter-gpu-users-hub-second": {"attribute users"},
    }


def test_hub_speaks_for_its_own_users_only() -> None:
    """Without a name it is that of its notebooks' namespaces, and the right ends there; a name is known everywhere."""
    objects = chart.render(FULL)
    found = {}
    for name in ("hub", "second"):
        (rule,) = chart.find(objects, "ClusterRole", f"jupyter-gpu-users-hub-{name}")["rules"]
        bound = [
            (item["kind"], item["metadata"].get("namespace"), item["subjects"])
            for item in objects
            if item.get("roleRef", {}).get("name") == f"jupyter-gpu-users-hub-{name}"
        ]
        found[name] = (rule["resourceNames"], [each[:2] for each in bound])
        assert {subject["name"] for *_, subjects in bound for subject in subjects} == {name}
    assert found == {
        "hub": (["alice", "bob"], [("RoleBinding", "alice"), ("RoleBinding", "bob")]),
        "second": (["second"], [("ClusterRoleBinding", None)]),
    }


def test_settings_of_limits_reach_the_scheduler() -> None:
    """The chart's default for the kinds of Jobs is the program's own; the time zone is left out where none is set."""
    for values, expected in (
        ({"timeZone": ""}, {"jobKinds": list(JOB_KINDS)}),
        (
            {"timeZone": "Europe/Berlin", "jobKinds": ["Job.batch"]},
            {"timeZone": "Europe/Berlin", "jobKinds": ["Job.batch"]},
        ),
    ):
        objects = chart.render({"limits": values})
        text = chart.find(objects, "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"]
        assert json.loads(text)["limits"] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"hub": {"enabled": True}}, True),
        ({"limits": {"objects": [{"subject": {"kind": "Cap"}, "max": 8}]}}, True),
        ({"hub": {"enabled": True}, "limits": {"askAtCreation": False}}, False),
        ({"limits": {"askAtCreation": True}}, True),
    ],
)
def test_creators_ask_where_limits_are_used(values: dict[str, Any], expected: bool) -> None:
    """Unless the value says so or the contrary."""
    policy = json.loads(chart.hook_files(values)["validatingadmissionpolicies.jupyter-gpu-pods.yaml"])
    said = "jupyter-gpu.io/requested is written by the pod itself"
    (rule,) = (each for each in policy["spec"]["validations"] if each.get("message", "").startswith(said))
    assert rule["expression"].endswith("|| request.operation == 'CREATE' && variables.asksSlot") == expected


def test_limits_of_the_values_have_the_names_of_all_writers() -> None:
    """One subject, one object: of the chart, the hub's service and people's tools."""
    subjects: list[dict[str, str]] = [*specs.SUBJECTS, {"kind": "User", "name": 'a "b" \\c', "hub": "ünï"}]
    rendered = chart.render({"limits": {"objects": [{"subject": subject} for subject in subjects]}})
    found = [item["metadata"]["name"] for item in rendered if item["kind"] == "GpuLimit"]
    assert found == [object_name(each["kind"], each.get("name", ""), each.get("hub", "")) for each in subjects]
    assert len(set(found)) == len(found)


def test_older_cluster_is_told_to_upgrade_first() -> None:
    """An upgrade from a chart without limits would fail in helm's own words, as the kind comes with the first one."""
    words = ("template", "jupyter-gpu", chart.CHART, "--kube-version", binaries.version(), *chart.REGISTRY)
    wanted = ("--is-upgrade", "--set", "limits.objects[0].subject.kind=Cap")
    with pytest.raises(CommandFailed, match=r"Upgrade once without limits\.objects, then with them"):
        run(binaries.path("helm"), *words, *wanted)
    said = run(binaries.path("helm"), *words, *wanted, "--api-versions", "jupyter-gpu.io/v1alpha1/GpuLimit")
    assert "kind: GpuLimit" in said
    assert "kind: GpuLimit" not in run(binaries.path("helm"), *words, "--is-upgrade")


def test_helm_creates_the_same_definitions_as_the_hook() -> None:
    """Helm makes them at the first installation, so that limits of the values can follow; later the hook does."""
    words = ("template", "jupyter-gpu", chart.CHART, "--kube-version", binaries.version(), *chart.REGISTRY)
    rendered = list(yaml.safe_load_all(run(binaries.path("helm"), *words, "--include-crds")))
    made = {item["spec"]["names"]["plural"]: item for item in rendered if item["kind"] == "CustomResourceDefinition"}
    files = {name: json.loads(text) for name, text in chart.hook_files().items() if name.startswith("definition.")}
    assert files == {f"definition.{name}.yaml": item for name, item in made.items()}
    assert set(made) == {"gpulimits", "gpuaccounts"}


def test_values_take_what_the_cluster_takes() -> None:
    """The schema of a limit accepts each good spec, and refuses what is bad by its form."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    check = Draft7Validator({**schema["definitions"]["limit"], "definitions": schema["definitions"]})
    for spec in specs.good():
        assert check.is_valid({"subject": {"kind": "Default"}, **spec}), spec
    for subject in specs.SUBJECTS:
        assert check.is_valid({"subject": subject}), subject
    passed = {field for spec, field, _ in specs.bad() if check.is_valid({"subject": {"kind": "Default"}, **spec})}
    # What only the API server calculates; and 0.5, which the chart writes as text.
    amounts = {"spec.guaranteed", "spec.max", "spec.models[0].max", "spec.hours[0].max", "spec.budget.gpuHours"}
    assert passed == amounts | {"spec.hours[0].to", "spec.memory", "spec.idleTimeout", "spec.grace", "spec.models[1]"}
    for subject, field, words in specs.NO_SUBJECTS:
        if words not in (specs.NAMESPACE, specs.HUBLESS):
            assert not check.is_valid({"subject": subject}), (subject, field)


def test_policies_come_before_rights_and_go_after_them() -> None:
    """Only hooks touch the policies: before an installation or upgrade, and after everything else is deleted."""
    objects = chart.render(FULL)
    assert not any(item["kind"].startswith("ValidatingAdmission") for item in objects)
    events = {
        item["metadata"]["name"]: item["metadata"]["annotations"]["helm.sh/hook"]
        for item in objects
        if item["kind"] == "Job"
    }
    assert events == {
        "jupyter-gpu-hook-apply": "pre-install,pre-upgrade,pre-rollback",
        "jupyter-gpu-hook-remove": "post-delete",
    }
    for item in objects:
        if chart.is_hook(item) and item["kind"] != "Job":
            policy = item["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert set(policy.split(",")) == {"before-hook-creation", "hook-succeeded", "hook-failed"}


def test_each_policy_names_its_version() -> None:
    """The mark by which the hook knows that this version is in force changes with the policy."""
    one, other = (chart.hook_files({"policies": {"breakGlassGroup": group}}) for group in ("a", "b"))
    policies = [name for name in one if name.startswith("validatingadmissionpolicies.")]
    assert len(policies) == 8
    for name in policies:
        marks = {text.split("jupyter-gpu policy ")[1].split()[0] for text in (one[name], other[name])}
        assert len(marks) == 2
        assert "PROBE" not in one[name]
        bound = yaml.safe_load(one[name.replace("policies.", "policybindings.")])
        assert bound["spec"] == {
            "policyName": yaml.safe_load(one[name])["metadata"]["name"],
            "validationActions": ["Deny"],
        }


@WORLDS
def test_kube_scheduler_understands_its_configuration(values: dict[str, Any], tmp_path: Path) -> None:
    """The real one reads it strictly, and places no pod with a slot without the extender's answer."""
    objects = chart.render(values)
    text = chart.find(objects, "ConfigMap", "jupyter-gpu-kube-scheduler")["data"]["configuration.yaml"]
    _write_secret(chart.find(objects, "Secret", "jupyter-gpu-extender-client"), tmp_path)
    text = text.replace("/etc/jupyter-gpu/tls", str(tmp_path))
    file, read = tmp_path / "configuration.yaml", tmp_path / "read.yaml"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig()))
    body = yaml.safe_load(text)
    file.write_text(json.dumps({**body, "clientConnection": {"kubeconfig": str(kubeconfig)}}))
    run(binaries.path("kube-scheduler"), "--config", file, "--write-config-to", read, "--secure-port", "0")
    seen = yaml.safe_load(read.read_text())
    assert seen["percentageOfNodesToScore"] == 100
    (extender,) = seen["extenders"]
    assert not extender.get("ignorable")
    assert extender["nodeCacheCapable"]
    assert extender["bindVerb"] == "bind"
    assert extender["preemptVerb"] == "preempt"
    assert extender["managedResources"] == [{"name": "jupyter-gpu.io/slot"}]
    assert seen["leaderElection"]["leaderElect"] == (values in (REAL, SIMULATED))  # of two replicas one works
    assert seen["leaderElection"]["resourceNamespace"] == "jupyter-gpu"
    assert extender["urlPrefix"] == (
        "https://jupyter-gpu-scheduler.jupyter-gpu.svc" if values in (REAL, SIMULATED) else "https://10.96.0.99"
    )


def test_certificates_prove_both_sides(tmp_path: Path) -> None:
    """One authority, whose key is discarded, signs both; the server's is for the Service's name and address."""
    objects = chart.render(FULL)
    server, client = tmp_path / "server", tmp_path / "client"
    _write_secret(chart.find(objects, "Secret", "jupyter-gpu-extender"), server)
    _write_secret(chart.find(objects, "Secret", "jupyter-gpu-extender-client"), client)
    assert (server / "ca.crt").read_text() == (client / "ca.crt").read_text()
    for folder in (server, client):
        run("openssl", "verify", "-CAfile", folder / "ca.crt", "-purpose", f"ssl{folder.name}", folder / "tls.crt")
    names = run("openssl", "x509", "-in", server / "tls.crt", "-noout", "-ext", "subjectAltName")
    assert "DNS:jupyter-gpu-scheduler.jupyter-gpu.svc," in names
    assert "IP Address:10.96.0.99" in names
    assert "jupyter-gpu-kube-scheduler" in run("openssl", "x509", "-in", client / "tls.crt", "-noout", "-subject")


def test_own_certificates_are_used() -> None:
    """No certificate is generated then."""
    objects = chart.render({"certificates": {"serverSecret": "mine", "clientSecret": "theirs"}})
    assert not any(item["kind"] == "Secret" for item in objects)
    used = {
        volume["secret"]["secretName"]
        for item in _pods(objects)
        for volume in item["spec"]["volumes"]
        if "secret" in volume
    }
    assert used == {"mine", "theirs"}


def _write_secret(secret: dict[str, Any], folder: Path) -> None:
    """Write a secret as it is mounted."""
    folder.mkdir(exist_ok=True)
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    for key, text in secret["data"].items():
        (folder / key).write_bytes(base64.b64decode(text))


def _kubeconfig() -> dict[str, Any]:
    """Return the kubeconfig of a server that is never called."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "none", "user": {"token": "none"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "current-context": "none",
    }


def _subjects(objects: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for item in objects:
        yield from item.get("subjects", ())


def _pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the `part` and `spec` of every pod that can be created."""
    for item in objects:
        if item["kind"] in ("Deployment", "DaemonSet", "Job"):
            template = item["spec"]["template"]
            yield {"part": template["metadata"]["labels"]["app.kubernetes.io/component"], "spec": template["spec"]}
        if item["kind"] == "ConfigMap" and "cleaner.json" in item["data"]:
            yield {"part": "cleaner", "spec": json.loads(item["data"]["cleaner.json"])["spec"]}
