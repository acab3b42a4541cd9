"""The output of ``jupyter-gpu-node top``, as lines of text. Pure.

Columns that do not fit are left out, the least important first; a line is never longer than the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes
from jupyter_gpu.model.share import ShareRates, ShareUse
from jupyter_gpu.model.terminal import Style

from .history import ObservedShare

STALE = 60
"""Seconds after which a GPU is said to be unchanged."""
_NAME = 12
_BAR, _LONGEST = 10, 40
_GAP = "  "
_RESET = "\x1b[0m"
_STYLES = {"head": "\x1b[7m", "gpu": "\x1b[1m", "dim": "\x1b[2m", "alarm": "\x1b[31m"}
_PARTS = (("guaranteed", "\x1b[32m", "█", "#"), ("borrowed", "\x1b[33m", "▓", "+"), ("idle", "\x1b[36m", "▒", "-"))
_WAITING = ("\x1b[31m", "░", "w")
_LEGEND = "of its slice, from its bank, idle time, waiting; | what it earns"
COLOUR = re.compile("\x1b\\[[0-9]*m")
"""A switch of the colour."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the table: its title, its cells, and its width."""

    title: str
    width: int
    cells: Sequence[str]
    to_left: bool = False

    def row(self, number: int) -> str:
        """Return the cell in that row, or the title above them, as wide as the column."""
        text = self.title if number < 0 else self.cells[number]
        space = " " * max(0, self.width - length(text))
        return text + space if self.to_left else space + text


def lines(title: str, seen: Sequence[ObservedShare], names: Mapping[str, str], style: Style, now: int) -> list[str]:
    """Return the whole screen; ``now`` in milliseconds since 1970, ``names`` of pods."""
    gpus = [(gpu, list(some)) for gpu, some in groupby(seen, lambda one: one.gpu)]
    head = f"{title}: {_count(len(gpus), 'GPU')}, {_count(len(seen), 'share')}"
    body = [_styled(head.ljust(style.width) if style.colour else head, "head", style)]
    if not seen:
        body += ["", "No GPU is shared out on this machine now."]
    for gpu, shares in gpus:
        body += ["", _styled(_gpu(gpu, shares, now), "gpu", style), *_table(shares, names, style)]
    if seen:
        marks = [mark for *_, one, other in (*_PARTS, _WAITING) for mark in [one if style.unicode else other]]
        legend = zip(marks, _LEGEND.replace("|", _slice_mark(style)).split(", "), strict=True)
        body += ["", _styled(", ".join(" ".join(one) for one in legend), "dim", style)]
    return [clipped(line, style.width) for line in _fitting(body, style)]


def length(text: str) -> int:
    """Return the visible length of a text."""
    return len(COLOUR.sub("", text))


def clipped(text: str, width: int) -> str:
    """Return as much of a text as fits into a line; colours are ended."""
    if length(text) <= width:
        return text
    fitting, room = "", width - 1
    for piece in re.split("(\x1b\\[[0-9]*m)", text):
        part = piece if piece.startswith("\x1b") else piece[:room]
        room -= 0 if piece.startswith("\x1b") else len(part)
        fitting += part
    return fitting + ">"


def duration(microseconds: int) -> str:
    """Return a duration as text: ``"1.2 s"``, ``"85 ms"``, ``"3 min"``."""
    if microseconds < 995_000:
        return f"{microseconds / 1000:.0f} ms" if microseconds else "0 s"
    seconds = microseconds / 1e6
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


def bar(share: ShareUse, rates: ShareRates, width: int, style: Style) -> str:
    """Draw how the share spent the time since the last reading, to scale: the whole width is all of the time."""
    cells: list[tuple[str, str]] = []
    end = 0.0
    for name, colour, solid, plain in (*_PARTS, ("waiting", *_WAITING)):
        end += getattr(rates, name) * width
        count = max(0, min(round(end), width) - len(cells))
        cells += [(solid if style.unicode else plain, colour)] * count
    cells += [(" ", "")] * (width - len(cells))
    slice_end = share.effective * width // MILLI_PER_GPU
    if slice_end < width and cells[slice_end][0] == " ":
        cells[slice_end] = (_slice_mark(style), "")
    runs = groupby(cells, lambda cell: cell[1])
    return "".join(_coloured("".join(mark for mark, _ in run), colour, style) for colour, run in runs)


def _table(shares: Sequence[ObservedShare], names: Mapping[str, str], style: Style) -> list[str]:
    """Return the table of one GPU: titles, a line for each share, and below it why it has what it has."""
    known = [names.get(one.pod, one.pod) for one in shares]
    room = style.width - len(_GAP)
    left = room - _NAME - len(_GAP) - _BAR
    shown: list[_Column] = []
    for column in _columns(shares, style):
        if len(_GAP) + column.width > left:
            break
        left -= len(_GAP) + column.width
        shown.append(column)
    wide = max(1, min(room, _NAME + max(0, min(left, max(map(len, known)) - _NAME))))
    table = [_Column("POD", wide, [clipped(one, wide) for one in known], to_left=True), *shown]
    if left >= 0:
        wide = min(_LONGEST, _BAR + left + _NAME - wide)
        bars = [bar(one.share, one.rates, wide, style) if one.rates else "" for one in shares]
        table.insert(min(2, len(table)), _Column("GPU TIME", wide, bars, to_left=True))
    rows = [_styled(_row(table, -1), "dim", style)]
    for number, one in enumerate(shares):
        rows.append(_row(table, number))
        if one.share.reason:
            rows.append(_styled(f"    {one.share.reason}", "dim", style))
    return rows


def _row(table: Sequence[_Column], number: int) -> str:
    return (_GAP + _GAP.join(column.row(number) for column in table)).rstrip()


def _columns(shares: Sequence[ObservedShare], style: Style) -> list[_Column]:
    """Return all columns but the name and the bar, the most important first."""
    of = [one.share for one in shares]
    return [
        _Column("NOW/SHARE", 9, [_milli(one) for one in of]),
        _Column("RUNS", 5, [_percent(one.rates.running if one.rates else None) for one in shares]),
        _Column("BANK", 15, [_bank(one, style) for one in of], to_left=True),
        _Column("WAITS", 5, [_percent(one.rates.waiting if one.rates else None) for one in shares]),
        _Column("EXPIRES", 7, [_expires(one) for one in of]),
        _Column("THROTTLED", 9, [_throttled(one.rates, style) for one in shares]),
        _Column("MEMORY", 19, [_memory(one) for one in of]),
    ]


def _gpu(gpu: str, shares: Sequence[ObservedShare], now: int) -> str:
    latest = max(shares, key=lambda one: one.written)
    busy = latest.share.busy
    words = [gpu, "use not known yet" if busy is None else f"{busy:.0%} busy"]
    words.append("one pod's alone" if latest.share.allocated == MILLI_PER_GPU else _count(len(shares), "share"))
    if (age := (now - latest.written) / 1000) >= STALE:
        words.append(f"unchanged for {duration(int(age * 1e6))}")
    return _GAP.join(words)


def _milli(share: ShareUse) -> str:
    return f"{share.allocated}" if share.allocated == share.effective else f"{share.effective}/{share.allocated}"


def _bank(share: ShareUse, style: Style) -> str:
    if share.allocated == MILLI_PER_GPU:  # a share with all of the time need not save
        return ""
    full = round(4 * share.balance / share.cap) if share.cap else 0
    solid, empty = ("█", "░") if style.unicode else ("#", ".")
    gauge = solid * min(4, full) + empty * (4 - min(4, full))
    return f"{gauge} {share.balance / 1e6:.1f}/{share.cap / 1e6:.1f} s"


def _expires(share: ShareUse) -> str:
    return "" if share.expires is None or share.allocated == MILLI_PER_GPU else duration(share.expires)


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}"


def _throttled(rates: ShareRates | None, style: Style) -> str:
    text = _percent(rates.throttled if rates else None)
    return _styled(text, "alarm", style) if rates and rates.throttled >= 0.005 else text


def _memory(share: ShareUse) -> str:
    if share.memory_used is None:
        return ""
    used = format_bytes(share.memory_used)
    return used if share.memory_limit is None else f"{used}/{format_bytes(share.memory_limit)}"


def _fitting(body: list[str], style: Style) -> Iterable[str]:
    if style.height is None or len(body) <= style.height:
        return body
    left = len(body) - style.height + 1
    return [*body[: style.height - 1], f"... {_count(left, 'more line')}: make the window larger"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _slice_mark(style: Style) -> str:
    return "│" if style.unicode else "|"


def _styled(text: str, name: str, style: Style) -> str:
    return _coloured(text, _STYLES[name], style)


def _coloured(text: str, colour: str, style: Style) -> str:
    return f"{colour}{text}{_RESET}" if style.colour and text and colour else text
