"""The demo's hub: three users, a page of GPU limits, and servers in pods of a test cluster. Used by `demo.py`."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib import pod_files
from scripts.lib.cluster_lab import ACCOUNT, Progress, notebooks
from tests.cluster.testbed import Cluster, binaries
from tests.cluster.whole import hub
from tests.cluster.whole.hub import ServicePlan
from tests.cluster.whole.world import Product
from tests.deploy import product

NAMESPACE = "users"
"""Namespace of the users' pods, and so the hub's name."""
TEMPLATES = product.ROOT / "deploy" / "examples" / "templates"
CONFIG = """
c.JupyterHub.pid_file = {pid!r}
c.JupyterHub.cleanup_servers = False  # their cluster is removed
c.JupyterHub.redirect_to_server = False
c.JupyterHub.template_paths = [{templates!r}]
c.JupyterHub.load_groups = {{"ml": {{"users": ["ann", "bob"], "properties": {{}}}}}}
c.Authenticator.admin_users = {{"root"}}
c.DummyAuthenticator.password = {password!r}
c.KubeSpawner.default_url = "/lab/tree/demo.ipynb"
c.KubeSpawner.cmd = {command!r}
c.KubeSpawner.args = ["--GpuExtension.limits_url=services/gpu/", "--LabApp.expose_app_in_browser=True"]
c.KubeSpawner.environment = beside("environment", {environment!r})
c.KubeSpawner.volumes = beside("volumes", {{each["name"]: each for each in {volumes!r}}})
c.KubeSpawner.volume_mounts = beside("volume_mounts", {{each["name"]: each for each in {mounts!r}}})
"""


def plan(cluster: Cluster) -> ServicePlan:
    """Make the namespaces, the servers' account and the Secret, which the chart expects."""
    for name in (product.NAMESPACE, NAMESPACE):
        cluster.namespace(name)
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "--namespace", NAMESPACE)
    return hub.plan(cluster, NAMESPACE)


def values(planned: ServicePlan, grace: str) -> dict[str, Any]:
    """Return values of the chart; ``grace``: how long GPUs above a lowered limit are kept."""
    account = {"namespace": NAMESPACE, "serviceAccount": hub.ACCOUNT, "notebookNamespaces": [NAMESPACE]}
    default = {"subject": {"kind": "Default"}, "grace": grace}
    servers = notebooks({"namespace": NAMESPACE, "serviceAccounts": [ACCOUNT]})
    page = {**planned.values, "settings": {"mirrorSeconds": 1}}
    return {"hub": page, "hubs": [account], "notebooks": servers, "limits": {"objects": [default]}}


@dataclass(frozen=True)
class Hub:
    """A running hub."""

    address: str
    password: str
    """Password of all users."""
    cluster: Cluster
    folder: Path

    @property
    def introduction(self) -> str:
        """Return where the hub is, its users, and what to try."""
        return f"""JupyterHub is here; Ctrl-C ends it:

    {self.address}/hub/home

Its users are ann and bob of group ml, and the administrator root; the password of each is {self.password}
As root, open GPU limits in the menu Services, and give group ml four GPUs, and ann two.
As ann, in a private window, start a server, and watch where the slider in the panel GPUs ends.
"""

    @property
    def pid(self) -> int:
        """Process of the hub, a child of this one."""
        return int((self.folder / "hub.pid").read_text())

    def environment(self) -> dict[str, str]:
        """Return what the script for the browser needs beside this process's environment."""
        own = {
            "HUB_ADDRESS": self.address,
            "HUB_NAMESPACE": NAMESPACE,
            "HUB_PASSWORD": self.password,
            "HUB_PID": str(self.pid),
            "HUB_SERVICE": f"--namespace={product.NAMESPACE} deployment/{hub.SERVICE}",
            "KUBECTL": str(binaries.path("kubectl")),
        }
        return {**os.environ, **self.cluster.environment, **own}

    def logs(self) -> str:
        """Return the ends of the logs of the hub and of the product."""
        own = (self.folder / "hub.log").read_text(errors="replace")[-4000:]
        return f"{own}\n{Product(self.cluster).logs()}"


@contextmanager
def running(
    planned: ServicePlan, image: str, folder: Path, files: Mapping[str, str], progress: Progress
) -> Iterator[Hub]:
    """Run the hub until the end of the block; ``files`` are in the home of each user. The chart is installed."""
    cluster, password = planned.cluster, secrets.token_urlsafe(9)
    progress("Starting a hub with the users ann, bob and root")
    pod_files.write(cluster, NAMESPACE, files)
    folder.mkdir()
    own = CONFIG.format(
        pid=str(folder / "hub.pid"),
        templates=str(TEMPLATES),
        password=password,
        command=pod_files.command("jupyterhub-singleuser"),
        environment=pod_files.ENVIRONMENT,
        volumes=pod_files.volumes(),
        mounts=pod_files.MOUNTS,
    )
    with hub.running(cluster, NAMESPACE, folder, image, planned.config() + own, port=planned.port) as address:
        yield Hub(address, password, cluster, folder)
