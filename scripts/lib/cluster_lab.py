"""JupyterLab in a pod of a test cluster, for the demo and `scripts/cluster lab`."""

import json
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.lib import pod_files
from scripts.lib.lab import Lab
from tests.cluster.testbed import Cluster, ClusterError, binaries, until
from tests.deploy import product

EXAMPLE = product.ROOT / "deploy" / "examples" / "notebook.yaml"
NAMESPACE, NAME, ACCOUNT = "default", "notebook", "notebook"
SECONDS = 180
"""Seconds for the pod to start and to answer: a small machine is busy with a whole cluster."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """The namespace of a notebook, and its node."""

    namespace: str = NAMESPACE
    node: str = ""
    """Empty: any."""


ANYWHERE = Place()


@dataclass(frozen=True)
class Address:
    """The address of the notebook."""

    url: str
    token: str


def install(cluster: Cluster, progress: Progress, **values: Any) -> str:
    """Install the product with these values beside those for a test cluster; return the notebook's image.

    Raises ClusterError.
    """
    progress("Building the container images (minutes the first time)")
    found = product.load(cluster, "notebook", *product.programs(values))
    progress("Installing the chart")
    product.install(cluster, **values)
    return found["notebook"].reference


def open_notebook(
    cluster: Cluster, image: str, files: Mapping[str, str], progress: Progress, place: Place = ANYWHERE
) -> Address:
    """Start the example's notebook with these files. Raises ClusterError."""
    progress(f"Starting the notebook's pod{f' on {place.node}' if place.node else ''}")
    token = secrets.token_urlsafe(16)
    pod_files.write(cluster, place.namespace, files)
    objects = [_adapted(each, image, token, place.node) for each in yaml.safe_load_all(EXAMPLE.read_text())]
    cluster.kubectl(
        *("apply", "--namespace", place.namespace, "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    )
    until(lambda: _ready(cluster, place.namespace), SECONDS, "the notebook's pod to be ready", every=0.2)
    found = Address(f"http://{_pod(cluster, place.namespace)['status']['podIP']}:8888/", token)
    until(lambda: _answers(found), SECONDS, "the notebook's server to know its GPUs", every=0.2)
    return found


@contextmanager
def running(
    cluster: Cluster,
    image: str,
    folder: Path,
    files: Mapping[str, str],
    progress: Progress,
    place: Place = ANYWHERE,
) -> Iterator[Lab]:
    """Run the notebook until the end of the block. Raises ClusterError."""
    found = open_notebook(cluster, image, files, progress, place)
    log = folder / f"pod-{place.namespace}.log"
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", place.namespace]
    words = [str(binaries.path("kubectl")), *flags, "logs", "--follow", f"deployment/{NAME}"]
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as follower:
        try:
            yield Lab(found.url, found.token, follower.pid, folder, log)
        finally:
            follower.terminate()


def _adapted(body: dict[str, Any], image: str, token: str, node: str) -> dict[str, Any]:
    """Return an object of the example, changed for a test cluster: image, token, files, and its node (empty: any)."""
    if body["kind"] != "Deployment":
        return body
    pod = body["spec"]["template"]["spec"]
    if node:
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    (container,) = pod["containers"]
    container.update(image=image, imagePullPolicy="Never")
    own = {"JUPYTER_TOKEN": token, **pod_files.ENVIRONMENT}
    container["env"] = [each for each in container.get("env", []) if each["name"] not in own]
    container["env"] += [{"name": name, "value": value} for name, value in own.items()]
    words = container.get("args") or container.get("command") or []
    container["command"] = pod_files.command()
    lab = ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--LabApp.expose_app_in_browser=True"]
    container["args"] = [*lab, *(word for word in words if str(word).startswith("--Gpu"))]
    container.setdefault("volumeMounts", []).extend(pod_files.MOUNTS)
    pod.setdefault("volumes", []).extend(pod_files.volumes())
    return body


def _pod(cluster: Cluster, namespace: str) -> dict[str, Any]:
    words = ("get", "pods", "--namespace", namespace, "--selector", f"app={NAME}", "--output", "json")
    found: list[dict[str, Any]] = json.loads(cluster.kubectl(*words))["items"]
    if not found:
        raise ClusterError("The notebook's Deployment has made no pod yet.")
    return found[-1]


def _ready(cluster: Cluster, namespace: str) -> bool:
    conditions = _pod(cluster, namespace)["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _answers(found: Address) -> bool:
    """Tell whether the server has found the GPUs of its node."""
    lab = Lab(found.url, found.token, 0, Path(), Path())
    with suppress(urllib.error.URLError, OSError, ValueError):
        return bool(lab.json("jupyter-gpu/api/v1/status")["total"])
    return False


def progress_line() -> Progress:
    """Return a function that prints a line of progress, with the seconds since now."""
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    return progress


def notebooks(*more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of the chart that lets the notebook, and ``more``, ask for GPUs."""
    return {"namespaces": [{"namespace": NAMESPACE, "serviceAccounts": [ACCOUNT]}, *more]}


def main(cluster: Cluster) -> int:
    """Run `scripts/cluster lab`: the notebook stays as long as the cluster does."""
    progress = progress_line()
    image = install(cluster, progress, notebooks=notebooks())
    text = (product.ROOT / "binder" / "demo.ipynb").read_text()
    found = open_notebook(cluster, image, {"demo.ipynb": text}, progress)
    print(f"\nJupyterLab is here:\n\n    {found.url}lab/tree/demo.ipynb?token={found.token}\n")
    return 0
