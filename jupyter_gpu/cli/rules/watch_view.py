"""The screen of ``jupyter gpu watch``, as lines of text. Pure.

What does not fit into the width is left out, the least important first: the bar of the memory, the model, the bar of
the load. No line is longer than the terminal is wide.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_gpu.kernel.reports.shares import ShareReport, guest, in_short
from jupyter_gpu.model.limit_words import remark
from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes, format_gpus
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.terminal import Style
from jupyter_gpu.model.use_class import idle_for
from jupyter_gpu.model.view import GpuLoad, GpuState, PodGpu, Sample, View

if TYPE_CHECKING:  # loaded with the first worker
    from jupyter_gpu.model.pod_worker import PodWorker

_BAR, _MEMORY_BAR, _MODEL = 16, 8, 12
"""Characters: of the bars, and the fewest that a model's name is worth showing in."""
_RESET = "\x1b[0m"
_STYLES = {"strong": "\x1b[1m", "dim": "\x1b[2m", "alarm": "\x1b[31m", "load": "\x1b[32m", "memory": "\x1b[36m"}


@dataclass(frozen=True, slots=True)
class StyledText:
    """A piece of a line, and its style."""

    text: str
    look: str = ""


def lines(title: str, clock: str, view: View, sample: Sample | None, lost: str, style: Style) -> list[str]:
    """Return the lines of the whole screen; ``lost``: why the server does not answer, or empty."""
    space = " " * max(2, style.width - width(title) - len(clock))
    body = [
        [StyledText(title, "strong"), StyledText(space + clock, "dim")],
        [StyledText(sentence(view), "" if lost else "strong")],
    ]
    if lost:
        body.append([StyledText(lost, "alarm")])
    for item in sorted(view.gpus, key=lambda item: item.gpu.index):
        body.append([])
        body += _card(item, sample, style)
    for worker in view.workers:
        body += [[], *_worker(worker, sample)]
    for text in (remark(view), *(condition.message for condition in view.conditions)):
        body += [[], [StyledText(text, "dim")]] if text else []
    return [_line(parts, style) for parts in _fitting(_wrapped(body, style.width), style)]


def width(text: str) -> int:
    """Return the number of columns that ``text`` takes in a terminal."""
    return sum(_columns(mark) for mark in text)


def change(view: View) -> str:
    """Return the state after a change in one line."""
    words = [_words(item) for item in sorted(view.gpus, key=lambda item: item.gpu.index)]
    return " · ".join([sentence(view), *words])


def _words(item: PodGpu) -> str:
    part = "" if item.milli == MILLI_PER_GPU else f" ({format_gpus(item.milli)} of it)"
    if not item.milli:
        part = " (lent while others rest)"
    if item.keeps:
        part = " (lent while it rests)"
    state = "" if item.state is GpuState.ATTACHED else f" {item.state}"
    users = f": {', '.join(dict.fromkeys(user.name for user in item.users))}" if item.users else ""
    return f"GPU {item.gpu.index}{part}{state}{users}"


def _card(item: PodGpu, sample: Sample | None, style: Style) -> list[list[StyledText]]:
    load = sample.loads.get(item.gpu.uuid) if sample else None
    share = sample.shares.get(item.gpu.uuid) if sample else None
    rows = [_load(item, load or GpuLoad(None, None), style)]
    if share is not None:
        rows.append([StyledText(f"       {in_short(ShareReport.of(share, item.gpu.index))}", "dim")])
    elif item.milli and item.milli < MILLI_PER_GPU:
        rows.append([StyledText(f"       {format_gpus(item.milli)} of it", "dim")])
    if not item.milli:
        rows.append([StyledText("       lent while others rest: may pause at any moment", "dim")])
    if item.keeps:
        rows.append([StyledText(f"       lent while it rests: keeps {format_bytes(item.keeps)}", "dim")])
    if share is not None and share.guest:
        rows.append([StyledText(f"       a guest has {guest(share.guest)}", "dim")])
    if item.state is not GpuState.ATTACHED:
        rows.append([StyledText(f"       {item.state}", "alarm")])
    if item.users:
        names = dict.fromkeys(user.name for user in item.users)
        rows.append([StyledText(f"       used by {', '.join(names)}", "dim")])
    if item.idle_since is not None and sample is not None:
        rows.append([StyledText(f"       {idle_for(item.idle_since, sample.time)}", "dim")])
    return rows


def _worker(worker: PodWorker, sample: Sample | None) -> list[list[StyledText]]:
    from jupyter_gpu.model.worker_words import amount, distance, kinds, state, traffic  # most servers have no workers

    words = " · ".join(filter(None, (amount(worker), kinds(worker), state(worker), distance(worker))))
    rows = [[StyledText(f"{worker.node}  ", "strong"), StyledText(words, "dim")]]
    loads = sample.loads if sample else {}
    busy = [
        f"GPU {number}: {load.utilisation:.0f} %"
        for number, share in enumerate(worker.gpus)
        if (load := loads.get(share.uuid)) is not None and load.utilisation is not None
    ]
    if figures := ", ".join([*busy, *filter(None, [traffic(worker)])]):
        rows.append([StyledText(f"       {figures}", "dim")])
    rows += ([StyledText(f"       GPU {number}: {text}", "alarm")] for number, text in enumerate(worker.health) if text)
    return rows


def _load(item: PodGpu, load: GpuLoad, style: Style) -> list[StyledText]:
    name = f"{f'GPU {item.gpu.index}':<7}"
    busy = "  -  %" if load.utilisation is None else f"{load.utilisation:4.0f} %"
    whole = format_bytes(item.gpu.memory)
    used = "-" if load.memory is None else format_bytes(load.memory)
    memory = f"  {used:>8} of {whole:<8}"
    left = style.width - len(name) - len(busy) - len(memory)
    parts = [StyledText(name, "strong"), StyledText(busy), StyledText(memory.rstrip() if left < _MODEL else memory)]
    if left >= _BAR:
        left -= _BAR
        parts.insert(1, StyledText(_bar((load.utilisation or 0) / 100, _BAR, style), "load"))
    if left >= _MEMORY_BAR + 2 + _MODEL + 2:
        left -= _MEMORY_BAR + 2
        part = (load.memory or 0) / item.gpu.memory if item.gpu.memory else 0.0
        parts[3:3] = [StyledText("  "), StyledText(_bar(part, _MEMORY_BAR, style), "memory")]
    if left >= _MODEL + 2:
        parts.append(StyledText(f"  {_clipped(item.gpu.model, left - 2, style)}", "dim"))
    return parts


def _bar(part: float, width: int, style: Style) -> str:
    """Return a bar for ``part`` of a whole; at least one cell, unless it is zero."""
    part = min(1.0, max(0.0, part))
    full = min(width, max(round(part * width), 1 if part > 0 else 0))
    solid, empty = ("█", "░") if style.unicode else ("#", ".")
    return solid * full + empty * (width - full)


def _wrapped(body: Iterable[list[StyledText]], room: int) -> list[list[StyledText]]:
    """Break a text that is too long at its spaces; each line is indented as the first one."""
    found: list[list[StyledText]] = []
    for parts in body:
        if len(parts) != 1 or width(parts[0].text) <= room:
            found.append(parts)
            continue
        text, look = parts[0].text, parts[0].look
        indent = " " * min(room // 2, len(text) - len(text.lstrip()))
        line = indent
        for word in text.split():
            if line.strip() and width(line) + 1 + width(word) > room:
                found.append([StyledText(line, look)])
                line = indent
            line += word if not line.strip() else f" {word}"
        found.append([StyledText(line, look)])
    return found


def _fitting(body: list[list[StyledText]], style: Style) -> list[list[StyledText]]:
    if style.height is None or len(body) <= style.height:
        return body
    left = len(body) - style.height + 1
    what = "1 more line" if left == 1 else f"{left} more lines"
    return [*body[: style.height - 1], [StyledText(f"... {what}: make the window larger")]]


def _line(parts: list[StyledText], style: Style) -> str:
    room, text = style.width, ""
    for part in parts:
        shown = _clipped(part.text, room, style)
        room -= width(shown)
        look = _STYLES.get(part.look, "") if style.colour else ""
        text += f"{look}{shown}{_RESET}" if look and shown.strip() else shown
    return text if style.colour else text.rstrip()


def _clipped(text: str, room: int, style: Style) -> str:
    """Return the text cut to the width, in characters that the terminal has."""
    if not style.unicode:
        text = text.replace("…", "...").replace("·", "-").encode("ascii", "replace").decode()
    text = "".join(mark if mark.isprintable() else "?" for mark in text)
    if width(text) <= room:
        return text
    end, left = 0, room - 1
    while left >= (wide := _columns(text[end])):
        end, left = end + 1, left - wide
    return text[:end] + ">" * (room > 0)


def _columns(mark: str) -> int:
    if unicodedata.combining(mark):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1
