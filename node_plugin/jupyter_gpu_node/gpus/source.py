"""Sources of a machine's GPUs: real ones (`nvml`, `amd`) or simulated ones (`simulated`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules.instances import InstancesByGpu

if TYPE_CHECKING:  # loaded already where a choice is set; on one machine none is
    from jupyter_gpu_node.gpus.rules.managed import Choice

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import Reading


class GpuSource(Protocol):
    """The GPUs of this machine. No call blocks for longer than a few seconds; none raises for a broken GPU."""

    simulated: bool

    @property
    def note(self) -> str:
        """Plain words about what `inventory` found wrong last time, such as why it is empty; else empty."""

    def inventory(self) -> tuple[Gpu, ...]:
        """Return all GPUs by index, healthy or not; one that is gone is missing."""

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the load of those of the named GPUs that exist."""

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """Return figures of the named GPUs beside their load, some seconds old at most.

        The first call of a while may know nothing yet: slow measurements run when no caller waits for them.
        """

    def processes(self) -> frozenset[int]:
        """Return pids of helpers of this kind, of all servers: they have GPUs open without using them.

        A search for holders leaves out those that run outside every pod: inside, any process could pose as one.
        """

    def close(self) -> None:
        """Let go of processes and files; the source is not used after that. Safe to call twice."""


@runtime_checkable
class HasInstances(Protocol):
    """A source that knows which of its GPUs are divided into instances (MIG)."""

    def instances(self) -> InstancesByGpu:
        """Return the instances as of the last `GpuSource.inventory`."""


@runtime_checkable
class ReportsUsers(Protocol):
    """A source that knows the users of its GPUs."""

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids by uuid; a GPU whose users are not known is missing."""


@runtime_checkable
class ReportsPeaks(Protocol):
    """A source that knows how much its GPUs were used at most."""

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return per cent by uuid for the last ``seconds``; a GPU of which that is not known is missing."""


@runtime_checkable
class ReportsHolders(Protocol):
    """A source whose driver keeps a GPU for a process that has closed the GPU's own device, and records that."""

    def holders(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids by uuid, as the machine counts them: no GPU is released while one of these is left."""


@runtime_checkable
class ReportsBuses(Protocol):
    """A source that knows where on the PCI bus its GPUs are, by which other plugins name them."""

    def buses(self) -> Mapping[str, str]:
        """Return PCI addresses without the function by uuid, as of the last `GpuSource.inventory`."""


class OurGpus:
    """The managed GPUs of a source: the others are not reported, and never given out."""

    def __init__(self, source: GpuSource, choice: Choice) -> None:
        self._source = source
        self._choice = choice
        self.simulated = source.simulated

    @property
    def note(self) -> str:
        """Note of the source."""
        return self._source.note

    def inventory(self) -> tuple[Gpu, ...]:
        """Return our GPUs, by index."""
        return tuple(gpu for gpu in self._source.inventory() if self._choice.includes(gpu))

    def instances(self) -> InstancesByGpu:
        """Return the instances from the source, also those of GPUs that are not ours."""
        return self._source.instances() if isinstance(self._source, HasInstances) else {}

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the loads from the source."""
        return self._source.loads(uuids)

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """Return the details from the source."""
        return self._source.details(uuids)

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use that the source knows, if it does."""
        return self._source.peaks(uuids, seconds) if isinstance(self._source, ReportsPeaks) else {}

    def holders(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return the holders that the driver records, if it does."""
        return self._source.holders(uuids) if isinstance(self._source, ReportsHolders) else {}

    def buses(self) -> Mapping[str, str]:
        """Return the PCI addresses that the source knows, also of GPUs that are not ours."""
        return self._source.buses() if isinstance(self._source, ReportsBuses) else {}

    def processes(self) -> frozenset[int]:
        """Return the helpers of the source."""
        return self._source.processes()

    def close(self) -> None:
        """Close the source as well."""
        self._source.close()
