"""The managed GPUs of a node, and those of them that another plugin gives away, too. Pure.

The other GPUs belong to NVIDIA's device plugin, its DRA driver or none. The kubelet reports their holders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jupyter_gpu.model.gpu import Gpu

MOST_INDEX = 1023
_REPLICA = re.compile(r"::\d+")  # of NVIDIA's device plugin, where it gives one GPU to several
_NUMBER = re.compile(r"(?:gpu-)?(\d{1,4})(?:-mig-[0-9a-z.-]+)?")  # a part of a GPU is named after it by the DRA driver
_PART = re.compile(
    r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+"
)  # of drivers before 470; later ones name it by nothing of its GPU


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
    """The same for all nodes, and instead of it what is set for one by its name."""

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


def second_owners(gpus: Iterable[Gpu], given: Iterable[Given]) -> dict[str, Given]:
    """Return, by uuid, those of ``gpus``, ours, that another plugin or driver has given to a pod.

    A device is named by its uuid, or by its index (``0``, ``gpu-0``), as NVIDIA's device plugin and DRA driver do. A
    pod with a part of a GPU (MIG) has its device node open, too.
    """
    known = tuple(gpus)
    found: dict[str, Given] = {}
    for one in given:
        for device in one.devices:
            name = _PART.sub(r"\1", _REPLICA.sub("", device))
            number = _NUMBER.fullmatch(name) if "nvidia.com" in one.source else None
            for gpu in known:
                if gpu.uuid == name or (number and gpu.index == int(number[1])):
                    found.setdefault(gpu.uuid, one)
    return found
