"""One node: containerd and a kubelet in mount, network and host name namespaces of their own.

In its mount namespace a node has its own /run, /var/lib, /var/log and /sys/fs/bpf, so that the paths which programs on
a node take for granted (/var/lib/kubelet/device-plugins, /run/jupyter-gpu, pins in /sys/fs/bpf) are different ones on
each node of this machine, and none of them is this machine's own. All else is this machine's file system.
"""

import itertools
import shutil
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.testbed import binaries, cgroups, kubeconfig, node_config, shims
from tests.cluster.testbed.commands import SECONDS, ClusterError, CommandFailed, Hopeless, run, until
from tests.cluster.testbed.daemons import Daemons
from tests.cluster.testbed.network import Network
from tests.cluster.testbed.pki import Authority
from tests.cluster.testbed.processes import Process, end_of

PARTS = ("namespace", "containerd", "kubelet")
"""In the order in which they start."""
OWN = ("run", "var/lib", "var/log")
"""Folders that are the node's own."""
KUBELET_TRIES = 5
HEALTH_PORT = 10248
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))

NAMESPACE = """
set -eu
echo "$1" >/proc/sys/kernel/hostname; folder=$2; shift 2
for own in "$@"; do mount --bind "$folder/$own" "/$own"; done
mount -t bpf bpf /sys/fs/bpf
mount --make-rshared /
touch "$folder/run/.ready"
exec sleep infinity
"""


class Node(Daemons):
    """A node of the cluster whose files are below `state`; `number` counts from 1."""

    def __init__(self, state: Path, network: Network, number: int, cgroup: str, url: str) -> None:
        super().__init__(state, PARTS, f"@node{number}")
        self.name = f"node{number}"
        self.number = number
        self.network = network
        self.address = network.node(number)
        self.cgroup = cgroup
        """Name of its group in every hierarchy of control groups; the pods are below it."""
        self.folder = state / "nodes" / self.name
        self.socket = self.folder / "run" / "containerd.sock"
        self._url = url

    def path(self, inside: str | Path) -> Path:
        """Return the path on this machine of a file of the node, such as /var/lib/kubelet/config.yaml."""
        for own in OWN:
            if (text := str(inside)) == f"/{own}" or text.startswith(f"/{own}/"):
                return self.folder / text[1:]
        return Path(inside)

    def run(self, *words: str | Path, stdin: str | None = None, seconds: float = SECONDS) -> str:
        """Run a command on the node as root, and return what it prints. Raises ClusterError."""
        return run(*self.inside(), *words, stdin=stdin, seconds=seconds)

    def start(self, part: str) -> None:
        """Start the part, and what it needs, unless it runs."""
        if self.running(part):
            return
        if part == "namespace":
            self._start_namespace()
            return
        self.start("namespace")
        if part == "containerd":
            self._spawn(part, ["containerd", "--config", self.folder / "containerd.toml"])
            until(self._containerd_answers, SECONDS, f"containerd of {self.name} to answer")
            return
        self.start("containerd")
        tries = itertools.count(1)
        until(lambda: self._kubelet_answers(tries), SECONDS, f"the kubelet of {self.name} to answer")

    def power_off(self) -> None:
        """End all that runs on the node, at once. Its files stay, but what no machine keeps: /run, groups, pins."""
        for part in ("kubelet", "containerd"):
            self.kill(part)
        shims.end(self.folder)
        cgroups.remove(self.cgroup)

    def load_image(self, archive: Path) -> None:
        """Import the images of an archive (of `docker save` or OCI) for pods of this node."""
        self.start("containerd")
        self._ctr("images", "import", archive, seconds=600)

    def images(self) -> tuple[str, ...]:
        """Names of the images that it has."""
        return tuple(self._ctr("images", "list", "--quiet").split())

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Nothing reaches the node and nothing leaves it, until the end of the block: no connection ends by a word."""
        link = self.network.link(self.number)
        run("ip", "link", "set", link, "down")
        try:
            yield
        finally:
            run("ip", "link", "set", link, "up")

    @contextmanager
    def without_image(self, reference: str) -> Iterator[None]:
        """The node does not know an image by its name, until the end of the block."""
        aside = f"aside.example/{self.name}:1"
        self._ctr("images", "tag", "--force", reference, aside)
        self._ctr("images", "remove", reference)
        try:
            yield
        finally:
            self._ctr("images", "tag", aside, reference)
            self._ctr("images", "remove", aside)

    def prepare(self) -> None:
        """Write what the programs of the node read."""
        self._make_folders()
        authority = Authority(self._state / "pki")
        user = authority.issue(self.name, f"system:node:{self.name}", ["system:nodes"], [self.name, self.address])
        kubeconfig.write(self.folder / "kubeconfig", self._url, authority.identity.certificate, user)
        facts = node_config.Facts(
            name=self.name,
            address=self.address,
            pods=self.network.pods(self.number),
            range=self.network.range,
            gateway=self.network.host,
            cgroup=f"/{self.cgroup}",
            folder=self.folder,
            socket=self.socket,
            certificate=user.certificate,
            key=user.key,
            authority=authority.identity.certificate,
            snapshotter=_snapshotter(self.folder),
            plugins=cni_plugins(),
        )
        (self.folder / "containerd.toml").write_text(node_config.containerd(facts))
        (self.folder / "kubelet.json").write_text(node_config.kubelet(facts))
        (self.folder / "cni" / "10-bridge.conflist").write_text(node_config.cni(facts))

    def _make_folders(self) -> None:
        for own in (*OWN, "cni", "var/lib/kubelet", "var/lib/jupyter-gpu", "run/jupyter-gpu", "run/lock"):
            (self.folder / own).mkdir(parents=True, exist_ok=True)

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--v=2",
        ]

    def _start_namespace(self) -> None:
        """Make the namespaces; or, where a process of the node still lives in them, only forget their holder."""
        if self._survivor() is not None:
            return
        if (self.folder / "run").exists():
            shutil.rmtree(self.folder / "run")  # as after a restart of a machine
        self._make_folders()
        ready = self.folder / "run" / ".ready"
        cgroups.make(self.cgroup)
        words: list[str | Path] = [
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-c",
            NAMESPACE,
            "sh",
        ]
        process = self._spawn("namespace", [*words, self.name, self.folder, *OWN])

        def made() -> bool:
            if not process.alive:
                raise Hopeless(f"The namespaces of {self.name} cannot be made:\n{end_of(self.log('namespace'))}")
            return ready.exists()

        until(made, SECONDS, f"the namespaces of {self.name}", every=0.01)
        self.network.join(self.number, process.pid)

    def _spawn(self, part: str, words: Sequence[str | Path]) -> Process:
        """Start a program in the node's control group and, but for the one that makes them, its namespaces."""
        group = cgroups.daemons(self.cgroup, make_it=True) / "cgroup.procs"
        inside = () if part == "namespace" else self.inside()
        return super()._spawn(part, ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', group, *inside, *words])

    def inside(self) -> tuple[str, ...]:
        """Words before a command that is to run on the node."""
        pid = self._survivor()
        if pid is None:
            raise ClusterError(f"{self.name} does not run. Start it with `scripts/cluster up`.")
        return ("nsenter", "-t", str(pid), "--mount", "--net", "--uts")

    def _survivor(self) -> int | None:
        """A process that lives in the node's namespaces: its holder, or whatever outlived that."""
        holder = Process.read(self.record("namespace"))
        if holder is not None and holder.alive:
            return holder.pid
        with suppress(OSError):
            for pid in (cgroups.daemons(self.cgroup) / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    if Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
                        return int(pid)
        return None

    def _kubelet_answers(self, tries: Iterator[int]) -> bool:
        """Whether it is healthy. It is started again where it ended, as the kubelet does while containerd begins."""
        if not self.running("kubelet"):
            if next(tries) > KUBELET_TRIES:
                raise Hopeless(f"The kubelet of {self.name} ends again and again:\n{end_of(self.log('kubelet'))}")
            self._spawn("kubelet", [binaries.path("kubelet"), *self._kubelet_flags()])
        with urllib.request.urlopen(f"http://{self.address}:{HEALTH_PORT}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)

    def _containerd_answers(self) -> bool:
        if not self.running("containerd"):
            raise Hopeless(f"containerd of {self.name} ended at once:\n{end_of(self.log('containerd'))}")
        return bool(self._ctr("version"))

    def _ctr(self, *words: str | Path, seconds: float = SECONDS) -> str:
        return run("ctr", "--address", self.socket, "--namespace", "k8s.io", *words, seconds=seconds)


def cni_plugins() -> Path:
    """Folder of the network plugins. Raises ClusterError."""
    for folder in PLUGINS:
        if (folder / "bridge").exists() and (folder / "host-local").exists():
            return folder
    raise ClusterError(
        "The container network plugins are not installed: the package containernetworking-plugins has them."
    )


def _snapshotter(folder: Path) -> str:
    """Layers of images lie upon each other, which needs a file system that is not itself made so."""
    try:
        kind = run("stat", "--file-system", "--format=%T", folder).strip()
    except CommandFailed:
        return "native"
    return "native" if kind in ("overlayfs", "fuseblk") else "overlayfs"
