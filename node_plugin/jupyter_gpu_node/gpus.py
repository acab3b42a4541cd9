"""Where a machine's GPUs come from: real ones (:mod:`.nvml`) or simulated ones (:mod:`.fakes`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuLoad

from .instances import Told

if TYPE_CHECKING:  # whoever chooses has loaded it; on one machine nobody does
    from .managed_rules import Choice

if TYPE_CHECKING:  # loaded when somebody asks, not when a server starts
    from jupyter_gpu.model.details import Reading


class GpuSource(Protocol):
    """The GPUs of this machine. No call blocks for longer than a few seconds; none raises for a broken GPU."""

    simulated: bool

    @property
    def note(self) -> str:
        """Plain words about what :meth:`inventory` found wrong last time, such as why it is empty; else empty."""

    def inventory(self) -> tuple[Gpu, ...]:
        """All GPUs by index, healthy or not; one that is gone is missing."""

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Load of those of the named GPUs that exist."""

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """What is known of the named GPUs beside their load, some seconds old at most.

        The first call of a while may know nothing yet: what takes long is measured when nobody waits for it.
        """

    def processes(self) -> frozenset[int]:
        """Pids of helpers of this kind, of all servers: they have GPUs open without using them.

        Whoever looks for holders leaves those out that run outside every pod: inside, anybody could pose as one.
        """

    def close(self) -> None:
        """Let go of processes and files; the source is not used after that. Safe to call twice."""


@runtime_checkable
class Dividing(Protocol):
    """A source that knows which of its GPUs are divided into instances (MIG)."""

    def instances(self) -> Told:
        """As of the last :meth:`GpuSource.inventory`."""


class OurGpus:
    """Those of a source that are ours: of the others nothing is told, and nobody is given them."""

    def __init__(self, source: GpuSource, choice: Choice) -> None:
        self._source = source
        self._choice = choice
        self.simulated = source.simulated

    @property
    def note(self) -> str:
        """As of the source."""
        return self._source.note

    def inventory(self) -> tuple[Gpu, ...]:
        """Ours, by index."""
        return tuple(gpu for gpu in self._source.inventory() if self._choice.includes(gpu))

    def instances(self) -> Told:
        """As of the source: also those of GPUs that are not ours."""
        return self._source.instances() if isinstance(self._source, Dividing) else {}

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """As of the source."""
        return self._source.loads(uuids)

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """As of the source."""
        return self._source.details(uuids)

    def processes(self) -> frozenset[int]:
        """As of the source."""
        return self._source.processes()

    def close(self) -> None:
        """The source as well."""
        self._source.close()
