"""The prober's log against the pod's grants: which successes were wrong, and which failures. Pure.

A device may open from the moment its pod could first have been granted it (the wish was sent) until its node plugin
said that it is attached no more. It must open from the moment the plugin said that it is attached until the next wish
was sent. In between either answer is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """Seconds of the monotonic clock; ``end`` may be infinite."""

    start: float
    end: float

    def covers(self, start: float, end: float) -> bool:
        """Whether all of ``start`` to ``end`` lies within."""
        return self.start <= start and end <= self.end


@dataclass(frozen=True)
class Verdict:
    """The verdict about one probe log."""

    attempts: int
    successes: int
    wrong: tuple[str, ...]
    """In words, one for each success that was not allowed and each failure where it had to open."""


def spans(lines: Iterable[Mapping[str, object]]) -> dict[str, list[Interval]]:
    """Return the spans in which each device opened, from the prober's lines; a prober that ends closes its spans."""
    opened: dict[str, float] = {}
    found: dict[str, list[Interval]] = {}
    latest = 0.0

    def close(device: str, end: float) -> None:
        found.setdefault(device, []).append(Interval(opened.pop(device), end))

    for line in lines:
        moment, device = float(str(line["time"])), str(line.get("device", ""))
        if "started" in line:  # a new prober: the container was restarted
            for path in tuple(opened):
                close(path, latest)
        elif device and line["open"]:
            opened[device] = moment
        elif device in opened:
            close(device, moment)
        latest = max(latest, moment)
    for path in tuple(opened):
        close(path, latest)
    return found


def failures(lines: Iterable[Mapping[str, object]], device: str) -> list[Interval]:
    """The spans in which a device did not open, of each prober from the end of its first round to its last word."""
    found: list[Interval] = []
    since: float | None = None
    opened = False
    latest = 0.0
    for line in lines:
        moment = float(str(line["time"]))
        if "started" in line:
            found += [Interval(since, latest)] if since is not None else []
            since, opened = None, False
        elif line.get("device") == device:
            opened = bool(line["open"])
            if opened:
                found += [Interval(since, float(str(line["failed"])))] if since is not None else []
                since = None
            else:
                since = float(str(line["failed"]))
        elif "device" not in line and since is None and not opened:
            since = moment
        latest = moment
    found += [Interval(since, latest)] if since is not None else []
    return [each for each in found if each.start < each.end]


def within(some: Iterable[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Those parts of the intervals that lie in the others too."""
    found = [Interval(max(one.start, other.start), min(one.end, other.end)) for one in some for other in others]
    return [each for each in found if each.start < each.end]


def judge(
    lines: Sequence[Mapping[str, object]],
    may: Mapping[str, Sequence[Interval]],
    must: Mapping[str, Sequence[Interval]],
) -> Verdict:
    """``may``: when a device was allowed to open. ``must``: when it had to, as far as a prober tried it."""
    seen = spans(lines)
    wrong = [
        f"{device} opened from {span.start:.3f} to {span.end:.3f}, which nothing allows"
        for device, found in seen.items()
        for span in found
        if not any(allowed.covers(span.start, span.end) for allowed in may.get(device, ()))
    ]
    wrong += [
        f"{device} did not open from {each.start:.3f} to {each.end:.3f}, but had to"
        for device, needs in must.items()
        for each in within(needs, failures(lines, device))
    ]
    return Verdict(attempts(lines), sum(len(found) for found in seen.values()), tuple(wrong))


def attempts(lines: Sequence[Mapping[str, object]]) -> int:
    """Return the sum of the last counts of all probers that wrote to the log."""
    counts: list[int] = []
    for line in lines:
        if "started" in line:
            counts.append(0)
        counts[-1] = int(str(line["attempts"]))
    return sum(counts)
