"""Make the picture of the dashboard: a real cluster, a real Prometheus, every query of the dashboard's own.

    python -m scripts.lib.dashboard docs/images/dashboard.svg      # as root; needs Prometheus (Debian: prometheus)

GPUs are simulated. The panels are drawn by `panels.py`, not by Grafana.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.lib.panels import Series, drawing
from tests.cluster.testbed import Cluster, ports, temporary_cluster, until
from tests.cluster.whole import pods
from tests.deploy import product

DASHBOARD = product.CHART / "files" / "monitoring" / "dashboard.json"
SECONDS = 240
"""Seconds for which pods start, ask, give back and end."""
STEP = 4
PORTS = {"scheduler": 8080, "node": 8081, "workers": 8080}
NAMESPACES = ("physics", "biology")
WORKERS: dict[str, Any] = {"enabled": True, "namespaces": ["physics"], "perPod": 1, "graceSeconds": 30}
"""Pods of physics may have GPUs of the other node, so they have the image of a notebook, which their workers need."""
MACROS = {"$__rate_interval": "30s", "$__range": f"{SECONDS}s"}


def targets(cluster: Cluster) -> list[dict[str, Any]]:
    """Return what the chart's ServiceMonitors find, with the labels that they add."""
    found = []
    for part, port in PORTS.items():
        words = ("get", "pods", "-n", product.NAMESPACE, "-l", f"app.kubernetes.io/component={part}", "-o", "json")
        for pod in json.loads(cluster.kubectl(*words))["items"]:
            node = {"node": pod["spec"]["nodeName"]} if part == "node" else {}
            labels = {"job": f"jupyter-gpu-{part}", "namespace": product.NAMESPACE, **node}
            found.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": labels})
    return found


@contextmanager
def prometheus(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Scrape the programs until the end of the block; yield Prometheus' address."""
    (port,) = ports.free(1)
    address = f"127.0.0.1:{port}"
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "5s"},
        "scrape_configs": [{"job_name": "jupyter-gpu", "honor_labels": True, "static_configs": targets(cluster)}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    files = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        words = ["prometheus", *files, f"--web.listen-address={address}"]
        with subprocess.Popen(words, stdout=output, stderr=output) as process:
            try:
                until(
                    lambda: ask(f"http://{address}", "query", query="sum(up)")[0]["value"][1] != "0", what="Prometheus"
                )
                yield f"http://{address}"
            finally:
                process.terminate()


def ask(url: str, kind: str, **words: str) -> list[dict[str, Any]]:
    """Run one query of Prometheus."""
    with urllib.request.urlopen(f"{url}/api/v1/{kind}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def live(cluster: Cluster, notebook: str) -> None:
    """Let pods of two namespaces, one with the image ``notebook``, ask for GPUs and shares, give back, wait and end."""
    chance = random.Random(7)
    names = [f"notebook-{number}" for number in range(5)]
    for namespace in NAMESPACES:
        until(lambda name=namespace: cluster.kubectl("get", "sa", "default", "-n", name), what=namespace)  # type: ignore[misc]
        image = notebook if namespace in WORKERS["namespaces"] else pods.BUSYBOX
        made = [pods.pod(name, image=image, wants=chance.choice((0, 1, "500m", "250m"))) for name in names]
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=body)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        namespace, name = chance.choice(NAMESPACES), chance.choice(names)
        wish = pods.wish(chance.choice((0, 1, 1, 2, 3, "500m", "250m")))
        words = ("annotate", "--overwrite", "pod", name, f"jupyter-gpu.io/requested={wish}")
        cluster.kubectl("-n", namespace, *words)
        time.sleep(chance.uniform(1, 6))


def gather(url: str, dashboard: dict[str, Any]) -> dict[int, list[Series]]:
    """Return the series of every panel."""
    now = time.time()
    found = {}
    for panel in dashboard["panels"]:
        series = []
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for macro, value in MACROS.items():
                expression = expression.replace(macro, value)
            span = {"start": str(now - SECONDS), "end": str(now), "step": str(STEP)}
            for one in ask(url, "query_range", query=expression, **span):
                labels = one["metric"]
                name = re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), target["legendFormat"])  # noqa: B023
                series.append(
                    Series(name, [(float(at), float(value)) for at, value in one["values"] if value != "NaN"])
                )
        found[panel["id"]] = [one for one in series if one.points]
    return found


def main(place: Path) -> None:
    """Run the command."""
    dashboard = json.loads(DASHBOARD.read_text())
    with temporary_cluster(nodes=2) as cluster, tempfile.TemporaryDirectory() as folder:
        for namespace in NAMESPACES:
            cluster.namespace(namespace)
        product.install(cluster, workers=WORKERS)
        notebook = product.load(cluster, "notebook")["notebook"].reference
        with prometheus(cluster, Path(folder)) as url:
            live(cluster, notebook)
            place.write_text(drawing(dashboard, gather(url, dashboard)))
    print(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
