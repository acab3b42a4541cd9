"""Use of this node's uplink: by the counters of process 1, which is in the machine's own network."""

from __future__ import annotations

import time
from pathlib import Path

from jupyter_gpu_node.agent.inventory.rules import uplink_rate
from jupyter_gpu_node.agent.inventory.rules.uplink_rate import UplinkCounters


class Uplink:
    """The uplink of this node.

    ``process``: the directory below ``/proc`` of a process in the machine's network and file system.
    """

    def __init__(self, process: Path = Path("/proc/1")) -> None:
        self._process = process
        self._last: UplinkCounters | None = None

    @property
    def speed(self) -> int | None:
        """Its speed in Mbit/s as of the last `use`; None: not known."""
        return uplink_rate.megabits(self._last.speed) if self._last else None

    def use(self) -> float | None:
        """Return the share in use since the last call, 0 to 1; None: not known. Reads some files that never block."""
        before, self._last = self._last, self._read()
        return uplink_rate.use(before, self._last)

    def _read(self) -> UplinkCounters | None:
        try:
            name = uplink_rate.uplink((self._process / "net" / "route").read_text())
            bytes_ = uplink_rate.counted((self._process / "net" / "dev").read_text(), name)
            speed = uplink_rate.bytes_a_second(
                (self._process / "root" / "sys" / "class" / "net" / name / "speed").read_text()
            )
        except (OSError, ValueError):  # interfaces without a speed answer with an error
            return None
        if bytes_ is None or speed is None:
            return None
        return UplinkCounters(name, *bytes_, speed, time.monotonic())
