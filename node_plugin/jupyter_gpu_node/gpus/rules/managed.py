"""The managed GPUs of a node, and those of them that another plugin gives away, too. Pure.

The other GPUs belong to NVIDIA's device plugin, its DRA driver or none. The kubelet reports their holders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jupyter_gpu.model.gpu import AMD, NVIDIA, Device, Gpu

from .instances import Instances

MOST_INDEX = 1023
NO_BUSES: Mapping[str, str] = MappingProxyType({})
_REPLICA = re.compile(r"::\d+")  # of NVIDIA's device plugin, where it gives one GPU to several
_INDEX = re.compile(r"(?:gpu-)?(\d{1,4})(?:-mig-[0-9a-z.-]+)?")  # an instance is named after its GPU by the DRA driver
_MINOR = re.compile(r"gpu-(\d{1,4})(?:-mig-[0-9a-z.-]+)?|nvidia(\d{1,4})(?:/(?:gi|vgpu)\d+)*")  # the same; GKE
_MAJOR = 195
_AMD = "amd.com"
_BUS = re.compile(
    r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7](?:-slice-\d+)?"
)  # AMD's device plugin; a part of time
_INSTANCE = "MIG-"
_OF_GPU = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+")  # an instance under drivers before 470; now: MIG- and a uuid


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of one node's managed GPUs. A GPU named by any of the three is ours; where none is set, all are."""

    uuids: tuple[str, ...] | None = None
    indexes: tuple[int, ...] | None = None
    models: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= index <= MOST_INDEX for index in self.indexes or ()):
            raise ValueError(f"'indexes' must be numbers from 0 to {MOST_INDEX}.")
        if any(not text.strip() for text in (*(self.uuids or ()), *(self.models or ()))):
            raise ValueError("A uuid or model is empty: it would name nothing.")

    def includes(self, gpu: Gpu) -> bool:
        """Tell whether that GPU is ours."""
        if self.uuids is None and self.indexes is None and self.models is None:
            return True
        models = {_plain(model) for model in self.models or ()}
        return gpu.uuid in (self.uuids or ()) or gpu.index in (self.indexes or ()) or _plain(gpu.model) in models


@dataclass(frozen=True, slots=True)
class Managed(Choice):
    """The choice for all nodes, and choices that replace it on single nodes."""

    nodes: Mapping[str, Choice] = field(default_factory=dict)

    def on(self, node: str) -> Choice:
        """Return the choice that holds on that node."""
        return self.nodes.get(node, self)


def _plain(model: str) -> str:
    """Normalize a model: ``NVIDIA A100-SXM4-80GB`` and the label ``NVIDIA-A100-SXM4-80GB`` are the same."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Given:
    """Devices that the kubelet has given to a container for another resource or driver."""

    pod: str
    """Namespace and name."""
    source: str
    """Name of the resource, or of the DRA driver."""
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondOwner:
    """The other owner of a GPU that is ours."""

    given: Given
    device: str
    """Name of the GPU, or of its part, in the kubelet's answer."""
    certain: bool = True
    """False: an instance whose GPU the driver does not report, or a GPU of AMD's by another name than the PCI bus;
    it may be this one.
    """

    @property
    def instance(self) -> bool:
        """Whether it is a part of the GPU (MIG)."""
        return self.device.startswith(_INSTANCE) or "-mig-" in self.device or "/gi" in self.device


def second_owners(
    gpus: Iterable[Gpu], given: Iterable[Given], instances: Instances, buses: Mapping[str, str] = NO_BUSES
) -> dict[str, SecondOwner]:
    """Return, by uuid, those of ``gpus``, ours, that another plugin or driver has given to a pod, or may have.

    A pod with an instance of a GPU has its device node open, too. An unknown instance may be of any GPU but those that
    the driver says are whole. ``buses``: PCI addresses of AMD's GPUs by uuid, by which AMD's device plugin names them.
    """
    known = tuple(gpus)
    certain: dict[str, SecondOwner] = {}
    possible: dict[str, SecondOwner] = {}
    for one in given:
        for device in one.devices:
            for gpu in known:
                match _names(gpu, device, one.source, instances, buses):
                    case True:
                        certain.setdefault(gpu.uuid, SecondOwner(one, device))
                    case None:
                        possible.setdefault(gpu.uuid, SecondOwner(one, device, certain=False))
    return {**possible, **certain}


def _names(gpu: Gpu, device: str, source: str, instances: Instances, buses: Mapping[str, str]) -> bool | None:
    """Tell whether ``device`` is ``gpu`` or a part of it; None: it may be, as nothing says which GPU it is."""
    if gpu.vendor == AMD and _AMD in source:
        bus, named = buses.get(gpu.uuid), _BUS.fullmatch(device.lower())
        return named[1] == bus if named and bus else None
    if _unknown(device, instances):
        return False if gpu.vendor == AMD or gpu.uuid in instances.whole else None
    return _is(gpu, device, source, instances)


def unknown_instances(given: Iterable[Given], instances: Instances) -> bool:
    """Tell whether an instance was given away whose GPU is not known."""
    return any(_unknown(device, instances) for one in given for device in one.devices)


def _is(gpu: Gpu, device: str, source: str, instances: Instances) -> bool:
    """Tell whether ``device`` is ``gpu``, or a part of it: by uuid, and NVIDIA's also by number.

    A number is an index for its device plugin and for older versions of its DRA driver, that of the device node for
    newer ones and for GKE's device plugin. Where it can be both, both are meant.
    """
    name = _OF_GPU.sub(r"\1", _without_replica(device))
    if gpu.uuid in (name, instances.gpus.get(name)):
        return True
    if "nvidia.com" not in source or gpu.vendor != NVIDIA:
        return False
    index, minor = _INDEX.fullmatch(name), _MINOR.fullmatch(name)
    if index and gpu.index == int(index[1]):
        return True
    return bool(minor and gpu.device and gpu.device == Device(_MAJOR, int(minor[1] or minor[2])))


def _unknown(device: str, instances: Instances) -> bool:
    name = _without_replica(device)
    return name.startswith(_INSTANCE) and not _OF_GPU.fullmatch(name) and name not in instances.gpus


def _without_replica(device: str) -> str:
    return _REPLICA.sub("", device)
