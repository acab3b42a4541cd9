"""Alerts and dashboards query metrics that the programs export, by labels that these have."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jupyterhub import metrics as hub_metrics
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu.common import settings_file
from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.service import WorkerState
from jupyter_gpu_node import settings as node_settings
from jupyter_gpu_node.agent.metrics import Metrics as NodeMetrics
from jupyter_gpu_node.agent.sharing.share_metrics import ShareSample
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.notebooks import RemoteFigures
from jupyter_gpu_scheduler.settings import SchedulerSettings
from jupyter_gpu_scheduler.usage_counters import UsageCounters
from jupyter_gpu_scheduler.workers.metrics import WorkerMetrics
from jupyter_gpu_scheduler.workers.settings import WorkerSettings
from tests.builders import cluster, inventory, pod
from tests.deploy import chart
from tests.node.agent.test_share_metrics import SHARE
from tests.scheduler.workers.pods import RUNNING, notebook, worker
from tests.scheduler.workers.pods import part as named

ON: dict[str, Any] = {
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
    }
}
WORKERS: dict[str, Any] = {"workers": {"enabled": True, "namespaces": ["people"]}}
OUTSIDE = {"node", "job", "namespace", "pod", "instance"}
"""Labels that Prometheus adds to what it scrapes."""
GRAFANA = {"$__rate_interval": "5m", "$__range": "6h"}
WORDS = {"sum", "max", "min", "by", "rate", "increase", "topk", "absent", "histogram_quantile", "or", "and", "unless"}
WORDS |= {"count", "sort_desc", "on", "group_left"}
LISTS = r"\b(?:by|on|group_left)\s*\(([^)]*)\)"
GROUP_INFO = "jupyterhub_user_group_info"
"""The series of jupyterhub-groups-exporter that names the groups of a user."""


def alerts() -> list[dict[str, Any]]:
    """Return the alerts as rendered."""
    (group,) = chart.find(chart.render(ON), "PrometheusRule", "jupyter-gpu")["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards as rendered, by file."""
    held = chart.find(chart.render(ON), "ConfigMap", "jupyter-gpu-dashboard")
    return {name: json.loads(text) for name, text in held["data"].items()}


def panels() -> Iterator[dict[str, Any]]:
    """Yield the panels of all dashboards."""
    for one in dashboards().values():
        yield from one["panels"]


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield of every alert and panel its name, its query, and the labels that its texts use."""
    for alert in alerts():
        yield alert["alert"], alert["expr"], json.dumps(alert["annotations"])
    for panel in panels():
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for macro, value in GRAFANA.items():
                expression = expression.replace(macro, value)
            yield panel["title"], expression, target["legendFormat"].replace("{{", "{{ $labels.")


@cache
def told() -> dict[str, frozenset[str]]:
    """Return the names and labels of all series that both programs export, as their own code renders them."""
    snapshot = cluster({"a": inventory(2)}, [pod("p", wants=1, ticket=1, node="a"), pod("q", has={0: 500}, node="a")])
    counters = UsageCounters(snapshot)
    counters.begin()
    scheduler = SchedulerMetrics(snapshot, counters.text)
    scheduler.decisions.labels("grow").inc()
    scheduler.answers.labels("filter", "fits").inc()
    scheduler.answer_seconds.labels("filter").observe(0.1)
    scheduler.writes.labels("allocated", "done").inc()
    scheduler.watch_troubles.labels("pods").inc()
    scheduler.follow_notebooks(lambda: RemoteFigures(parts=2, allocated=1500, owed=500, waiting=1))
    node = NodeMetrics(lambda: tuple(inventory(1)))
    where = PodRef("uid", "people", "notebook")
    node.attached(where, Attached(1, (GpuShare("GPU-1", 500),), (DrainingShare("GPU-2", 1000),)))
    node.shares.source = lambda: (ShareSample(where, replace(SHARE, memory_limit=1), 1),)
    node.orphans.labels("slot").inc()
    found: dict[str, set[str]] = {"up": {"job", "instance"}}
    for gauge in (hub_metrics.RUNNING_SERVERS,):
        found[gauge._name] = set(gauge._labelnames)
    found[GROUP_INFO] = {"namespace", "username", "username_safe", "username_escaped", "usergroup"}
    workers, made = WorkerMetrics(), worker(named(), RUNNING)
    workers.follow(lambda: (notebook(),))
    workers.created(made.namespace, made.name)
    workers.seen(made)
    for text in (scheduler.text(), generate_latest(node.registry), workers.text()):
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return {name: frozenset(labels) for name, labels in found.items()}


def names(expression: str) -> set[str]:
    """Return the series of a query."""
    bare = re.sub(r'"[^"]*"', "", re.sub(r"\{[^}]*\}|" + LISTS + r"|\[[^\]]*\]", "", expression))
    return set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", bare)) - WORDS


def labels_of(expression: str) -> set[str]:
    """Return the labels that its series can have, including those that Prometheus adds."""
    return set().union(*(told().get(name, ()) for name in names(expression))) | OUTSIDE


def remaining(expression: str) -> set[str]:
    """Return the labels that its result can have."""
    if kept := re.match(r"(?:sum|max)\s+by\s*\(([^)]*)\)", expression):
        return {label.strip() for label in kept[1].split(",")}
    return set() if re.match(r"(?:sum|max|absent)\s*\(", expression) else labels_of(expression)


def test_exported_series_are_found() -> None:
    """Otherwise this file would compare with nothing."""
    assert len(told()) > 40
    assert told()["jupyter_gpu_scheduler_gpus"] == {"node", "state"}
    assert told()["jupyter_gpu_share_used_seconds_total"] == {"namespace", "pod", "gpu", "kind"}
    assert told()["jupyter_gpu_draining_milli"] == {"namespace", "pod", "gpu"}


def test_every_query_asks_for_existing_series() -> None:
    """Whole names are compared: a counter ends with _total, a histogram has buckets."""
    asked = {name: names(expression) for name, expression, _ in queries()}
    assert len(asked) > 25
    assert set().union(*asked.values()) <= set(told())
    assert all(asked.values())


def test_every_query_uses_existing_labels() -> None:
    """In selectors, in groups, and in texts for people."""
    for name, expression, text in queries():
        for selector in re.findall(r"(\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*[=!]", selector[1])) <= told()[selector[0]] | OUTSIDE, name
        for group in re.findall(LISTS, expression):
            assert {label.strip() for label in group.split(",")} - {""} <= labels_of(expression), name
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= remaining(expression), name


def test_alerts_have_a_summary_and_a_description() -> None:
    """They do so once each, with a severity; what must never happen alerts at once."""
    found = alerts()
    assert len({alert["alert"] for alert in found}) == len(found) > 10
    for alert in found:
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert set(alert["annotations"]) == {"summary", "description"}
    at_once = {alert["alert"] for alert in found if "for" not in alert}
    assert {"JupyterGpuIntruder", "JupyterGpuNotGuarded"} <= at_once


def test_deleted_kind_of_limits_alerts() -> None:
    """Limits that hold without their objects end with the scheduler, so somebody has to act in time."""
    (alert,) = (alert for alert in alerts() if "jupyter_gpu_scheduler_limits_held" in names(alert["expr"]))
    assert (alert["for"], alert["labels"]) == ("1m", {"severity": "warning"})


def test_outcomes_in_alerts_are_outcomes_of_the_programs() -> None:
    """The code that counts writes each of the values that a selector names."""
    folder = Path(__file__).parents[2] / "scheduler" / "jupyter_gpu_scheduler"
    code = "".join(path.read_text() for path in (*folder.glob("*.py"), folder / "workers" / "rules" / "figures.py"))
    code += "".join(f'"{state.value.lower()}"' for state in WorkerState)
    found = [
        word
        for _, query, _ in queries()
        for words in re.findall(r'(?:outcome|state|reason)!?=~?"([^"]*)"', query)
        for word in words.split("|")
    ]
    assert len(found) > 6
    assert [word for word in found if f'"{word}"' not in code] == []


def row(title: str) -> Iterator[dict[str, Any]]:
    """Yield the panels of a row of the dashboard of GPUs."""
    current = ""
    for panel in dashboards()["jupyter-gpu.json"]["panels"]:
        if panel["type"] == "row":
            current = panel["title"]
        elif current == title:
            yield panel


def test_figures_of_other_nodes_are_shown() -> None:
    """They have a row of their own with all that is exported about them, and the guide explains each."""
    exported = {name for name in told() if re.search("_scheduler_(?:remote_|waiting_notebooks)", name)}
    assert len(exported) == 3
    exported |= {f"jupyter_gpu_workers_{name}" for name in ("told", "seconds_bucket", "refusals_total")}
    assert exported <= set(told())
    shown = [target["expr"] for panel in row("GPUs of other nodes") for target in panel["targets"]]
    assert set().union(*map(names, shown)) == exported
    guide = (Path(__file__).parents[2] / "docs" / "other-nodes.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(jupyter_gpu_(?:scheduler|workers)_\w+)` \|", guide, re.MULTILINE))
    assert explained == {name.removesuffix("_bucket") for name in exported} | {"jupyter_gpu_workers_leading"}


@pytest.mark.parametrize("name", ["jupyter-gpu.json", "jupyter-gpu-use.json"])
def test_dashboard_is_valid_for_grafana(name: str) -> None:
    """Panels lie side by side, each with an id and a data source; Grafana's sidecar finds it by a label."""
    shown = dashboards()[name]
    panels = shown["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert {each["datasource"]["uid"] for each in (panel, *panel["targets"])} == {"${datasource}"}
    variables = [variable["name"] for variable in shown["templating"]["list"]]
    assert variables[0] == "datasource"
    used = set(re.findall(r"\$([a-z]\w*)", json.dumps([panel.get("targets") for panel in panels])))
    assert used == set(variables[1:])
    assert len({one["uid"] for one in dashboards().values()}) == len(dashboards())
    held = chart.find(chart.render(ON), "ConfigMap", "jupyter-gpu-dashboard")["metadata"]
    assert held["labels"]["grafana_dashboard"] == "1"
    assert held["annotations"] == {"grafana_folder": "GPUs"}


def test_scraped_endpoints_are_served() -> None:
    """Each monitor finds a Service, which finds the pods, and its port is theirs."""
    objects = chart.render({**ON, **WORKERS})
    assert not [item for item in chart.render() if item["kind"] in ("ServiceMonitor", "PrometheusRule")]
    assert len([item for item in chart.render(ON) if item["kind"] == "ServiceMonitor"]) == 2, "there are no workers"
    for part, kind in (("scheduler", "Deployment"), ("workers", "Deployment"), ("node", "DaemonSet")):
        monitor = chart.find(objects, "ServiceMonitor", f"jupyter-gpu-{part}")
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = (
            item
            for item in objects
            if item["kind"] == "Service" and wanted.items() <= item["metadata"]["labels"].items()
        )
        template = chart.find(objects, kind, f"jupyter-gpu-{part}")["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        (port,) = service["spec"]["ports"]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] == port["name"]
        ports = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
        assert ports[port["targetPort"]] == port["port"]
        jobs = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
        assert jobs == [f"jupyter-gpu-{part}"]
    named = {job for _, query, _ in queries() for job in re.findall(r'job="([^"]*)"', query)}
    assert named <= {"jupyter-gpu-scheduler", "jupyter-gpu-node"}


def test_lists_of_users_and_groups_are_those_of_the_counters() -> None:
    """The variables of the dashboard of use are labels of series that exist."""
    listed = [variable["definition"] for variable in dashboards()["jupyter-gpu-use.json"]["templating"]["list"][1:]]
    assert len(listed) == 3
    for definition in listed:
        series, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", definition).groups()  # type: ignore[union-attr]
        assert label in told()[series]


def test_names_of_users_follow_the_value(tmp_path: Path) -> None:
    """The chart sets how the scheduler names users; by default as the hub does."""
    file = tmp_path / "settings.json"
    for given, users in (({}, "names"), ({"users": "hashed"}, "hashed"), ({"users": "none"}, "none")):
        rendered = chart.render({"metrics": given})
        file.write_text(chart.find(rendered, "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"])
        assert settings_file.read(file, SchedulerSettings).status.users == users


def test_metrics_can_be_switched_off(tmp_path: Path) -> None:
    """The programs get settings for that which they understand, and nothing is left to scrape."""
    file = tmp_path / "settings.json"
    for enabled in (True, False):
        objects = chart.render({"metrics": {**ON["metrics"], "enabled": enabled}, **WORKERS})
        file.write_text(chart.find(objects, "ConfigMap", "jupyter-gpu-scheduler")["data"]["settings.json"])
        assert settings_file.read(file, SchedulerSettings).status.metrics == enabled
        file.write_text(chart.find(objects, "ConfigMap", "jupyter-gpu-node")["data"]["settings.json"])
        assert node_settings.load(file, {"NODE_NAME": "node1"}).metrics == enabled
        file.write_text(chart.find(objects, "ConfigMap", "jupyter-gpu-workers")["data"]["settings.json"])
        assert settings_file.read(file, WorkerSettings).status.metrics == enabled
        assert bool([item for item in objects if item["kind"] == "ServiceMonitor"]) == enabled


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is not installed")
def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    """Its own tool parses the alerts and the panels' queries."""
    recorded = [{"record": f"panel:{index}", "expr": expression} for index, (_, expression, _) in enumerate(queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": [*alerts(), *recorded]}]}))
    done = subprocess.run(["promtool", "check", "rules", file], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
