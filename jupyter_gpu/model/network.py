"""The use of a node's uplink: a coarse number that rides in the ``inventory`` annotation. Pure.

The inventory is a list of GPUs, so each item carries it: ``"network": 0.3``, from 0 (idle) to 1 (full), in steps of
0.1 so that it is rarely written. It is of the network over which that GPU is reached; of one node with several, the
busiest counts. A program that does not know the field keeps it; where it is missing or makes no sense, the use is not
known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .gpu import Gpu

NETWORK = "network"
"""Key in each item of the inventory."""
STEPS = 10
"""Between idle and full."""


def with_network(gpus: Iterable[Gpu], use: float | None) -> tuple[Gpu, ...]:
    """Return ``gpus`` as the inventory has them, with the use of the node's uplink, 0 to 1; ``None``: not known.

    It is rounded to steps of 0.1; what lies outside counts as idle or full.
    """
    known = {} if use is None else {NETWORK: round(max(0.0, min(1.0, use)) * STEPS) / STEPS}
    return tuple(
        replace(gpu, extra={**{key: value for key, value in gpu.extra.items() if key != NETWORK}, **known})
        for gpu in gpus
    )


def network_of(gpus: Iterable[Gpu]) -> float | None:
    """Return the use of the busiest uplink in an inventory, 0 to 1; ``None``: it has none that makes sense."""
    found = [use for gpu in gpus if (use := _use(gpu.extra.get(NETWORK))) is not None]
    return max(found, default=None)


def _use(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return float(value)
