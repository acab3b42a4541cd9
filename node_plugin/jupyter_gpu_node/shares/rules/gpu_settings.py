"""Rules for the time shares of one GPU, from the settings (`settings`). Pure.

The settings of one GPU are those for all, then those of its node, then its own, key by key. Every combination that can
occur is checked at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jupyter_gpu.common import settings_file
from jupyter_gpu.model import strict
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties

from .settings import Layer, ShareSettings

T = TypeVar("T")
SECTIONS = ("timing", "elastic", "penalties")
MAX_ENTRIES = 1000
"""Nodes, and GPUs, with settings of their own."""


@dataclass(frozen=True, slots=True)
class GpuRules:
    """The rules of one GPU."""

    timing: Timing = field(default_factory=Timing)
    elastic: Elastic | None = field(default_factory=Elastic)
    """None: shares keep what they were given."""
    penalties: Penalties = field(default_factory=Penalties)


def of(settings: ShareSettings, node: str, gpu: str) -> GpuRules:
    """Return the rules for that GPU."""
    return _rules([settings.base, settings.nodes.get(node, {}), settings.gpus.get(gpu, {})], "shares")


def read(value: Any, key: str) -> ShareSettings:
    """Read the settings file; raises `FieldError`."""
    body = strict.an_object(value, repr(key))
    _known(body, ("enforce", "partMemory", *SECTIONS, "nodes", "gpus"), key)
    found = ShareSettings(
        enforce=strict.boolean(body.get("enforce", True), f"{key}.enforce"),
        part_memory=strict.boolean(body.get("partMemory", False), f"{key}.partMemory"),
        base=_layer({name: body[name] for name in SECTIONS if name in body}, key),
        nodes=_layers(body.get("nodes", {}), f"{key}.nodes"),
        gpus=_layers(body.get("gpus", {}), f"{key}.gpus"),
    )
    _rules([found.base], key)
    for node, layer in found.nodes.items():
        _rules([found.base, layer], f"{key}.nodes.{node}")
    for gpu, layer in found.gpus.items():
        _rules([found.base, layer], f"{key}.gpus.{gpu}")
        for node, outer in found.nodes.items():
            _rules([found.base, outer, layer], f"{key}.gpus.{gpu} on node {node}")
    return found


def _layers(value: Any, key: str) -> Mapping[str, Layer]:
    body = strict.an_object(value, repr(key))
    if len(body) > MAX_ENTRIES:
        raise strict.FieldError(f"{key!r} has more than {MAX_ENTRIES:,} entries.", key)
    return {name: _layer(item, f"{key}.{name}") for name, item in body.items()}


def _layer(value: Any, key: str) -> Layer:
    body = strict.an_object(value, repr(key))
    _known(body, SECTIONS, key)
    return {name: strict.an_object(section, repr(f"{key}.{name}")) for name, section in body.items()}


def _known(body: Mapping[str, Any], known: tuple[str, ...], key: str) -> None:
    for name in body:
        if name not in known:
            words = ", ".join(sorted(known))
            raise strict.FieldError(f"{strict.printable(name, 60)!r} in {key!r} is not known; known are {words}.", name)


def _rules(layers: list[Layer], where: str) -> GpuRules:
    joined = {name: dict[str, Any]() for name in SECTIONS}
    for layer in layers:
        for name, section in layer.items():
            joined[name].update(section)
    enabled = strict.boolean(joined["elastic"].pop("enabled", True), f"{where}.elastic.enabled")
    timing = _parsed(Timing, joined["timing"], f"{where}.timing")
    elastic = _parsed(Elastic, joined["elastic"], f"{where}.elastic")
    penalties = _parsed(Penalties, joined["penalties"], f"{where}.penalties")
    if penalties.grace < timing.grace:
        raise strict.FieldError(
            f"{where!r}: the grace of penalties ({penalties.grace}) must not be shorter than that of timing "
            f"({timing.grace}), after which a share counts as late.",
            where,
        )
    return GpuRules(timing, elastic if enabled else None, penalties)


def _parsed(cls: type[T], body: Mapping[str, Any], where: str) -> T:
    try:
        return settings_file.parse(body, cls)
    except settings_file.SettingsError as error:
        raise strict.FieldError(f"{where!r}: {error}", where) from None
