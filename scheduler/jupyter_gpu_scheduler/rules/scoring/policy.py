"""Policies for scoring places for pods: validated weights by attribute.

A score is the weighted mean of the ratings of a place, each between 0 and 1:

| attribute         | 1 means                                                                                        |
|-------------------|------------------------------------------------------------------------------------------------|
| ``fragmentation`` | free GPUs stay as useful for the typical mix of wishes (FGD's measure, see `fragmentation`)    |
| ``together``      | the GPUs of the wish share one PCIe switch (0.75: one NVLink island)                           |
| ``preference``    | ``gpus`` or ``models`` rate them highest; a GPU that is ``slow`` counts half                     |
| ``gpu_free``      | all GPUs of the node are free                                                                  |
| ``gpu_compute_free`` | likewise, and all are as fast as the fastest GPU of the cluster                             |
| ``gpu_memory_free`` | all GPU memory of the node is free                                                           |
| ``cpu_free``      | all CPU of the pod's node is free after it got what it asks for                                |
| ``cpu_headroom``  | enough CPU is left for the GPUs that stay free: ``headroom`` cores for each                    |
| ``memory_free``   | all memory is, likewise                                                                        |
| ``disk_free``     | all ephemeral storage is, likewise                                                             |
| ``network_free``  | the network is idle, of the pod's node and of the GPUs'                                        |
| ``switch_speed``  | uplinks are as fast as ``relation.fullSpeed``, of both nodes; only if GPUs of any node will do |
| ``switch_free``   | the uplinks of the switch are idle, of both nodes; likewise                                    |
| ``relation``      | the GPUs are on the pod's own node; less, the farther their node is (see `pairs`)              |
| ``left_for_others`` | the pods that are there and may still grow lose nothing by it (see `expectation`)            |
| ``expected``      | a pod that wants no GPU yet can expect the most later; used for such pods alone                |

A place for a pod that wants no GPU yet is rated by ``expected``, ``preference``, what is left of CPU, memory, disk and
network, and ``fragmentation`` by the CPU that the pod takes: the other attributes are about GPUs that a pod gets, and
``cpu_headroom`` keeps CPU for pods like it. A pod that can never have any GPU is rated by ``cpu_headroom``, too.

What is left of CPU, memory and disk follows from what pods ask for, or from what is really in use where that leaves
less: a node whose CPU is busy is not free. A negative weight, which packs, counts what pods ask for alone.

What is not known counts as one half. A negative weight prefers the opposite: ``gpu_free: -10`` packs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import named
from jupyter_gpu.model.quantity import parse_milli

ATTRIBUTES = (
    *("fragmentation", "together", "preference", "gpu_free", "gpu_compute_free", "gpu_memory_free"),
    *(
        "cpu_free",
        "cpu_headroom",
        "memory_free",
        "disk_free",
        "network_free",
        "switch_speed",
        "switch_free",
        "relation",
        "left_for_others",
        "expected",
    ),
)
"""Names of all weights."""
WITHOUT_WISH = frozenset(
    ("expected", "preference", "fragmentation", "cpu_free", "memory_free", "disk_free", "network_free")
)
"""Attributes that rate a place for a pod that wants no GPU yet."""
WITHOUT_SLOT = WITHOUT_WISH - {"expected", "preference"} | {"cpu_headroom"}
"""Attributes that rate a place for a pod that can never have any GPU."""
WITH_WISH = frozenset(ATTRIBUTES) - {"expected"}
"""Attributes that rate a place for a pod that wants GPUs."""

_COMMON = {
    "together": 2.0, "preference": 2.0, "network_free": 0.5, "relation": 5.0, "left_for_others": 1.0, "expected": 20.0,
}  # fmt: skip
PRESETS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "fgd": {**_COMMON, "fragmentation": 10.0, "cpu_headroom": 0.5, "gpu_free": -0.05, "cpu_free": -0.05},
        "pack": {**_COMMON, "fragmentation": 1.0, "gpu_free": -10.0, "gpu_memory_free": -1.0},
        "spread": {**_COMMON, "gpu_free": 10.0, "gpu_memory_free": 1.0, "cpu_free": 3.0, "memory_free": 3.0,
                   "disk_free": 1.0},
        "source": {"relation": 5.0, "preference": 1.5, "switch_speed": 1.0, "switch_free": 1.0, "gpu_memory_free": 1.0,
                   "gpu_compute_free": 1.0, "cpu_free": 1.0, "disk_free": 0.5, "expected": 20.0},
    }
)  # fmt: skip
"""The weights of each policy; those in the settings replace them one by one."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One kind of wish of the typical mix."""

    wish: Wish | None
    """``None``: a pod that wants no GPU."""
    share: float
    """Frequency, relative to the other kinds."""
    cpu: int = 0
    """Milli of CPU that comes with it."""


TYPICAL = (
    WorkloadKind(Wish(250), 0.15),
    WorkloadKind(Wish(500), 0.25),
    WorkloadKind(Wish(1000), 0.40),
    WorkloadKind(Wish(2000), 0.12),
    WorkloadKind(Wish(4000), 0.05),
    WorkloadKind(Wish(8000), 0.03),
)
"""A mix of notebook wishes, used if the settings have none."""
HEADROOM = 10_000
"""Milli of CPU to keep free for each free GPU: the usual pod with a GPU asks for about as much."""
MAX_UUID = 96
HIGHEST_PRIORITY = 9
"""The highest priority of a GPU."""
MAX_HEADROOM = 256
"""Cores."""
UNKNOWN = 0.5
"""The rating of what is not known."""
MAX_WEIGHT = 1000.0
MAX_KINDS = 256
"""Kinds of wishes in a mix."""


class PolicyError(ValueError):
    """A policy in the settings that can't be used; the message says what to write instead."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Weights and preferences for rating places.

    Compared by identity: make one and keep it, because results computed with it are cached.
    """

    name: str = "fgd"
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS["fgd"])
    """Weights by attribute; those not named weigh nothing."""
    models: Mapping[str, float] = field(default_factory=dict)
    """Preference for GPUs by words of the model's name, 0 to 10; 5 for those not named."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Priority of single GPUs by uuid, 0 to 9, in place of their model's preference."""
    workload: tuple[WorkloadKind, ...] = TYPICAL
    """The typical mix of wishes, against which fragmentation is measured."""
    headroom: int = HEADROOM
    """Milli of CPU to keep free for each free GPU, for ``cpu_headroom``."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        """Read a policy from ``{"name"?, "weights"?, "models"?, "gpus"?, "headroom"?, "workload"?}``.

        Raises `PolicyError`. ``gpus`` has priorities by uuid, ``headroom`` is in cores.
        ``workload`` is a list of ``{"share": 0.4, "gpus": 0.5, "cpu": 2}`` (cores), with the fields of a wish:
        ``model``, ``memory``, ``topology``, ``each``; no ``gpus`` is a pod that wants none.
        """
        _known("policy", settings, ("name", "weights", "models", "gpus", "headroom", "workload"))
        name = settings.get("name", "fgd")
        if not isinstance(name, str) or name not in PRESETS:
            raise PolicyError(f"policy.name is {name!r}; it must be one of {', '.join(sorted(PRESETS))}.")
        own = _numbers("policy.weights", settings.get("weights", {}), -MAX_WEIGHT, MAX_WEIGHT)
        _known("policy.weights", own, ATTRIBUTES)
        models = _numbers("policy.models", settings.get("models", {}), 0, 10)
        gpus = _priorities("policy.gpus", settings.get("gpus", {}))
        cores = _number("policy.headroom", settings.get("headroom", HEADROOM / 1000), 0, MAX_HEADROOM)
        workload = settings.get("workload")
        return cls(
            name,
            MappingProxyType({**PRESETS[name], **own}),
            MappingProxyType(models),
            MappingProxyType(gpus),
            TYPICAL if workload is None else _workload(workload),
            round(cores * 1000),
        )


def preferred(policy: Policy, model: str, priority: int | None = None, *, slow: bool = False) -> float:
    """Return the preference for a GPU of ``model``, 0 to 1; of the words that match, the highest counts.

    ``priority``: of this GPU alone, 0 to `HIGHEST_PRIORITY`; ``slow``: it counts half.
    """
    rating = _of_model(policy, model) if priority is None else priority / HIGHEST_PRIORITY
    return rating / 2 if slow else rating


def _of_model(policy: Policy, model: str) -> float:
    found = [value for words, value in policy.models.items() if named(model, words)]
    return max(found) / 10 if found else UNKNOWN


def _known(what: str, found: object, known: Sequence[str]) -> None:
    if not isinstance(found, Mapping):
        raise PolicyError(f"{what} must be an object with {', '.join(known)}.")
    if unknown := sorted(str(key) for key in found if key not in known):
        raise PolicyError(f"{what} has no {', '.join(unknown)}; it has {', '.join(known)}.")


def _numbers(what: str, found: object, least: float, most: float) -> dict[str, float]:
    if not isinstance(found, Mapping):
        raise PolicyError(f"{what} must be an object of names and numbers.")
    return {str(name): _number(f"{what}.{name}", value, least, most) for name, value in found.items()}


def _number(what: str, value: object, least: float, most: float) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    if not good:
        raise PolicyError(f"{what} is {value!r}; it must be a number from {least:g} to {most:g}.")
    return float(cast("float", value))


def _priorities(what: str, found: object) -> dict[str, int]:
    if not isinstance(found, Mapping):
        raise PolicyError(f"{what} must be an object of uuids and priorities.")
    for uuid, value in found.items():
        if not isinstance(uuid, str) or not 1 <= len(uuid) <= MAX_UUID:
            raise PolicyError(f"{what} names a GPU by {uuid!r}; it must be a uuid of 1 to {MAX_UUID} characters.")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 0 <= value <= HIGHEST_PRIORITY:
            raise PolicyError(f"{what}.{uuid} is {value!r}; it must be a whole number from 0 to {HIGHEST_PRIORITY}.")
    return {str(uuid): int(value) for uuid, value in found.items()}


def _workload(found: object) -> tuple[WorkloadKind, ...]:
    if not isinstance(found, Sequence) or isinstance(found, str) or not 1 <= len(found) <= MAX_KINDS:
        raise PolicyError(f"policy.workload must be a list of 1 to {MAX_KINDS} kinds of wishes.")
    kinds = tuple(_kind(f"policy.workload[{index}]", item) for index, item in enumerate(found))
    if not any(kind.share for kind in kinds):
        raise PolicyError("policy.workload needs a share above 0.")
    return kinds


def _kind(what: str, found: object) -> WorkloadKind:
    _known(what, found, ("share", "gpus", "cpu", "each", "memory", "model", "topology"))
    item = dict(cast("Mapping[str, Any]", found))
    share = _number(f"{what}.share", item.pop("share", None), 0, 1e9)
    cpu = _number(f"{what}.cpu", item.pop("cpu", 0), 0, 1e6)
    try:
        milli = parse_milli(item.pop("gpus", 0))
        wish = Wish.from_fields({"milli": milli, **item})
    except ValueError as error:
        raise PolicyError(f"{what}: {error}") from None
    return WorkloadKind(wish if milli else None, share, round(cpu * 1000))
