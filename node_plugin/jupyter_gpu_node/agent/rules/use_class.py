"""Pure: which open GPUs of a pod rest, from repeated scans, and which changes are worth a write.

An open GPU that did nothing for a minute (a setting) rests, once two scans in a row say so; the first use takes it
back. A change of what is open counts when two scans in a row agree. A pod is written at most with every second scan,
whatever its programs do: with scans every five seconds six times a minute, however many GPUs it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from jupyter_gpu.model.gpu import GpuShare

AGREE = 2
"""Scans in a row that must say the same."""
APART = 2
"""Scans from one change to the next, at least."""


@dataclass(frozen=True, slots=True)
class UseScan:
    """The result of one scan of a pod's GPUs, by uuid."""

    at: float
    """Seconds, on a clock that never goes back."""
    open: frozenset[str]
    """Those that its processes have open."""
    used: Collection[str] = ()
    """Those of them that did something since the last scan, or of which that is not known."""


@dataclass(slots=True)
class UseScans:
    """Results of the scans of one pod's GPUs, by uuid."""

    open: frozenset[str] | None = None
    """Those that its processes have open, as published last; None: not known yet."""
    rests: frozenset[str] = frozenset()
    """Those of them that do nothing, as published last."""
    _last: frozenset[str] | None = None
    _confirmed: frozenset[str] | None = None
    _used: dict[str, float] = field(default_factory=dict)
    """Time of the last scan that saw an open GPU used, or of the first that saw it open."""
    _quiet: dict[str, int] = field(default_factory=dict)
    """Scans in a row after which an open GPU counted as resting."""
    _since_change: int = APART

    def observe(self, scan: UseScan, rest: float, recorded: Collection[str] = ()) -> bool:
        """Record a scan, and tell whether there is a change to publish.

        ``rest``: seconds without use after which an open GPU rests; ``recorded``: those that an earlier process saw
        resting, for the first scan.
        """
        first = self._last is None
        for uuid in scan.open:
            began = float("-inf") if first and uuid in recorded else scan.at
            if uuid in scan.used:
                self._used[uuid] = scan.at
            rests = scan.at - self._used.setdefault(uuid, began) >= rest
            self._quiet[uuid] = self._quiet.get(uuid, 0) + 1 if rests else 0
        for uuid in self._used.keys() - scan.open:  # to open it again is to use it
            del self._used[uuid], self._quiet[uuid]
        if scan.open == self._last:
            self._confirmed = scan.open
        self._last = scan.open
        self._since_change = min(self._since_change + 1, APART)
        return self._publish()

    @property
    def resting(self) -> frozenset[str]:
        """Those that rest according to the last scans, published or not."""
        return frozenset(uuid for uuid, quiet in self._quiet.items() if quiet >= AGREE)

    def _publish(self) -> bool:
        if self._confirmed is None or self._since_change < APART:
            return False
        rests = frozenset(uuid for uuid in self._confirmed if self._is_resting(uuid))
        if (self._confirmed, rests) == (self.open, self.rests):
            return False
        self.open, self.rests, self._since_change = self._confirmed, rests, 0
        return True

    def _is_resting(self, uuid: str) -> bool:
        if uuid not in self._quiet:  # the last scan found it closed, which is not confirmed: it is idle all the same
            return uuid in self.rests
        return self._quiet[uuid] >= AGREE


def reported(
    shares: Iterable[GpuShare], opened: Collection[str], rests: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the uuids of those of ``shares`` that are open, and of those of them that rest, as `Attached` has them."""
    mine = {share.uuid for share in shares}
    return tuple(sorted(mine & set(opened))), tuple(sorted(mine & set(opened) & set(rests)))
