"""A Kubernetes cluster on this machine: control plane, network and nodes, made, repaired and removed as one.

What there is follows from the cluster's folder alone (control groups and links have its hash in their names), so that
`down` finds everything even after half of it was killed, or never made.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed import (
    binaries,
    cgroups,
    control_plane,
    images,
    network,
    requirements,
    services,
    shims,
    state,
)
from tests.cluster.testbed.commands import SECONDS, ClusterError, run, until
from tests.cluster.testbed.control_plane import ControlPlane, Layout
from tests.cluster.testbed.daemons import Daemons
from tests.cluster.testbed.network import Network
from tests.cluster.testbed.node import Node
from tests.cluster.testbed.services import Services

NODE_PARTS = ("containerd", "kubelet")
Progress = Callable[[str], None]
_numbers = itertools.count(1)


class Cluster:
    """The cluster with this name, whether it runs or not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = state.folder(name)
        self.key = hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]
        self.plane = ControlPlane(self.folder)
        self.kubeconfig = self.plane.kubeconfig
        """Kubeconfig of a cluster administrator."""
        self.kubeconfig_for = self.plane.kubeconfig_for
        self.kubectl = self.plane.kubectl
        self.namespace = self.plane.namespace
        self._file = self.folder / "cluster.json"

    @classmethod
    def create(
        cls,
        name: str,
        nodes: int = 2,
        *,
        flags: Mapping[str, Sequence[str]] | None = None,
        progress: Progress = lambda line: None,
    ) -> "Cluster":
        """Make the cluster, or start what of it does not run; its nodes are ready when this returns.

        `flags` are more flags of parts of the control plane. Raises ClusterError; what was made stays until `down`.
        """
        self = cls(name)
        requirements.check(self.folder)
        if not 1 <= nodes <= network.MOST_NODES:
            raise ClusterError(f"A cluster has 1 to {network.MOST_NODES} nodes, not {nodes}.")
        binaries.ensure(progress=progress)
        with state.alone(self.folder):
            self._lay_out(nodes, flags or {})
            self._up(progress)
        return self

    @property
    def exists(self) -> bool:
        """Whether it was made, and not yet removed."""
        return self._file.exists()

    @property
    def network(self) -> Network:
        """Its addresses. Raises ClusterError where there is no such cluster."""
        return Network(self.key, str(self._facts()["prefix"]))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes. Raises ClusterError where there is no such cluster."""
        facts, url = self._facts(), self.plane.url
        addresses = Network(self.key, str(facts["prefix"]))
        numbers = range(1, int(facts["nodes"]) + 1)
        return tuple(Node(self.folder, addresses, number, f"{self._prefix}node{number}", url) for number in numbers)

    def node(self, name: str) -> Node:
        """One node, such as `node1`. Raises ClusterError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"The cluster {self.name} has no {name}; it has {len(self.nodes)} nodes.")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes that tests use."""
        return tuple(node.name for node in self.nodes)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of everything that can be started and stopped, in the order in which it starts."""
        return (
            *control_plane.PARTS,
            *services.PARTS,
            *(f"{part}@{node.name}" for node in self.nodes for part in NODE_PARTS),
        )

    def start(self, part: str) -> None:
        """Start a part by its name, such as `etcd`, `scheduler`, `containerd@node1` or `kubelet@node1`."""
        owner, name = self._owner(part)
        owner.start(name)

    def stop(self, part: str) -> None:
        """End a part in order. Containers go on without containerd and the kubelet."""
        owner, name = self._owner(part)
        owner.stop(name)

    def kill(self, part: str) -> None:
        """End a part as a crash would (signal 9)."""
        owner, name = self._owner(part)
        owner.kill(name)

    def restart(self, part: str) -> None:
        """Stop and start."""
        self.stop(part)
        self.start(part)

    def running(self, part: str) -> bool:
        """Whether the process of the part is alive."""
        owner, name = self._owner(part)
        return owner.running(name)

    def log(self, part: str) -> Path:
        """Return the log of a part."""
        owner, name = self._owner(part)
        return owner.log(name)

    def load_image(self, archive: Path, node: str | None = None) -> None:
        """Import the images of an archive (of `docker save`, `buildah push` or OCI) on one node or all."""
        if not archive.is_file():
            raise ClusterError(f"There is no archive {archive}.")
        for each in [self.node(node)] if node else self.nodes:
            each.load_image(archive.absolute())

    def has_image(self, reference: str, node: str) -> bool:
        """Whether a node has it already."""
        return reference in self.node(node).images()

    def service_ip(self, number: int) -> str:
        """An address that a service may ask for: 16 to 255 are not given to others."""
        return f"{self.network.prefix}.240.{number}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of programs that use the cluster as administrator."""
        own = {f"HELM_{kind}_HOME": str(self.folder / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {**own, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.folder / "kubectl-cache")}

    def helm(self, *words: str | Path, stdin: str | None = None, seconds: float = 300) -> str:
        """Return what helm prints. Raises ClusterError."""
        return run(binaries.path("helm"), *words, stdin=stdin, seconds=seconds, environment=self.environment)

    def up(self, progress: Progress = lambda line: None) -> None:
        """Start whatever does not run, and wait until all nodes are ready. Raises ClusterError."""
        self._facts()
        with state.alone(self.folder):
            self._up(progress)

    def _up(self, progress: Progress) -> None:
        self.network.up()
        progress("Starting etcd, the API server, the controllers and the scheduler")
        for part in (*control_plane.PARTS, *services.PARTS):
            self.start(part)
        for node in self.nodes:
            progress(f"Starting {node.name}")
            node.prepare()
            node.start("containerd")
            if not set(images.BUILTIN) <= set(node.images()):
                for archive in images.builtin():
                    node.load_image(archive)
            node.start("kubelet")
        progress("Waiting for the nodes")
        until(self._ready, 2 * SECONDS, f"the nodes of {self.name} to be ready", every=0.2)

    def down(self) -> None:
        """Remove all of it, however much there is; done twice is as good as once. Raises ClusterError."""
        with state.alone(self.folder):
            self._clear()
            shutil.rmtree(self.folder)

    def _clear(self) -> None:
        """Remove all but the folder and whose it is."""
        control_plane.remove(self.folder, files=False)
        for group in cgroups.of_prefix(self._prefix):
            cgroups.remove(group)
        shims.end(self.folder)
        network.remove(self.key)
        shims.unmount(self.folder)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != state.owner_file(self.folder):
                path.unlink()

    @property
    def _prefix(self) -> str:
        """Return the prefix of the names of its control groups."""
        return f"jg-{self.name}-{self.key}-"

    def _facts(self) -> dict[str, int | str]:
        try:
            found: dict[str, int | str] = json.loads(self._file.read_text())
        except (OSError, ValueError) as error:
            raise ClusterError(f"There is no cluster {self.name}. Make it with `scripts/cluster up`.") from error
        return found

    def _lay_out(self, nodes: int, flags: Mapping[str, Sequence[str]]) -> None:
        """Choose addresses and bring the bridge up; what was chosen before stays."""
        if self.exists:
            if nodes > int(self._facts()["nodes"]):
                self._write(nodes, str(self._facts()["prefix"]))
            return
        self._clear()  # of an attempt that did not get far enough to go on with
        with network.chosen(self.key) as addresses:
            layout = Layout(
                host=addresses.service,
                port=443,
                services=addresses.services,
                service=addresses.service,
                advertise=addresses.service,
                flags=flags,
            )
            addresses.up()
            self.plane.launch(layout)
            self._write(nodes, addresses.prefix)

    def _write(self, nodes: int, prefix: str) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps({"nodes": nodes, "prefix": prefix}))
        scratch.replace(self._file)

    def _ready(self) -> bool:
        """Whether every node is ready for pods. What was about to end when it was looked at is started here."""
        for part in self.parts:
            self.start(part)
        found = json.loads(self.kubectl("get", "nodes", "--output", "json"))["items"]
        ready = {
            node["metadata"]["name"]
            for node in found
            if not node["spec"].get("taints")
            and any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
        }
        return ready >= {node.name for node in self.nodes}

    def _owner(self, part: str) -> tuple[Daemons, str]:
        name, _, node = part.partition("@")
        if part not in self.parts:
            raise ClusterError(f"The cluster {self.name} has no part {part!r}. Parts are: {', '.join(self.parts)}.")
        if node:
            return self.node(node), name
        return (Services(self.folder, self.network.bridge) if name in services.PARTS else self.plane), name


@contextmanager
def temporary_cluster(nodes: int = 2, *, flags: Mapping[str, Sequence[str]] | None = None) -> Iterator[Cluster]:
    """A cluster for a test: gone at the end of the block, or when the next one is made if this process is killed."""
    remove_abandoned()
    made = Cluster(f"t-{os.getpid()}-{next(_numbers)}")
    made.folder.mkdir(parents=True, exist_ok=True)
    state.own(made.folder)
    try:
        yield Cluster.create(made.name, nodes, flags=flags)
    finally:
        made.down()


def remove_abandoned() -> None:
    """Remove the clusters of processes that were killed before they could."""
    for left in state.abandoned(state.home()):
        if left.name in state.every():
            Cluster(left.name).down()
    control_plane.remove_abandoned()
