"""Settings of the node plugin: one JSON file for all nodes, in which everything has a default, and the environment.

Kubernetes sets ``NODE_NAME``, ``POD_NAME``, ``POD_NAMESPACE`` and ``POD_IP`` for each plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_gpu.common import settings_file
from jupyter_gpu.common.settings_file import SettingsError, bounded, checked
from jupyter_gpu.model import strict
from jupyter_gpu_node.gpus import vendors as known_vendors
from jupyter_gpu_node.gpus.rules.managed import Managed
from jupyter_gpu_node.gpus.rules.vendor import Vendor
from jupyter_gpu_node.holders.rules.known_pods import GPU_OPERATOR
from jupyter_gpu_node.kubelet.rules import slots
from jupyter_gpu_node.shares.rules import gpu_settings
from jupyter_gpu_node.shares.rules.settings import ShareSettings

SLOT = "jupyter-gpu.io/slot"


def _refuse_in_file(_value: Any, key: str) -> str:
    """Refuse a value that differs from node to node, as the file is the same on all."""
    raise strict.FieldError(f"{key!r} cannot be set: it comes from the environment of the pod.", key)


def load(path: Path | None, environment: Mapping[str, str]) -> Settings:
    """Load the settings for this node; raises `SettingsError`."""
    settings = settings_file.read(path, Settings) if path else Settings()
    node = environment.get("NODE_NAME", "")
    if not node:
        raise SettingsError("The name of this node is not known: set the environment variable NODE_NAME.")
    if settings.simulated is not None:
        count, first = settings.simulated.on(node)
        settings = replace(settings, simulated=Simulated(count, first))
    return replace(
        settings,
        node=node,
        namespace=environment.get("POD_NAMESPACE", ""),
        pod=environment.get("POD_NAME", ""),
        pod_ip=environment.get("POD_IP") or "127.0.0.1",
    )


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """Settings of one node that differ from the others."""

    count: int | None = bounded(None, least=0, most=24)
    first_minor: int | None = bounded(None, least=40, most=63)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Simulated GPUs instead of real ones: virtual consoles of the kernel."""

    count: int = bounded(0, least=0, most=24)
    """Number on each node."""
    first_minor: int = bounded(40, least=40, most=63)
    """Minor number of the first one. Nodes that share a machine need numbers of their own."""
    nodes: Mapping[str, SimulatedNode] = field(default_factory=dict)
    """Differences by name of the node."""

    def on(self, node: str) -> tuple[int, int]:
        """Return the number of simulated GPUs and first minor number of that node; raises `ValueError`."""
        own = self.nodes.get(node, SimulatedNode())
        count = self.count if own.count is None else own.count
        first = self.first_minor if own.first_minor is None else own.first_minor
        if first + count > 64:
            raise ValueError(f"{count} simulated GPUs from minor number {first} on are not possible: 63 is the last.")
        return count, first

    def __post_init__(self) -> None:
        for node in ("", *self.nodes):
            self.on(node)


@dataclass(frozen=True, slots=True)
class Driver:
    """Files of the NVIDIA driver that every container with a slot gets."""

    root: Path = Path("/")
    """Directory on the host below which the driver lies; ``/run/nvidia/driver`` with the GPU operator's driver."""
    seen: Path = Path("/")
    """Path at which this process sees that directory."""
    target: Path = Path("/usr/local/nvidia")
    """Path at which a container sees the driver: libraries in ``lib64``, programs in ``bin``."""
    library_path: str = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    """``LD_LIBRARY_PATH`` of the container, instead of the image's; the pod's own ``env`` wins. Empty: not set."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More environment variables of every container with a slot."""
    devices: Path = Path("/dev")
    """Path at which this process sees the host's ``/dev``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that an administrator can choose."""

    slots: int = bounded(64, least=1, most=1024)
    """Containers of this node whose GPUs can be changed."""
    resource: str = SLOT
    kubelet: Path = Path("/var/lib/kubelet")
    """The kubelet's directory, at the same path on the host and here: its sockets and its checkpoint."""
    state: Path = Path("/var/lib/jupyter-gpu")
    """Directory that outlives a restart of the node, at the same path on the host and here."""
    run: Path = Path("/run/jupyter-gpu")
    """Directory of the pods' sockets, at the same path on the host and here."""
    pins: Path = Path("/sys/fs/bpf/jupyter-gpu")
    """Directory in which programs are pinned (bpffs)."""
    simulated: Simulated | None = None
    """None: the node's real GPUs."""
    vendors: tuple[Vendor, ...] = checked(known_vendors.read, (known_vendors.NVIDIA,))
    """Vendors of the real GPUs, by name in the file. What a vendor's GPUs are opened by is denied on all nodes."""
    without_gpus: bool = False
    """Whether nodes that have no GPU offer slots, too: pods there can use GPUs of other nodes."""
    managed: Managed = field(default_factory=Managed)
    """Choice of the GPUs that this plugin manages; the others are left to other plugins."""
    driver: Driver = field(default_factory=Driver)
    cgroup: Path | None = None
    """Path at which this process sees the host's ``/sys/fs/cgroup``; None: where the kernel says."""
    system_holders: tuple[str, ...] = ("nvidia-persiste", "nv-hostengine", "nv-fabricmanage")
    """Names of programs outside every pod that may have GPUs open, as the kernel cuts them (15 characters)."""
    system_namespaces: tuple[str, ...] = ("kube-system", "gpu-operator", "nvidia-gpu-operator")
    """Namespaces whose pods may have GPUs open, such as those of a metrics exporter: only administrators may make pods
    there."""
    system_labels: tuple[str, ...] = GPU_OPERATOR
    """Labels (``key=value``) of pods of any namespace that may have GPUs open, if they are masters of the node anyhow
    (`known_pods`)."""
    audit_seconds: float = bounded(5.0, least=0, most=3600)
    """Time between two scans for processes that have GPUs open; 0: never."""
    open_seconds: float = bounded(5.0, least=0, most=3600)
    """Time between two checks of which of its GPUs a pod has open, and uses; 0: never. The results of two checks in a
    row count. With more than 14 seconds, use between two checks may be missed: the driver remembers no more."""
    rest_seconds: float = bounded(60.0, least=0.5, most=3600)
    """Time after which an open GPU that did nothing counts as idle."""
    inventory_seconds: float = bounded(10.0, least=0.1, most=3600)
    """Time between two inventories of the GPUs."""
    use_seconds: float = bounded(300.0, least=0, most=3600)
    """Time over which the use of the node's CPU, memory and disk is averaged, for choices between nodes; 0: it is not
    told. It is told at most once in twice that time."""
    reconcile_seconds: float = bounded(30.0, least=0.1, most=3600)
    """Time between two comparisons of all slots with the kubelet and the API server."""
    shares: ShareSettings = field(default_factory=ShareSettings, metadata={"read": gpu_settings.read})
    """Settings of time sharing."""
    port: int = bounded(8081, least=0, most=65535)
    """TCP port of metrics and probes; 0: one that is free."""
    metrics: bool = True
    """Whether metrics are served on it, to any client that reaches it."""
    kubeconfig: Path | None = None
    """Configuration for reaching the API server; None: as a pod does."""
    node: str = checked(_refuse_in_file, "")
    """Name of this node."""
    namespace: str = checked(_refuse_in_file, "")
    """Namespace of this plugin's pod."""
    pod: str = checked(_refuse_in_file, "")
    """Name of this plugin's pod."""
    pod_ip: str = checked(_refuse_in_file, "")
    """Address of this plugin's pod."""

    def __post_init__(self) -> None:
        for label in self.system_labels:
            if not all(label.partition("=")):
                example = GPU_OPERATOR[0]
                raise ValueError(f"{label!r} in 'systemLabels' must be a label and its value, such as {example!r}.")
        if self.resource.count("/") != 1 or not all(self.resource.split("/")):
            raise ValueError(f"'resource' must be a name with a domain, such as {SLOT!r}.")

    @property
    def plugins(self) -> Path:
        """Directory of the kubelet's and the plugins' sockets."""
        return self.kubelet / "device-plugins"

    @property
    def kubelet_socket(self) -> Path:
        """Socket at which plugins register."""
        return self.plugins / "kubelet.sock"

    @property
    def plugin_socket(self) -> Path:
        """Socket at which the kubelet reaches this plugin."""
        return self.plugins / "jupyter-gpu-slot.sock"

    @property
    def kubelet_checkpoint(self) -> Path:
        """The kubelet's own record of devices and their owners."""
        return self.plugins / "kubelet_internal_checkpoint"

    @property
    def pod_resources_socket(self) -> Path:
        """Socket at which the kubelet lists the holders of devices."""
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def record(self) -> Path:
        """The node plugin's own record of slots and their owners."""
        return self.state / "slots.json"

    @property
    def violations(self) -> Path:
        """File of the processes stopped on shared GPUs, of strikes, and of the shares taken away."""
        return self.state / "violations.json"

    @property
    def pins_note(self) -> Path:
        """File that names the directory of the pins; like them, it does not outlive the machine."""
        return self.run / "pins.json"

    @property
    def own_gpus(self) -> Path:
        """File of the GPUs that this node ever had."""
        return self.state / "gpus.json"

    @property
    def served(self) -> Path:
        """File of the shares that the arbiter served last."""
        return self.state / "served.json"

    @property
    def lock(self) -> Path:
        """Lock that the one node plugin of this node holds."""
        return self.state / "plugin.lock"

    @property
    def device_directory(self) -> Path:
        """Directory of the device nodes of simulated GPUs."""
        return self.state / "devices"

    @property
    def slot_names(self) -> tuple[str, ...]:
        """All slots of this node."""
        return slots.names(self.slots)

    def slot_directory(self, slot: str) -> Path:
        """Return the host's directory that the container with that slot sees as ``/run/jupyter-gpu``."""
        return self.run / "slots" / slot
