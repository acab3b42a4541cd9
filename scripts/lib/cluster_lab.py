"""JupyterLab in a pod of a test cluster, for the demo and `scripts/cluster lab`."""

import json
import re
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

from scripts.lib.lab import QUIET, Lab, LabError
from tests.cluster.testbed import Cluster, ClusterError, binaries, temporary_cluster, until
from tests.deploy import product

EXAMPLE = product.ROOT / "deploy" / "examples" / "notebook.yaml"
NAMESPACE, NAME, ACCOUNT = "default", "notebook", "notebook"
SECONDS = 180
"""Seconds for the pod to start and to answer: a small machine is busy with a whole cluster."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """The address of the notebook."""

    url: str
    token: str


def open_notebook(cluster: Cluster, files: Mapping[str, str], progress: Progress) -> Address:
    """Install the product and start the example's notebook with these files. Raises ClusterError or LabError."""
    progress("Building the container images (minutes the first time)")
    images = product.load(cluster, "notebook")
    progress("Installing the chart")
    product.install(cluster, notebooks={"namespaces": [{"namespace": NAMESPACE, "serviceAccounts": [ACCOUNT]}]})
    progress("Starting the notebook's pod")
    token = secrets.token_urlsafe(16)
    objects = [_files("notebook-files", files), _files("notebook-settings", _settings())]
    objects += [_adapted(each, images["notebook"].reference, token) for each in yaml.safe_load_all(EXAMPLE.read_text())]
    cluster.kubectl(
        *("apply", "--namespace", NAMESPACE, "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    )
    until(lambda: _ready(cluster), SECONDS, "the notebook's pod to be ready", every=0.2)
    found = Address(f"http://{_pod(cluster)['status']['podIP']}:8888/", token)
    until(lambda: _answers(found), SECONDS, "the notebook's server to know its GPUs", every=0.2)
    return found


@contextmanager
def running(folder: Path, files: Mapping[str, str]) -> Iterator[Lab]:
    """Run a cluster with the notebook in it until the end of the block. Raises LabError."""
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    try:
        progress("Making a Kubernetes cluster with two nodes")
        with temporary_cluster(nodes=2) as cluster:
            found = open_notebook(cluster, files, progress)
            log = folder / "pod.log"
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE]
            words = [str(binaries.path("kubectl")), *flags, "logs", "--follow", f"deployment/{NAME}"]
            with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as follower:
                try:
                    yield Lab(found.url, found.token, follower.pid, folder, log)
                finally:
                    follower.terminate()
            progress("Removing the cluster")
    except ClusterError as error:
        raise LabError(str(error)) from error


def _adapted(body: dict[str, Any], image: str, token: str) -> dict[str, Any]:
    """Return an object of the example, changed for a test cluster: image, token, files."""
    if body["kind"] != "Deployment":
        return body
    pod = body["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container.update(image=image, imagePullPolicy="Never")
    own = {"JUPYTER_TOKEN": token, "JUPYTERLAB_SETTINGS_DIR": "/tmp/settings"}
    container["env"] = [each for each in container.get("env", []) if each["name"] not in own]
    container["env"] += [{"name": name, "value": value} for name, value in own.items()]
    copy = "cp /files/* . && mkdir -p /tmp/settings && cp -rL /settings/. /tmp/settings"
    words = container.get("args") or container.get("command") or []
    container["command"] = ["sh", "-c", f'{copy} && exec "$@"', "sh"]
    lab = ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--LabApp.expose_app_in_browser=True"]
    container["args"] = [*lab, *(word for word in words if str(word).startswith("--Gpu"))]
    container.setdefault("volumeMounts", []).extend(
        [{"name": "files", "mountPath": "/files"}, {"name": "settings", "mountPath": "/settings"}]
    )
    items = [{"key": _key(path), "path": path} for path in _settings()]
    pod.setdefault("volumes", []).extend(
        [
            {"name": "files", "configMap": {"name": "notebook-files"}},
            {"name": "settings", "configMap": {"name": "notebook-settings", "items": items}},
        ]
    )
    return body


def _files(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    data = {_key(path): text for path, text in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _key(path: str) -> str:
    """Return the name of a file in a ConfigMap, which has neither slashes nor most other signs."""
    return re.sub(r"[^\w.-]", "-", path)


def _settings() -> dict[str, str]:
    """Return settings of JupyterLab by path: no questions and no external requests, as on one machine."""
    return {f"{plugin}.jupyterlab-settings": json.dumps(values) for plugin, values in QUIET.items()}


def _pod(cluster: Cluster) -> dict[str, Any]:
    words = ("get", "pods", "--namespace", NAMESPACE, "--selector", f"app={NAME}", "--output", "json")
    found: list[dict[str, Any]] = json.loads(cluster.kubectl(*words))["items"]
    if not found:
        raise ClusterError("The notebook's Deployment has made no pod yet.")
    return found[-1]


def _ready(cluster: Cluster) -> bool:
    conditions = _pod(cluster)["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _answers(found: Address) -> bool:
    """Tell whether the server has found the GPUs of its node."""
    lab = Lab(found.url, found.token, 0, Path(), Path())
    with suppress(urllib.error.URLError, OSError, ValueError):
        return bool(lab.json("jupyter-gpu/api/v1/status")["total"])
    return False


def main(cluster: Cluster) -> int:
    """Run `scripts/cluster lab`: the notebook stays as long as the cluster does."""
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    text = (product.ROOT / "binder" / "demo.ipynb").read_text()
    found = open_notebook(cluster, {"demo.ipynb": text}, progress)
    print(f"\nJupyterLab is here:\n\n    {found.url}lab/tree/demo.ipynb?token={found.token}\n")
    return 0
