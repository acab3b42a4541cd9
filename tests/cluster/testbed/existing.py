"""A cluster that exists already, such as a real one: whether tests may use it, and what they may do with it.

A KUBECONFIG in somebody's shell may be of a cluster that people work with. So nothing is touched without a word that
names it, what tests make lies in namespaces of their own, and a cluster that has the product already is refused.
"""

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.testbed import binaries, state
from tests.cluster.testbed.cluster import Cluster
from tests.cluster.testbed.commands import SECONDS, ClusterError, CommandFailed, run

ALLOWED = "JUPYTER_GPU_TEST_ON_EXISTING"
"""The name of the context of KUBECONFIG that tests may use: the word without which they use none."""
IMAGES = "JUPYTER_GPU_IMAGES"
"""Registry, folder and tag of the product's images, as registry/folder:tag."""
OWN = "needs a cluster of its own"
NODES = 2
"""So many nodes get simulated GPUs."""
OURS = {"app.kubernetes.io/managed-by": "jupyter-gpu-tests"}
"""Label of the namespaces that tests made."""
CLUSTER_WIDE = (
    "validatingadmissionpolicybindings,validatingadmissionpolicies,clusterrolebindings,clusterroles,nodes,"
    "customresourcedefinitions"
)
"""Kinds of what is in no namespace, in the order in which it goes. Nodes with a label of the tests are no machines."""
PRODUCT = "jupyter-gpu"
"""Name of the release and of its namespace."""


@dataclass(frozen=True)
class Choice:
    """The choice of the cluster for the tests."""

    context: str = ""
    """Context of KUBECONFIG; empty: tests make a cluster of their own."""
    why: str = ""
    """Words about the choice."""


def choose(environment: Mapping[str, str], current: Callable[[], str], answers: Callable[[], bool]) -> Choice:
    """By KUBECONFIG, the word that allows it, the current context, and whether its API server answers."""
    allowed = environment.get(ALLOWED, "")
    if not environment.get("KUBECONFIG"):
        return Choice(why=f"{ALLOWED} is set, but KUBECONFIG is not: tests make their own cluster." if allowed else "")
    if not allowed:
        return Choice(why=f"KUBECONFIG is left alone: tests make their own cluster ({ALLOWED}=CONTEXT would allow it).")
    context = current()
    if allowed != context:
        why = f"{ALLOWED} allows {allowed!r}, and the current context of KUBECONFIG is {context!r}"
        return Choice(why=f"{why}: tests make their own cluster.")
    if not answers():
        return Choice(why=f"The cluster of {context!r} does not answer: tests make their own cluster.")
    return Choice(context, f"Tests use the existing cluster of {context!r}; what cannot be done there is not run.")


@cache
def choice() -> Choice:
    """Return the choice of this process."""

    def current() -> str:
        with suppress(ClusterError):
            return _kubectl("config", "current-context").strip()
        return ""

    def answers() -> bool:
        with suppress(ClusterError):
            return _kubectl("get", "--raw=/readyz", "--request-timeout=20s").strip() == "ok"
        return False

    return choose(os.environ, current, answers)


def _kubectl(*words: str) -> str:
    return run(binaries.path("kubectl"), *words)


class Existing(Cluster):
    """The cluster of a context. What only a cluster of one's own can do raises ClusterError."""

    def __init__(self, context: str, folder: Path) -> None:
        self.name = context
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        words = ("config", "view", f"--context={context}", "--minify", "--flatten", "--raw", "--output=json")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(_kubectl(*words))

    def __getattr__(self, name: str) -> Any:
        raise ClusterError(f"{name}: {OWN}.")

    def _facts(self) -> dict[str, int | str]:
        raise ClusterError(f"This {OWN}.")

    def kubectl(
        self, *words: str | Path, stdin: str | None = None, config: Path | None = None, seconds: float = SECONDS
    ) -> str:
        """Return what kubectl prints. Raises ClusterError (CommandFailed)."""
        flags = ("--kubeconfig", config or self.kubeconfig, "--cache-dir", self.folder / "kubectl-cache")
        return run(binaries.path("kubectl"), *flags, *words, stdin=stdin, seconds=seconds)

    @property
    def _described(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]
        return found

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of the API server."""
        server = urlsplit(self._described["server"])
        return server.hostname or "", server.port or 443

    @property
    def ca(self) -> bytes:
        """Return the file of the authority that signed the API server's certificate.

        Raises ClusterError where the kubeconfig does not name it.
        """
        if "certificate-authority-data" not in self._described:
            raise ClusterError("KUBECONFIG does not say who signs the certificate of the API server.")
        return base64.b64decode(self._described["certificate-authority-data"])

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of the first nodes that take any pod. Raises ClusterError where there are too few."""
        return self._chosen_nodes

    @cached_property
    def _chosen_nodes(self) -> tuple[str, ...]:
        found = json.loads(self.kubectl("get", "nodes", "--output", "json"))["items"]
        names = sorted(node["metadata"]["name"] for node in found if _takes_pods(node))
        if len(names) < NODES:
            raise ClusterError(f"Tests need {NODES} nodes that are ready and have no taint; there are {len(names)}.")
        return tuple(names[:NODES])

    @cached_property
    def _free_address(self) -> str:
        """Return the address of a service that is made to get one, and removed."""
        self.namespace(PRODUCT)
        service = ("clusterip", "address", "--tcp=443", f"--namespace={PRODUCT}", "--output=json")
        address = json.loads(self.kubectl("create", "service", *service))["spec"]["clusterIP"]
        self.kubectl("delete", "service", "address", f"--namespace={PRODUCT}")
        return str(address)

    def service_ip(self, number: int) -> str:
        """An address that no service has, whatever the number; the same one each time."""
        return self._free_address

    def namespace(self, name: str) -> None:
        """Make it, unless it is one of the tests' already. Raises ClusterError for a foreign one."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": OURS}}
        try:
            self.kubectl("create", "-f", "-", stdin=json.dumps(body))
        except CommandFailed as error:
            if name not in self._our_namespaces():
                raise ClusterError(f"The cluster has a namespace {name} that tests did not make: {error}") from error

    @property
    def _testbed(self) -> Cluster | None:
        """Return the cluster of the testbed, if `scripts/cluster` made this one."""
        server = self._described["server"]
        for name in state.every():
            with suppress(ClusterError):
                if Cluster(name).plane.url == server:
                    return Cluster(name)
        return None

    def load_image(self, archive: Path, node: str | None = None) -> None:
        """Import it, where `scripts/cluster` made the cluster. Raises ClusterError elsewhere."""
        if (testbed := self._testbed) is None:
            raise ClusterError(f"Where do the nodes find the images of jupyter-gpu? Say it with {IMAGES}.")
        testbed.load_image(archive, node)

    def has_image(self, reference: str, node: str) -> bool:
        """Whether the node has it, as far as can be known here."""
        return self._testbed is not None and self._testbed.has_image(reference, node)

    def _our_namespaces(self) -> list[str]:
        names = self.kubectl("get", "namespaces", "--selector", _label(OURS), "--output", "name")
        return [name.removeprefix("namespace/") for name in names.split()]

    def clear(self) -> None:
        """Remove all that tests made, also those that were killed."""
        ours = self._our_namespaces()
        labels = [_label(OURS)]
        if PRODUCT in ours:
            labels.append(_label({"app.kubernetes.io/name": PRODUCT}))
        if PRODUCT in ours and PRODUCT in self.helm("list", "--all", "--short", "--namespace", PRODUCT).split():
            self.helm("uninstall", PRODUCT, "--namespace", PRODUCT, "--wait")
        for label in labels:
            self.kubectl("delete", CLUSTER_WIDE, "--selector", label, "--wait=true")
        for name in ours:  # also of nodes that are none
            self.kubectl("delete", "pods", "--all", "--namespace", name, "--force", "--grace-period=0", "--wait=true")
        if ours:
            self.kubectl("delete", "namespace", *ours, "--wait=true", seconds=4 * SECONDS)

    def check_clean(self) -> None:
        """Raise ClusterError if the product is in use on this cluster."""
        kinds = "validatingadmissionpolicies,clusterroles,customresourcedefinitions"
        names = self.kubectl("get", kinds, "--output", "name").split()
        found = [name for name in names if "/jupyter-gpu" in name or name.endswith(".jupyter-gpu.io")]
        if found:
            raise ClusterError(
                f"jupyter-gpu is installed on {self.name} already ({found[0]}): tests would change what its notebooks "
                "have. Use a cluster without it."
            )


def _label(wanted: Mapping[str, str]) -> str:
    """Return a label selector for kubectl."""
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def _takes_pods(node: Mapping[str, Any]) -> bool:
    """Whether it is ready, and open to every pod."""
    conditions = node["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not node["spec"].get("taints") and not node["spec"].get("unschedulable")


@contextmanager
def borrowed() -> Iterator[Existing]:
    """The cluster that was chosen, until the end of the block; after it, nothing that tests made is left."""
    with tempfile.TemporaryDirectory(prefix="jg-existing-") as folder:
        cluster = Existing(choice().context, Path(folder))
        cluster.clear()
        cluster.check_clean()
        try:
            yield cluster
        finally:
            cluster.clear()
