"""Draw the panels of a Grafana dashboard, with what Prometheus answered, as one SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

Points = Sequence[tuple[float, float]]
"""Time and value."""

UNIT_WIDTH, UNIT_HEIGHT = 50, 26
"""Position in Grafana's grid, which has 24 columns."""
COLOURS = ("#3274d9", "#56a64b", "#ff780a", "#e02f44", "#8f3bb8", "#b7950b", "#0a8f9c")
TEXT, FAINT, FRAME, PAPER = "#1f2328", "#6e7781", "#d0d7de", "#ffffff"
LEGEND_ENTRIES = 5


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    name: str
    points: Points


def drawing(dashboard: Mapping[str, Any], found: Mapping[int, Sequence[Series]]) -> str:
    """Return the SVG of the dashboard; `found` has the series of each panel by its id."""
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * UNIT_HEIGHT
    parts = [_panel(panel, found.get(panel["id"], ())) for panel in panels]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * UNIT_WIDTH} {height}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _panel(panel: Mapping[str, Any], series: Sequence[Series]) -> str:
    at = panel["gridPos"]
    x, y, width, height = (
        at["x"] * UNIT_WIDTH + 4,
        at["y"] * UNIT_HEIGHT + 3,
        at["w"] * UNIT_WIDTH - 8,
        at["h"] * UNIT_HEIGHT - 6,
    )
    title = _text(8, 18, panel["title"], size=13, weight="bold")
    if panel["type"] == "row":
        return f'<g transform="translate({x},{y})">{title}</g>'
    frame = f'<rect width="{width}" height="{height}" rx="3" fill="none" stroke="{FRAME}"/>'
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if not series:
        inside = _text(8, height // 2 + 8, "no data", size=12, colour=FAINT)
    elif panel["type"] == "timeseries":
        stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
        inside = _chart(series, width, height, unit, stacked=stacked)
    elif panel["type"] == "bargauge":
        inside = _bars(series, width, unit)
    else:
        inside = _text(8, height - 24, shown(_last(series[0]), unit), size=36, colour=COLOURS[0])
    return f'<svg x="{x}" y="{y}" width="{width}" height="{height}">{frame}{title}{inside}</svg>'


def _chart(series: Sequence[Series], width: int, height: int, unit: str, *, stacked: bool) -> str:
    left, top, right, bottom = 52, 30, width - 10, height - 26
    drawn = _stack(series) if stacked else list(series)
    most = ceiling(max((value for one in drawn for _, value in one.points), default=0))
    times = [time for one in drawn for time, _ in one.points]
    begin, span = min(times), max(max(times) - min(times), 1e-9)
    parts = []
    for part in (0, 0.5, 1):
        y = bottom - part * (bottom - top)
        parts.append(f'<path d="M{left} {y:.0f}H{right}" stroke="{FRAME}" stroke-width="0.6"/>')
        parts.append(_text(4, int(y) + 4, shown(most * part, unit), size=10, colour=FAINT))
    for index, one in enumerate(drawn):
        steps = (
            f"{left + (time - begin) / span * (right - left):.1f} {bottom - value / most * (bottom - top):.1f}"
            for time, value in one.points
        )
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<path d="M{"L".join(steps)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    return "".join(parts) + _legend(drawn, left, height - 8)


def _legend(series: Sequence[Series], x: int, y: int) -> str:
    parts = []
    for index, one in enumerate(series[:LEGEND_ENTRIES]):
        parts.append(_text(x, y, one.name, size=10, colour=COLOURS[index % len(COLOURS)]))
        x += 7 * len(one.name) + 14
    if len(series) > LEGEND_ENTRIES:
        parts.append(_text(x, y, f"and {len(series) - LEGEND_ENTRIES} more", size=10, colour=FAINT))
    return "".join(parts)


def _bars(series: Sequence[Series], width: int, unit: str) -> str:
    most = max(_last(one) for one in series) or 1
    parts = []
    for index, one in enumerate(series[:8]):
        y = 34 + 22 * index
        long = _last(one) / most * (width - 260)
        parts.append(_text(8, y + 12, one.name, size=11))
        parts.append(f'<rect x="190" y="{y}" width="{long:.0f}" height="15" fill="{COLOURS[0]}"/>')
        parts.append(_text(196 + int(long), y + 12, shown(_last(one), unit), size=11))
    return "".join(parts)


def _stack(series: Sequence[Series]) -> list[Series]:
    """Stack the series on each other."""
    below: dict[float, float] = {}
    stacked = []
    for one in series:
        points = []
        for time, value in one.points:
            below[time] = below.get(time, 0) + value
            points.append((time, below[time]))
        stacked.append(Series(one.name, points))
    return stacked


def _last(one: Series) -> float:
    return one.points[-1][1] if one.points else 0


def ceiling(most: float) -> float:
    """Return the next of 1, 2, 5, 10 …, so that an axis has round numbers."""
    if most <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 5, 10) if most <= step * power * (1 + 1e-9))


def shown(value: float, unit: str) -> str:
    """Format a figure for people."""
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value * 100:.3g} %" if unit == "percentunit" else f"{value:.3g}"


def _text(x: int, y: int, text: str, *, size: int, weight: str = "normal", colour: str = TEXT) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
