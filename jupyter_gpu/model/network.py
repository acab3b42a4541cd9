"""The use and the speed of a node's uplink: numbers that ride in the ``inventory`` annotation. Pure.

The inventory is a list of GPUs, so each item carries it: ``"network": 0.3``, from 0 (idle) to 1 (full), in steps of
0.1 so that it is rarely written. It is of the network over which that GPU is reached; of one node with several, the
busiest counts. ``"speed": 100000`` is what the uplink can carry, in Mbit/s. A program that does not know the fields
keeps them; where one is missing or makes no sense, it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .gpu import Gpu

NETWORK = "network"
"""Key in each item of the inventory."""
SPEED = "speed"
"""Key in each item of the inventory."""
MAX_SPEED = 10**8
"""Mbit/s: what is above makes no sense."""
STEPS = 10
"""Between idle and full."""


def with_network(gpus: Iterable[Gpu], use: float | None) -> tuple[Gpu, ...]:
    """Return ``gpus`` as the inventory has them, with the use of the node's uplink, 0 to 1; ``None``: not known.

    It is rounded to steps of 0.1; what lies outside counts as idle or full.
    """
    return _with(gpus, NETWORK, None if use is None else round(max(0.0, min(1.0, use)) * STEPS) / STEPS)


def with_speed(gpus: Iterable[Gpu], speed: int | None) -> tuple[Gpu, ...]:
    """Return ``gpus`` as the inventory has them, with the speed of the node's uplink in Mbit/s; ``None``: not known."""
    return _with(gpus, SPEED, speed)


def _with(gpus: Iterable[Gpu], key: str, value: float | None) -> tuple[Gpu, ...]:
    known = {} if value is None else {key: value}
    return tuple(
        replace(gpu, extra={**{name: item for name, item in gpu.extra.items() if name != key}, **known}) for gpu in gpus
    )


def network_of(gpus: Iterable[Gpu]) -> float | None:
    """Return the use of the busiest uplink in an inventory, 0 to 1; ``None``: it has none that makes sense."""
    found = [use for gpu in gpus if (use := _use(gpu.extra.get(NETWORK))) is not None]
    return max(found, default=None)


def speed_of(gpus: Iterable[Gpu]) -> int | None:
    """Return the speed of the fastest uplink in an inventory, in Mbit/s; ``None``: it has none that makes sense."""
    return max((speed for gpu in gpus if (speed := _speed(gpu.extra.get(SPEED)))), default=None)


def _speed(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_SPEED:
        return None
    return value


def _use(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return float(value)
