"""Draw boxes and the arrows between them as an SVG, in layers from top to bottom, for light and dark pages. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from scripts.lib.layers import LANE, WIDTH, Layout, arrange

BETWEEN, MARGIN, LINE = 62, 26, 15
LETTER = 6.7
"""Width of a small letter in a wide font: which font a reader has is not known."""

STYLE = """
    .page { fill: #ffffff }
    .box { fill: #f4f6f9; stroke: #6b7685; stroke-width: 1.5 }
    .pure { fill: #e3f1e6; stroke: #2f7d43; stroke-width: 1.5 }
    .part { fill: #2f7d43 }
    text { fill: #1d2530 }
    .title { font-weight: 600 }
    .small { font-size: 12px; fill: #45505e }
    .line { fill: none; stroke: #3c4856; stroke-width: 1.7; marker-end: url(#tip) }
    .also { fill: none; stroke: #a3adb9; stroke-width: 1.1; marker-end: url(#faint) }
    #tip path { fill: #3c4856 }
    #faint path { fill: #a3adb9 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #14181d }
      .box { fill: #232a33; stroke: #8b97a7 }
      .pure { fill: #1d3524; stroke: #6bbf80 }
      .part { fill: #6bbf80 }
      text { fill: #eef1f5 }
      .small { fill: #b7c0cc }
      .line { stroke: #b7c0cc }
      .also { stroke: #5c6773 }
      #tip path { fill: #b7c0cc }
      #faint path { fill: #5c6773 }
    }
"""


@dataclass(frozen=True)
class Box:
    """One box: a title, a note beside it, a sentence below, and which part of it is coloured (0 to 1)."""

    title: str
    note: str
    text: str
    part: float = 0.0


def draw(title: str, boxes: Mapping[str, Box], arrows: Iterable[tuple[str, str]], bars: Sequence[str] = ()) -> str:
    """Return the SVG. ``bars`` are drawn across the whole width below all others, without the arrows to them."""
    drawn = sorted({(a, b) for a, b in arrows if a not in bars and b not in bars})
    placed = arrange([name for name in boxes if name not in bars], drawn)
    lines = {name: _wrapped(box.text, WIDTH) for name, box in boxes.items()}
    left = min(x - _width(name, boxes) / 2 for name, x in placed.middle.items())
    shift = MARGIN - left
    middle = {name: round(x + shift, 1) for name, x in placed.middle.items()}
    width = max(x + _width(name, boxes) / 2 for name, x in middle.items()) + MARGIN
    parts: list[str] = []
    top, spans = float(MARGIN), dict[str, tuple[float, float]]()
    for layer in reversed(placed.layers):
        height = 38 + LINE * max(len(lines.get(name, ())) for name in layer)
        spans |= dict.fromkeys(layer, (top, top + height))
        parts += [
            _box(boxes[name], lines[name], middle[name] - WIDTH / 2, top, WIDTH, height)
            for name in layer
            if name in boxes
        ]
        top += height + BETWEEN
    top += 14 - BETWEEN
    for name in bars:
        text = _wrapped(boxes[name].text, width - 2 * MARGIN)
        parts.append(_box(boxes[name], text, MARGIN, top, width - 2 * MARGIN, 38 + LINE * len(text)))
        top += 38 + LINE * len(text) + 14
    paths = _paths(placed, middle, spans, drawn)
    return _page(title, width, top - 14 + MARGIN, [*paths, *parts])


def _wrapped(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, int((width - 28) / LETTER), break_on_hyphens=False)


def _width(name: str, boxes: Mapping[str, Box]) -> float:
    return WIDTH if name in boxes else LANE


def _implied(arrows: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the arrows whose two boxes are also connected through a third one."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            direct = {lower for upper, lower in arrows if upper == name}
            reached[name] = direct.union(*(reach(lower) for lower in direct))
        return reached[name]

    return {(a, b) for a, b in arrows if any(b in reach(other) for upper, other in arrows if upper == a)}


def _paths(
    placed: Layout,
    middle: Mapping[str, float],
    spans: Mapping[str, tuple[float, float]],
    arrows: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the arrows; those at one side of a box are placed side by side, in the order of their other ends."""
    implied = _implied(arrows)
    starts: dict[str, list[str]] = {name: [] for name in middle}
    ends: dict[str, list[str]] = {name: [] for name in middle}
    for chain in sorted(placed.chains.values(), key=lambda chain: middle[chain[1]]):
        starts[chain[0]].append(chain[1])
    for chain in sorted(placed.chains.values(), key=lambda chain: middle[chain[-2]]):
        ends[chain[-1]].append(chain[-2])

    def port(name: str, others: Sequence[str], other: str) -> float:
        return middle[name] + (others.index(other) + 1) * (WIDTH - 30) / (len(others) + 1) - (WIDTH - 30) / 2

    texts = []
    for pair in sorted(arrows, key=lambda pair: pair not in implied):  # the faint ones below the others
        chain = placed.chains[pair]
        x, y = port(chain[0], starts[chain[0]], chain[1]), spans[chain[0]][1]
        path = f"M{x:.1f} {y:.1f}"
        for name in chain[1:]:
            end = port(name, ends[name], chain[-2]) if name == chain[-1] else middle[name]
            top, bottom = spans[name]
            half = (top - y) / 2
            path += f" C{x:.1f} {y + half:.1f} {end:.1f} {top - half:.1f} {end:.1f} {top:.1f}"
            if name != chain[-1]:
                path += f" V{bottom:.1f}"
            x, y = end, bottom
        texts.append(f'<path class="{"also" if pair in implied else "line"}" d="{path}"/>')
    return texts


def _box(box: Box, lines: Sequence[str], x: float, y: float, width: float, height: float) -> str:
    kind = "pure" if box.part == 1 else "box"
    texts = [f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8"/>']
    if 0 < box.part < 1:
        part = max(6.0, box.part * (height - 16))
        texts.append(f'<rect class="part" x="{x + 5:.1f}" y="{y + 8:.1f}" width="4" height="{part:.1f}" rx="2"/>')
    texts.append(f'<text class="title" x="{x + 16:.1f}" y="{y + 23:.1f}">{escape(box.title)}</text>')
    texts.append(
        f'<text class="small" x="{x + width - 12:.1f}" y="{y + 23:.1f}" text-anchor="end">{escape(box.note)}</text>'
    )
    texts += [
        f'<text class="small" x="{x + 16:.1f}" y="{y + 43 + LINE * i:.1f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]
    return "\n  ".join(texts)


def _page(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    def tip(name: str) -> str:
        return (
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto" '
            'markerUnits="userSpaceOnUse"><path d="M0 0 10 5 0 10z"/></marker>'
        )

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="15" role="img" '
        f'aria-labelledby="title">\n  <title id="title">{escape(title)}</title>\n  <style>{STYLE}  </style>\n'
        f"  <defs>{tip('tip')}{tip('faint')}</defs>\n"
        f'  <rect class="page" width="{width:.0f}" height="{height:.0f}" rx="10"/>\n  '
        + "\n  ".join(parts)
        + "\n</svg>\n"
    )
