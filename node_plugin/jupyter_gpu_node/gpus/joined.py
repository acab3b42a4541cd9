"""Several sources of GPUs as one: a machine with GPUs of several vendors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuLoad

from .rules.instances import InstancesByGpu
from .source import GpuSource, HasInstances, ReportsBuses, ReportsHolders, ReportsPeaks, ReportsUsers

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import Reading

T = TypeVar("T")


class JoinedSources:
    """The GPUs of several sources. Their indexes go on from one source to the next, and never move back."""

    simulated = False

    def __init__(self, sources: Sequence[GpuSource]) -> None:
        self._sources = tuple(sources)
        self._counts = [0] * len(self._sources)
        """Indexes that each source has used so far."""

    @property
    def note(self) -> str:
        """Notes of all sources."""
        return " ".join(filter(None, (source.note for source in self._sources)))

    def inventory(self) -> tuple[Gpu, ...]:
        """Return the GPUs of all sources."""
        found: list[Gpu] = []
        for place, source in enumerate(self._sources):
            gpus, first = source.inventory(), sum(self._counts[:place])
            found += [replace(gpu, index=first + gpu.index) for gpu in gpus]
            self._counts[place] = max([self._counts[place], *(gpu.index + 1 for gpu in gpus)])
        return tuple(found)

    def instances(self) -> InstancesByGpu:
        """Return the instances of the sources that have any."""
        return _merged(source.instances() for source in self._sources if isinstance(source, HasInstances))

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the loads from all sources."""
        return _merged(source.loads(uuids) for source in self._sources)

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """Return the details from all sources."""
        return _merged(source.details(uuids) for source in self._sources)

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return the users from the sources that know them."""
        return _merged(source.users(uuids) for source in self._sources if isinstance(source, ReportsUsers))

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use from the sources that know it."""
        return _merged(source.peaks(uuids, seconds) for source in self._sources if isinstance(source, ReportsPeaks))

    def holders(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return the holders from the sources whose driver records them."""
        return _merged(source.holders(uuids) for source in self._sources if isinstance(source, ReportsHolders))

    def buses(self) -> Mapping[str, str]:
        """Return the PCI addresses from the sources that know them."""
        return _merged(source.buses() for source in self._sources if isinstance(source, ReportsBuses))

    def processes(self) -> frozenset[int]:
        """Return the helpers of all sources."""
        return frozenset().union(*(source.processes() for source in self._sources))

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.close()


def _merged(answers: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {uuid: value for answer in answers for uuid, value in answer.items()}
