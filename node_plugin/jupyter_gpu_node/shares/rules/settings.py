"""Settings of time sharing as administrators write them: for all GPUs, for those of a node, and for one GPU. Pure.

`gpu_settings` says what follows for a GPU. A Jupyter server needs only these, and must start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Layer = Mapping[str, Mapping[str, Any]]
"""Differences by section."""


class ShareSettings(NamedTuple):
    """All settings of time sharing."""

    enforce: bool = True
    """Whether containers that are created from now on get the gate."""
    part_memory: bool = False
    """A share never gets more of a GPU's memory than of its time, whatever its user asks for."""
    base: Layer = MappingProxyType({})
    nodes: Mapping[str, Layer] = MappingProxyType({})
    gpus: Mapping[str, Layer] = MappingProxyType({})
