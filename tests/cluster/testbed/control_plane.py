"""etcd, the API server and, where asked for, the controllers and the scheduler: Kubernetes without nodes.

Needs no root. Everything lies below one folder; the processes outlive the command that started them, until `stop`.
"""

import hashlib
import json
import shutil
import ssl
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.cluster.testbed import binaries, kubeconfig, ports, state
from tests.cluster.testbed.commands import SECONDS, ClusterError, CommandFailed, Hopeless, run, until
from tests.cluster.testbed.daemons import Daemons
from tests.cluster.testbed.pki import Authority
from tests.cluster.testbed.processes import Process, end_of

PARTS = ("etcd", "apiserver", "controller-manager", "scheduler")
"""In the order in which they start."""
USERS = {"controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler"}
TRIES = 3
"""Free ports can be lost to another process before they are used."""


@dataclass(frozen=True)
class Layout:
    """The ports and addresses of a control plane. They stay the same over restarts."""

    host: str = "127.0.0.1"
    port: int = 0
    etcd_port: int = 0
    etcd_peer_port: int = 0
    services: str = "10.96.0.0/16"
    """Range of service addresses."""
    service: str = "10.96.0.1"
    """Address of the service `kubernetes`, the first of the range."""
    advertise: str = "192.0.2.1"
    """Address for pods; without nodes one that is reserved (RFC 5737)."""
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More flags of a part, such as {"apiserver": ["--feature-gates=…"]}."""

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return f"https://{self.host}:{self.port}"


class ControlPlane(Daemons):
    """The control plane whose files are below `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PARTS)
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.kubeconfig = folder / "admin.kubeconfig"
        """Kubeconfig of a cluster administrator (group system:masters)."""
        self._layout_file = folder / "layout.json"
        self._launched: tuple[str, ...] = ()
        self._broken = False

    @property
    def layout(self) -> Layout:
        """Return the ports and addresses. Raises ClusterError if there is no cluster."""
        try:
            return Layout(**json.loads(self._layout_file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(f"There is no cluster in {self.folder}.") from error

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return self.layout.url

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of the API server."""
        return self.layout.host, self.layout.port

    @property
    def ca(self) -> bytes:
        """Return the file of the authority that signed the API server's certificate."""
        return self.authority.identity.certificate.read_bytes()

    def configure(self, part: str, flags: Sequence[str]) -> None:
        """Give a part these flags beside those that it must have, from its next start on."""
        layout = self.layout
        self._write(replace(layout, flags={**layout.flags, part: list(flags)}))

    def lay_out(self, layout: Layout) -> None:
        """Choose what is still open of the ports, and make certificates."""
        port, etcd_port, peer_port = ports.free(3)
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = Layout(
            **{**asdict(layout), "etcd_port": etcd_port, "etcd_peer_port": peer_port, "port": layout.port or port}
        )
        self.authority.make()
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = dict.fromkeys(["127.0.0.1", whole.host, whole.service])
        self.authority.issue("apiserver", "kube-apiserver", ["system:masters"], [*names, *addresses])
        self._write(whole)
        self._kubeconfig(self.kubeconfig, "admin", "admin", ("system:masters",))
        for part, user in USERS.items():
            self._kubeconfig(self.folder / f"{part}.kubeconfig", part, user)

    def _write(self, layout: Layout) -> None:
        scratch = self._layout_file.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(layout)))
        scratch.replace(self._layout_file)

    def launch(self, layout: Layout, parts: Sequence[str] = PARTS) -> None:
        """Lay out and start these parts; with other ports where free ones were taken meanwhile."""
        for attempt in range(1, TRIES + 1):
            self.lay_out(layout)
            try:
                for part in sorted(parts, key=PARTS.index):
                    self.start(part)
                self._launched = tuple(sorted(parts, key=PARTS.index))
                return
            except Hopeless as error:
                if attempt == TRIES or "address already in use" not in str(error):
                    raise
                remove(self.folder, files=False)

    def start(self, part: str) -> None:
        """Start this part unless it runs; the API server is ready when this returns."""
        if self.running(part):
            return
        process = self._spawn(part, self._command(part))
        if part == "apiserver":
            until(lambda: self._ready(process), SECONDS, f"the API server of {self.folder} to be ready")

    def restore(self) -> None:
        """Start what was launched and does not run. What cannot start says why once, and then only that it cannot."""
        if self._broken:
            raise ClusterError(f"The control plane in {self.folder} does not start any more, as was said before.")
        try:
            for part in self._launched:
                self.start(part)
        except ClusterError:
            self._broken = True
            raise

    def kubectl(
        self, *words: str | Path, stdin: str | None = None, config: Path | None = None, seconds: float = SECONDS
    ) -> str:
        """Return what kubectl prints, as administrator or another user. Raises ClusterError (CommandFailed)."""
        flags = ("--kubeconfig", config or self.kubeconfig, "--cache-dir", self.folder / "kubectl-cache")
        return run(binaries.path("kubectl"), *flags, *words, stdin=stdin, seconds=seconds)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Return the kubeconfig of any user, by a certificate; made once for the same user and groups.

        Names have at most 64 characters.
        """
        if too_long := [name for name in (user, *groups) if len(name) > 64]:
            raise ClusterError(f"A certificate cannot name {too_long[0]}: 64 characters at most. Use a token.")
        name = "user-" + hashlib.sha256(json.dumps([user, *groups]).encode()).hexdigest()
        path = self.folder / "users" / f"{name}.kubeconfig"
        return path if path.exists() else self._kubeconfig(path, name, user, groups)

    def namespace(self, name: str) -> None:
        """Make a namespace in which pods can be created at once, also with no controllers that make its account."""
        self._create("namespace", name)
        self._create("serviceaccount", "default", "--namespace", name)

    def _create(self, *words: str) -> None:
        """Nothing where it is there: a controller may be faster."""
        try:
            self.kubectl("create", *words)
        except CommandFailed as error:
            if "already exists" not in error.output:
                raise

    def _kubeconfig(self, path: Path, name: str, user: str, groups: Sequence[str] = ()) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = self.authority.issue(name, user, groups)
        return kubeconfig.write(path, self.url, self.authority.identity.certificate, identity)

    def _ready(self, process: Process) -> bool:
        """Whether the API server answers that it is. Raises Hopeless when it has died."""
        for part, alive in (("apiserver", process.alive), ("etcd", self.running("etcd"))):
            if not alive:
                raise Hopeless(f"{part} ended at once. The end of its log:\n{end_of(self.log(part))}")
        context = ssl.create_default_context(cafile=str(self.authority.identity.certificate))
        with urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)

    def _command(self, part: str) -> list[str | Path]:
        """Program and flags."""
        more = self.layout.flags.get(part, ())
        if part == "etcd":
            return [binaries.path("etcd"), *self._etcd_flags(), *more]
        if part == "apiserver":
            return [binaries.path("kube-apiserver"), *self._apiserver_flags(), *more]
        own = f"--kubeconfig={self.folder / part}.kubeconfig"
        flags = [own, "--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"]
        if part == "controller-manager":
            flags += [
                "--use-service-account-credentials",
                f"--flex-volume-plugin-dir={self.folder / 'volume-plugins'}",  # made where it is missing
                f"--service-account-private-key-file={self.authority.tokens.key}",
                f"--root-ca-file={self.authority.identity.certificate}",
            ]
        return [binaries.path(f"kube-{part}"), *flags, *more]

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.layout.etcd_port, self.layout.etcd_peer_port))
        return [
            "--name=etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}",
            "--unsafe-no-fsync",  # a crash of the machine is not what is tested
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        layout, pki = self.layout, self.authority.folder
        return [
            f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
            f"--bind-address={layout.host}",
            f"--secure-port={layout.port}",
            f"--advertise-address={layout.advertise}",
            f"--endpoint-reconciler-type={'lease' if layout.advertise == layout.service else 'none'}",
            f"--service-cluster-ip-range={layout.services}",
            f"--cert-dir={pki}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={self.authority.identity.certificate}",
            f"--kubelet-certificate-authority={self.authority.identity.certificate}",
            f"--kubelet-client-certificate={pki / 'apiserver.crt'}",
            f"--kubelet-client-key={pki / 'apiserver.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.authority.tokens.certificate}",
            f"--service-account-signing-key-file={self.authority.tokens.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-aggregator-routing",  # webhooks reach the pods of a service with no kube-proxy
            "--allow-privileged",
        ]


@contextmanager
def control_plane(
    parts: Sequence[str] = ("etcd", "apiserver"),
    *,
    folder: Path | None = None,
    flags: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[ControlPlane]:
    """Yield a control plane of these parts, gone at the end of the block with all its files (unless `folder` is given).

    Without the controller manager nothing makes the account `default` of a namespace, which every pod needs:
    `ControlPlane.namespace` does, and it is done here for the namespace `default`.
    """
    remove_abandoned()
    own = folder or state.fresh()
    plane = ControlPlane(own)
    try:
        plane.launch(Layout(flags=flags or {}), parts)
        if "apiserver" in parts and "controller-manager" not in parts:
            plane.namespace("default")
        yield plane
    finally:
        remove(own, files=folder is None)


def remove(folder: Path, *, files: bool = True) -> None:
    """End every process that was recorded below this folder, and remove it."""
    records = list(folder.glob("processes/*.json"))
    for process in filter(None, map(Process.read, records)):
        process.end(grace=0)  # nothing of it is kept, so nothing need be written in order
    for record in records:
        record.unlink(missing_ok=True)
    if files:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove the control planes of processes that were killed before they could."""
    for left in state.abandoned(state.planes()):
        remove(left)
