"""The history of samples in a bounded number of bytes: exact for recent times, coarser further back. Pure.

Points lie in tiers. New samples enter the first; a point of a tier stands for up to twice as many samples as one of the
tier before it, and is older than all of those. When there are too many bytes, the two oldest points of the fullest tier
become one of the next. So a sample is joined with others at most once for each tier, and the history reaches back
further than it has room for single samples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from . import strict
from .view import GpuLoad, Sample

MAX_HISTORY_BYTES = 1_000_000
"""Limit of the points of one history as JSON: what a tab is sent when it connects."""
TIERS = 24
"""A point of the last stands for up to 2**23 samples."""
PAUSE = 3.0
"""Intervals without a sample that are a gap; the twin of what `labextension/src/history/history.ts` shows as one."""


class Point(NamedTuple):
    """One or more samples without a gap."""

    sample: Sample
    """The last sample, with the mean of all for the utilisation."""
    since: float | None
    """Time of the sample before the first of them; ``None``: there was none, or a gap."""
    samples: int
    """Number of samples."""
    text: str
    """The point as JSON."""

    @classmethod
    def of(cls, sample: Sample, since: float | None, samples: int = 1) -> Point:
        """Make a point, encoded here and never again."""
        body = sample.to_json()
        if samples > 1 and since is not None:
            body["since"] = since
        return cls(sample, since, samples, strict.dumps(body))


class SampleHistory:
    """Points in order of time: at most ``most_bytes`` of JSON, of the last ``capacity`` samples.

    ``interval``: seconds between two samples.
    """

    def __init__(self, interval: float, capacity: int, most_bytes: int = MAX_HISTORY_BYTES) -> None:
        self.interval, self.capacity, self.most_bytes = interval, capacity, most_bytes
        self._tiers: list[deque[Point]] = [deque() for _ in range(TIERS)]
        self._samples = self._bytes = 0
        self._last: float | None = None
        self._message: str | None = None

    def __iter__(self) -> Iterator[Point]:
        """Yield the points, oldest first."""
        for tier in reversed(self._tiers):
            yield from tier

    def push(self, sample: Sample) -> str:
        """Add the newest sample; return its JSON. One that is not newer than the last begins a new history."""
        if self._last is not None and sample.time <= self._last:
            self._clear()
        joins = self._last is not None and sample.time - self._last <= PAUSE * self.interval
        self._message = None
        point = Point.of(sample, self._last if joins else None)
        self._put(0, point)
        self._last = sample.time
        while self._bytes > self.most_bytes:
            self._coarsen()
        while self._samples > self.capacity and self._samples - self._oldest()[0].samples >= self.capacity:
            self._drop(self._oldest())
        return point.text

    def message(self) -> str:
        """Return the stream message with all points; the same text until there is one more."""
        if self._message is None:
            points = ",".join(point.text for point in self)
            self._message = f'{{"type":"history","interval":{strict.dumps(self.interval)},"points":[{points}]}}'
        return self._message

    def _put(self, tier: int, point: Point) -> None:
        self._tiers[tier].append(point)
        self._samples += point.samples
        self._bytes += len(point.text) + 1  # ASCII, and a comma

    def _drop(self, tier: deque[Point]) -> Point:
        point = tier.popleft()
        self._samples -= point.samples
        self._bytes -= len(point.text) + 1
        return point

    def _oldest(self) -> deque[Point]:
        return next(tier for tier in reversed(self._tiers) if tier)

    def _coarsen(self) -> None:
        """Make fewer points, or one nearer to the last tier."""
        fullest = max(range(TIERS), key=lambda i: len(self._tiers[i]))
        tier = self._tiers[fullest]
        if len(tier) < 2 or fullest == TIERS - 1:
            self._drop(self._oldest())
            return
        first = self._drop(tier)
        if tier[0].since == first.sample.time:
            self._put(fullest + 1, joined(first, self._drop(tier)))
        else:  # a gap lies between: it stays one
            self._put(fullest + 1, first)

    def _clear(self) -> None:
        for tier in self._tiers:
            tier.clear()
        self._samples = self._bytes = 0
        self._last = None


def joined(first: Point, second: Point) -> Point:
    """Join two points that follow each other. Totals and amounts are those of the second."""
    loads = {
        uuid: load._replace(utilisation=_mean(first, first.sample.loads.get(uuid), second.samples, load))
        for uuid, load in second.sample.loads.items()
    }
    return Point.of(second.sample._replace(loads=loads), first.since, first.samples + second.samples)


def _mean(first: Point, before: GpuLoad | None, weight: int, after: GpuLoad) -> float | None:
    if before is None or before.utilisation is None:
        return after.utilisation
    if after.utilisation is None:
        return before.utilisation
    both = math.fsum((before.utilisation * first.samples, after.utilisation * weight)) / (first.samples + weight)
    return round(both, 1)
