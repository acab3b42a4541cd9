"""History of time shares between two readings of their files. Pure.

A file is written when something changed, some time after the last writing: between two readings its totals grew in the
time from the one writing to the other, or, after a rest, since the reading before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.share import ShareRates, ShareUse, rates
from jupyter_gpu_node.shares.rules.share_file import KEEP, ShareFile, ShareKey


@dataclass(frozen=True, slots=True)
class ObservedShare:
    """One share at one reading."""

    gpu: str
    pod: str
    share: ShareUse
    """``expires`` counts from the reading."""
    use: float
    """Part of its earnings that it used lately."""
    written: int
    """Milliseconds since 1970."""
    rates: ShareRates | None
    """ShareRates since the reading before; None: there was none."""


class History:
    """The history from reading to reading."""

    def __init__(self) -> None:
        self._updated = 0
        self._before: dict[ShareKey, tuple[ShareFile, ShareRates | None]] = {}

    def update(self, files: Mapping[ShareKey, ShareFile], now: int) -> tuple[ObservedShare, ...]:
        """Return all shares as of ``now``, in milliseconds since 1970, by GPU and pod."""
        found = {key: self._rates(key, file) for key, file in files.items()}
        self._before = {key: (files[key], rate) for key, rate in found.items()}
        self._updated = now
        return tuple(
            ObservedShare(
                *key, files[key].share.aged((now - files[key].written) * 1000), files[key].use, files[key].written, rate
            )
            for key, rate in sorted(found.items())
        )

    def _rates(self, key: ShareKey, file: ShareFile) -> ShareRates | None:
        before, last = self._before.get(key, (None, None))
        if before is None:
            return None
        if file == before:
            # Of a whole GPU it is written seldom while it is used, of a share only if nothing happened.
            return last if file.share.allocated == MILLI_PER_GPU else ShareRates()
        since = max(before.written, self._updated - (KEEP + 2 * file.share.period) // 1000)
        if file.share.allocated == MILLI_PER_GPU:
            since = before.written
        return rates(before.share, file.share, max(1, file.written - since) * 1000)


def to_json(seen: ObservedShare) -> dict[str, object]:
    """Return one share, for programs."""
    parts = None
    if seen.rates is not None:
        names = ("guaranteed", "borrowed", "idle", "waiting", "throttled")
        parts = {name: round(getattr(seen.rates, name), 4) for name in names}
    share = replace(seen.share, uuid=seen.gpu).to_json()
    return {"pod": seen.pod, **share, "use": seen.use, "written": seen.written, "rates": parts}
