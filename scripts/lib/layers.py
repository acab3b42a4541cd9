"""Places for boxes and the arrows between them, in layers from top to bottom. Pure.

The usual steps (Sugiyama): each box lies above all that it points to, arrows across several layers get a place in each,
places in a layer are ordered so that few arrows cross, and then moved towards what they are joined with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

WIDTH, GAP, LANE = 240, 22, 16
"""Sizes of a box, of the gap between places in a layer, and of an arrow that passes a layer."""
SWEEPS, MOVES = 24, 80


class Circle(Exception):
    """The error of boxes that point to each other in a circle, which have no order from top to bottom."""


@dataclass
class Layout:
    """The positions: names in layers from the bottom up, and the middle of each from the left."""

    layers: list[list[str]]
    chains: dict[tuple[str, str], list[str]]
    """For each arrow the places that it goes through, its two boxes included."""
    middle: dict[str, float] = field(default_factory=dict)


def arrange(names: Sequence[str], arrows: Sequence[tuple[str, str]]) -> Layout:
    """Return the layers, the order in each and the places; raises `Circle`."""
    level = _levels(names, arrows)
    layers: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in names:
        layers[level[name]].append(name)
    chains = {}
    for upper, lower in arrows:
        between = [f"{upper}>{lower}@{at}" for at in range(level[upper] - 1, level[lower], -1)]
        for at, place in zip(range(level[upper] - 1, level[lower], -1), between, strict=True):
            layers[at].append(place)
        chains[upper, lower] = [upper, *between, lower]
    placed = Layout(layers, chains)
    _order(placed)
    _move(placed, set(names))
    return placed


def _levels(names: Sequence[str], arrows: Sequence[tuple[str, str]]) -> dict[str, int]:
    below: dict[str, list[str]] = {name: [] for name in names}
    for upper, lower in arrows:
        below[upper].append(lower)
    level: dict[str, int] = {}
    try:
        for name in TopologicalSorter(below).static_order():
            level[name] = max((level[lower] + 1 for lower in below[name]), default=0)
    except CycleError as error:
        raise Circle(f"These import each other in a circle: {', '.join(reversed(error.args[1]))}") from None
    return level


def _steps(placed: Layout) -> list[tuple[str, str]]:
    return [pair for chain in placed.chains.values() for pair in itertools.pairwise(chain)]


def _order(placed: Layout) -> None:
    """Order each layer by the mean position of connected boxes; keep the order with fewest crossings."""
    steps = _steps(placed)
    best, fewest = [list(layer) for layer in placed.layers], _crossings(placed.layers, steps)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        indexes = range(1, len(placed.layers)) if not down else range(len(placed.layers) - 2, -1, -1)
        for at in indexes:
            beside = {name: i for i, name in enumerate(placed.layers[at + 1 if down else at - 1])}
            joined: dict[str, list[int]] = {name: [] for name in placed.layers[at]}
            for upper, lower in steps:
                this, other = (lower, upper) if down else (upper, lower)
                if this in joined and other in beside:
                    joined[this].append(beside[other])
            old = {name: i for i, name in enumerate(placed.layers[at])}
            mean = {name: sum(p) / len(p) if p else float(old[name]) for name, p in joined.items()}
            placed.layers[at].sort(key=lambda name, mean=mean, old=old: (mean[name], old[name]))  # type: ignore[misc]
        if (count := _crossings(placed.layers, steps)) < fewest:
            best, fewest = [list(layer) for layer in placed.layers], count
    placed.layers = best


def _crossings(layers: Sequence[Sequence[str]], steps: Sequence[tuple[str, str]]) -> int:
    at = {name: (level, i) for level, layer in enumerate(layers) for i, name in enumerate(layer)}
    ends = [(at[upper][0], at[upper][1], at[lower][1]) for upper, lower in steps]
    return sum(
        1
        for i, (level, above, below) in enumerate(ends)
        for other, above2, below2 in ends[:i]
        if level == other and (above - above2) * (below - below2) < 0
    )


def _move(placed: Layout, boxes: set[str]) -> None:
    """Give each box its middle: near connected boxes, in the order of the layer, without overlap."""
    joined: dict[str, list[str]] = {name: [] for layer in placed.layers for name in layer}
    for upper, lower in _steps(placed):
        joined[upper].append(lower)
        joined[lower].append(upper)
    middle = {name: i * (WIDTH + GAP) * 1.0 for layer in placed.layers for i, name in enumerate(layer)}
    for _ in range(MOVES):
        for layer in placed.layers:
            wanted = [
                sum(middle[other] for other in joined[name]) / len(joined[name]) if joined[name] else middle[name]
                for name in layer
            ]
            widths = [WIDTH if name in boxes else LANE for name in layer]
            apart = [(a + b) / 2 + GAP for a, b in itertools.pairwise(widths)]
            rightwards, leftwards = list(wanted), list(wanted)
            for i, distance in enumerate(apart):
                rightwards[i + 1] = max(rightwards[i + 1], rightwards[i] + distance)
            for i, distance in reversed(list(enumerate(apart))):
                leftwards[i] = min(leftwards[i], leftwards[i + 1] - distance)
            middle |= {name: (r + w) / 2 for name, r, w in zip(layer, rightwards, leftwards, strict=True)}
    placed.middle = middle
