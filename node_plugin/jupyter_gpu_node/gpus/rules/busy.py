"""Samples of how busy GPUs are, where the driver keeps none; pure.

A peak is told only for a time in which a GPU was sampled without a gap: a GPU must not rest because nobody looked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

INTERVAL = 0.2
"""Seconds between two samples. As often as NVIDIA's driver takes its own."""
GAP = 1.0
"""Seconds between two samples after which what was between them is not known."""
KEPT = 120.0
"""Seconds for which samples are kept."""


class BusySamples:
    """The samples of some GPUs, on one clock."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def add(self, now: float, found: Mapping[str, int | None]) -> None:
        """Add one sample of each GPU, in per cent (None: it could not be read), and forget all other GPUs."""
        kept = {}
        for uuid, percent in found.items():
            if percent is None:
                continue
            samples = self._samples.get(uuid, deque())
            if samples and now - samples[-1][0] > GAP:
                samples.clear()
            while samples and samples[0][0] < now - KEPT:
                samples.popleft()
            samples.append((now, percent))
            kept[uuid] = samples
        self._samples = kept

    def peak(self, uuid: str, since: float, now: float) -> int | None:
        """Return the highest sample from ``since`` to ``now``; None if the GPU was not sampled all that time."""
        samples = self._samples.get(uuid)
        if not samples or samples[0][0] > since + GAP or samples[-1][0] < now - GAP:
            return None
        return max((percent for at, percent in samples if at >= since), default=None)
