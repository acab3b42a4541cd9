"""What makes one place better than another: weights by name, validated.

A score is the weighted mean of what is good about a place, each between 0 and 1:

| attribute         | 1 means                                                                                        |
|-------------------|------------------------------------------------------------------------------------------------|
| ``fragmentation`` | free GPUs stay as useful for the typical mix of wishes (FGD's measure, see `fragmentation`)    |
| ``together``      | the GPUs of the wish share one PCIe switch (0.75: one NVLink island)                           |
| ``preference``    | they are of the model that ``models`` rates highest                                            |
| ``gpu_free``      | all GPU compute of the node is free                                                            |
| ``gpu_memory_free`` | all GPU memory of the node is free                                                           |
| ``cpu_free``      | all CPU of the pod's node is free after it got what it asks for                                |
| ``memory_free``   | all memory is, likewise                                                                        |
| ``disk_free``     | all ephemeral storage is, likewise                                                             |
| ``network_free``  | the network is idle, of the pod's node and of the GPUs'                                        |
| ``local``         | the GPUs are on the pod's own node                                                             |

What is not known counts as one half. A negative weight prefers the opposite: ``gpu_free: -10`` packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jupyter_gpu.model.annotations import Wish

ATTRIBUTES = (
    *("fragmentation", "together", "preference", "gpu_free", "gpu_memory_free"),
    *("cpu_free", "memory_free", "disk_free", "network_free", "local"),
)
"""Names of all weights."""

_COMMON = {"together": 2.0, "preference": 2.0, "network_free": 0.5, "local": 5.0}
PRESETS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "fgd": {**_COMMON, "fragmentation": 10.0, "gpu_free": -0.5, "cpu_free": 0.2, "memory_free": 0.2},
        "pack": {**_COMMON, "fragmentation": 1.0, "gpu_free": -10.0, "gpu_memory_free": -1.0},
        "spread": {**_COMMON, "gpu_free": 10.0, "gpu_memory_free": 1.0, "cpu_free": 3.0, "memory_free": 3.0,
                   "disk_free": 1.0},
    }
)  # fmt: skip
"""The weights of each policy; those of the settings come over them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of wish of the typical mix."""

    wish: Wish
    share: float
    """How often, as part of all."""
    cpu: int = 0
    """Milli of CPU that comes with it."""


TYPICAL = (
    Kind(Wish(250), 0.15),
    Kind(Wish(500), 0.25),
    Kind(Wish(1000), 0.40),
    Kind(Wish(2000), 0.12),
    Kind(Wish(4000), 0.05),
    Kind(Wish(8000), 0.03),
)
"""A mix of notebook wishes, used where the settings tell no other."""


class PolicyError(ValueError):
    """A policy in the settings makes no sense; the message says what to write instead."""


@dataclass(frozen=True)
class Policy:
    """How places are rated. Compared and hashed by identity: make one and keep it."""

    name: str = "fgd"
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS["fgd"])
    """By attribute; those not named weigh nothing."""
    models: Mapping[str, int] = field(default_factory=dict)
    """How much GPUs of a model are preferred, 0 to 10, by words of its name; 5 for those not named."""
    workload: tuple[Kind, ...] = TYPICAL
    """The typical mix of wishes, against which fragmentation is measured."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        """From ``{"name"?, "weights"?, "models"?, "workload"?}``; raises :class:`PolicyError`."""
        raise NotImplementedError
