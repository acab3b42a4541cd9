"""The release of GPUs by one pod: what is known until it is proven that the pod has closed them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .evidence import OpenEvidence

FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
"""Seconds between two scans for a device that should be closed: few at first, backing off."""
MOVING, MOVING_ROUNDS = 5.0, 3
"""Seconds and scans after which a pod that could never be frozen is believed to have open only what it shows."""


@dataclass(slots=True)
class Release:
    """The state of a pod's releases. Times are those of `time.monotonic`."""

    denied_since: dict[str, float] = field(default_factory=dict)
    """Times, by uuid, since when GPUs are denied that are not known to be closed."""
    evidence: OpenEvidence | None = None
    """Evidence of GPUs that should be closed but that the last scan found open."""
    unfrozen_scans: int = 0
    """Scans in a row during which the pod could not be frozen."""
    unfrozen_since: float = 0
    """Time of the first of these."""
    pause: float = FIRST_PAUSE
    """Seconds until the next scan."""

    def count_scan(self, moving: bool, now: float) -> bool:
        """Count a scan, and tell whether it proves anything; ``moving``: the pod could not be frozen for it.

        A descriptor that is passed around at the right moment escapes one scan, not several over some seconds.
        """
        if not moving:
            self.unfrozen_scans = 0
            return True
        if not self.unfrozen_scans:
            self.unfrozen_since = now
        self.unfrozen_scans += 1
        if self.unfrozen_scans < MOVING_ROUNDS or now - self.unfrozen_since < MOVING:
            return False
        self.unfrozen_scans = 0
        return True

    def next_pause(self) -> float:
        """Return the seconds until the next scan, and make those until the one after it longer."""
        pause, self.pause = self.pause, min(self.pause * 1.5, LAST_PAUSE)
        return pause
