"""Amounts of CPU, memory and slots in Pods and Nodes, as whole numbers. Pure.

What can't be read counts as nothing: kube-scheduler decides whether a pod fits by CPU and memory; here they only affect
scores. The kubelet counts slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from jupyter_gpu.kube.rules.objects import SLOT

RESOURCES = ("cpu", "memory", "ephemeral-storage", SLOT)
"""Resources that placement considers beside GPUs; cpu in thousandths, memory and storage in bytes."""

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    **{letter: Decimal(1000**power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
_MOST = 2**63 - 1
QUANTITY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
"""The quantities that settings may have."""


@lru_cache(maxsize=4096)
def quantity(text: str, scale: int = 1) -> int:
    """Return a Kubernetes quantity (``500m``, ``2Gi``, ``1e3``) times ``scale``, rounded up; 0 where it is none."""
    number, factor = text, Decimal(1)
    for suffix in (text[-2:], text[-1:]):
        if suffix in _SUFFIXES:
            number, factor = text[: -len(suffix)], _SUFFIXES[suffix]
            break
    try:
        value = Decimal(number)
        if not value.is_finite() or abs(value.adjusted()) > 30:
            return 0
        amount = value * factor * scale
    except InvalidOperation:
        return 0
    return min(_MOST, max(0, int(amount.to_integral_value(ROUND_CEILING))))


def amounts(quantities: Any) -> dict[str, int]:
    """Return the resources of one ``requests``, ``limits`` or ``allocatable`` that matter here."""
    if not isinstance(quantities, Mapping):
        return {}
    found = {name: quantities[name] for name in RESOURCES if name in quantities}
    return {name: quantity(str(value), 1000 if name == "cpu" else 1) for name, value in found.items()}


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return the resources that a pod asks for, as kube-scheduler counts them.

    The larger of all containers together and of the largest init container; an init container that keeps running
    (``restartPolicy: Always``) counts with both.
    """
    spec = _map(pod, "spec")
    running = _sum(_requests(container) for container in _list(spec, "containers"))
    largest: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in _list(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, _requests(container)))
            largest = _larger(largest, sidecars)
        else:
            largest = _larger(largest, _sum((sidecars, _requests(container))))
    return _sum((_larger(_sum((running, sidecars)), largest), amounts(spec.get("overhead"))))


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    """Return a container's requests; a limit counts as a request where there is none."""
    resources = _map(container, "resources")
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}


def _map(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
