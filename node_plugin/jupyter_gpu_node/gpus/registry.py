"""The GPUs of this machine as they are now, and as they were when they were last seen."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules.instances import Instances

from .source import GpuSource, HasInstances, ReportsBuses, ReportsHolders, ReportsPeaks, ReportsUsers

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import Reading

INTERVAL = 10.0
"""Seconds for which the health of real GPUs is believed: asking the driver takes milliseconds."""

_NODE = re.compile(r"nvidia\d+")
_VANISHED = "It is not there any more."
NO_ANSWER = "The driver does not answer."


NVIDIA = frozenset(Device(195, minor) for minor in range(254))
"""Every device node that a GPU of NVIDIA can have (``nvidia0`` …); the numbers above belong to the driver itself.

A MIG instance is used through the node of its GPU, so it is covered by that.
"""


class Registry:
    """The GPUs of a `GpuSource`; a failure of the source takes nothing away."""

    def __init__(
        self,
        open_source: Callable[[], GpuSource],
        always: Collection[Device] = NVIDIA,
        choose: Callable[[Sequence[Gpu]], tuple[Gpu, ...]] = tuple,
    ) -> None:
        """``choose``: which of all GPUs may be decided about; the rest is covered by device rules all the same."""
        self._open = open_source
        self._choose = choose
        self._always = frozenset(always)
        self.source: GpuSource | None = None
        """The source, once it was made (`open`)."""
        self._asked: float | None = None
        self.gpus: tuple[Gpu, ...] = ()
        """The GPUs that can be decided about."""
        self.all: tuple[Gpu, ...] = ()
        """All GPUs that are there."""
        self.seen: dict[str, Gpu] = {}
        """Every GPU that was ever there, by uuid."""
        self.instances = Instances()
        """Instances of all GPUs of the node, and the GPUs that have none; also of GPUs that are not ours."""
        self.failed = False
        """Whether the GPUs in `all` could not be asked last time."""

    @property
    def known(self) -> bool:
        """Whether the source has been asked."""
        return self._asked is not None

    @property
    def note(self) -> str:
        """Problem that the source found, in plain words."""
        return self.source.note if self.source else ""

    @property
    def unhealthy(self) -> frozenset[str]:
        """Uuids of GPUs that do not work, or are gone."""
        return frozenset(gpu.uuid for gpu in self.seen.values() if not gpu.healthy)

    @property
    def devices(self) -> frozenset[Device]:
        """All that device rules must cover, also before the source is asked: GPUs have their nodes earlier than NVML.

        ``always`` are those that are covered whatever the source finds: a driver that does not answer after a restart
        must not open the devices that it does not report.
        """
        return frozenset(gpu.device for gpu in self.seen.values() if gpu.device) | _nodes() | self._always

    def open(self) -> None:
        """Make the source; raises OSError or ValueError."""
        if self.source is None:
            self.source = self._open()

    def take(self, *, now: bool = False) -> bool:
        """Ask the source; return whether anything changed. Real GPUs are asked again after `INTERVAL`, or ``now``."""
        self.open()
        assert self.source is not None
        fresh = self._asked is not None and time.monotonic() - self._asked < INTERVAL
        if fresh and not now and not self.source.simulated:
            return False
        found = self.source.inventory()
        self.instances = self.instances.learn(self.source.instances() if isinstance(self.source, HasInstances) else {})
        self._asked = time.monotonic()
        # All of them gone at once is the driver, not the GPUs: nothing is taken away because of it, nothing granted.
        self.failed = not found and bool(self.all)
        if self.failed:
            health = self.note or NO_ANSWER
            found = tuple(replace(gpu, healthy=False, health=health) for gpu in self.all)
        changed = found != self.all
        if changed:
            vanished = self.seen.keys() - {gpu.uuid for gpu in found}
            self.seen.update({uuid: replace(self.seen[uuid], healthy=False, health=_VANISHED) for uuid in vanished})
            self.seen.update({gpu.uuid: gpu for gpu in found})
            self.all, self.gpus = found, self._choose(found)
        return changed

    def loads(self, uuids: frozenset[str]) -> Mapping[str, GpuLoad]:
        """Return the present load of those GPUs."""
        return self.source.loads(uuids) if self.source and uuids else {}

    def details(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Return what is known of those GPUs beside their load."""
        return self.source.details(uuids) if self.source and uuids else {}

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids of the programs that use those GPUs; a GPU for which the driver tells none is missing."""
        return self.source.users(uuids) if uuids and isinstance(self.source, ReportsUsers) else {}

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use of those GPUs in the last ``seconds``, in per cent; missing where it is not known."""
        return self.source.peaks(uuids, seconds) if uuids and isinstance(self.source, ReportsPeaks) else {}

    def holders(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids for which the driver itself keeps those GPUs; a GPU for which it keeps no record is missing."""
        return self.source.holders(uuids) if uuids and isinstance(self.source, ReportsHolders) else {}

    def buses(self) -> Mapping[str, str]:
        """Return PCI addresses by uuid, without the function, where the source knows them."""
        return self.source.buses() if isinstance(self.source, ReportsBuses) else {}

    def helpers(self) -> frozenset[int]:
        """Return pids of the processes that ask the driver, for all servers of the machine."""
        return self.source.processes() if self.source else frozenset()

    def close(self) -> None:
        """Close the source."""
        if self.source is not None:
            self.source.close()


def _nodes() -> frozenset[Device]:
    """Find the device nodes of NVIDIA GPUs without their driver."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/dev"):
            if _NODE.fullmatch(entry.name):
                about = Path(entry.path).lstat()
                if stat.S_ISCHR(about.st_mode):
                    found.add(Device(os.major(about.st_rdev), os.minor(about.st_rdev)))
    return frozenset(found)
