"""The time that a server has waited for free GPUs. Pure: the caller has the time, in seconds of any steady clock."""

from __future__ import annotations


class Waits:
    """The sum of waits, including the current one."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def see(self, waiting: bool, now: float) -> None:
        """Note whether the server waits from ``now`` on."""
        if waiting and self._since is None:
            self._since = now
        elif not waiting and self._since is not None:
            self._before += self.lasting(now)
            self._since = None

    def lasting(self, now: float) -> float:
        """Return the seconds of the current wait; 0 if there is none."""
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def total(self, now: float) -> float:
        """Return the seconds of all waits."""
        return self._before + self.lasting(now)
