"""Figures of a pod's workers, as told to the server or measured: bytes, round trips, loads and kinds of GPUs. Pure.

Each process tells how much it has shipped since it began, so a message that is lost or comes twice changes nothing.
What a process had shipped still counts when it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.view import GpuLoad, Sample, View

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from jupyter_gpu.model.gpu_kind import GpuKind
    from jupyter_gpu.model.pod_worker import PodWorker

MAX_PROCESSES = 256
"""Processes whose bytes are counted at a time."""

Shipped = Mapping[str, int]
"""Bytes by the id of a worker, there and back."""


class Traffic:
    """The figures of one pod's workers. Each method that changes them returns whether something is new to see."""

    def __init__(self) -> None:
        self._shipped: dict[ReservationOwner, dict[str, int]] = {}
        self._ended: dict[str, int] = {}
        """Bytes of processes that have ended."""
        self._round_trips: dict[str, int] = {}
        self._loads: dict[str, Mapping[str, GpuLoad]] = {}
        self._kinds: dict[str, dict[str, GpuKind]] = {}
        self._missed: frozenset[str] = frozenset()
        """The uuids of GPUs whose kind was not known when the workers were asked last."""

    def tell(self, owner: ReservationOwner, shipped: Shipped, workers: Collection[str]) -> bool:
        """Take over what a process says that it shipped to some of ``workers``. Raises `InvalidRequest`."""
        if owner not in self._shipped and len(self._shipped) >= MAX_PROCESSES:
            raise InvalidRequest(gettext("%1 processes count their bytes already.", MAX_PROCESSES), field="owner")
        before = self._shipped.get(owner, {})
        after = {name: max(count, before.get(name, 0)) for name, count in shipped.items() if name in workers}
        self._shipped[owner] = before | after
        return self._shipped[owner] != before

    def end(self, owner: ReservationOwner) -> None:
        """Count what a process has shipped among that of those that ended."""
        for name, count in self._shipped.pop(owner, {}).items():
            self._ended[name] = self._ended.get(name, 0) + count

    def measure(self, worker: str, round_trip: int | None) -> bool:
        """Take over the microseconds of an answer; None: there was none."""
        before = self._round_trips.pop(worker, None)
        if round_trip is not None:
            self._round_trips[worker] = round_trip
        return before != round_trip

    def load(self, worker: str, loads: Mapping[str, GpuLoad], kinds: Mapping[str, GpuKind]) -> bool:
        """Take over what a worker says of its GPUs. Kinds stay what they are, also if it says none."""
        self._loads[worker] = loads
        before = self._kinds.get(worker, {})
        self._kinds[worker] = {**before, **kinds}
        return self._kinds[worker] != before

    def asks_now(self, view: View) -> bool:
        """Tell whether a worker has a GPU whose kind it was not asked for yet."""
        missed = frozenset(
            share.uuid
            for worker in view.workers
            for share in worker.gpus
            if share.uuid not in self._kinds.get(worker.id, {})
        )
        new, self._missed = missed - self._missed, missed
        return bool(new)

    def keep(self, workers: Collection[str]) -> None:
        """Forget the workers that are gone: an id is of one worker only."""
        known: list[dict[str, Any]] = [
            self._ended,
            self._round_trips,
            self._loads,
            self._kinds,
            *self._shipped.values(),
        ]
        for figures in known:
            for name in figures.keys() - set(workers):
                del figures[name]

    def added(self, view: View) -> View:
        """Return ``view`` with what is known of its workers."""
        if not view.workers:
            return view
        return replace(view, workers=tuple(self._with_figures(worker) for worker in view.workers))

    def sampled(self, sample: Sample, view: View) -> Sample:
        """Return ``sample`` with the loads of the GPUs that the view's workers have."""
        told = {
            share.uuid: self._loads[worker.id][share.uuid]
            for worker in view.workers
            for share in worker.gpus
            if share.uuid in self._loads.get(worker.id, {})
        }
        return sample._replace(loads={**told, **sample.loads}) if told else sample

    def _with_figures(self, worker: PodWorker) -> PodWorker:
        from jupyter_gpu.model.pod_worker import Stage

        counts = [known[worker.id] for known in (self._ended, *self._shipped.values()) if worker.id in known]
        shipped = min(sum(counts), strict.MAX_GENERATION) if counts else None
        round_trip = self._round_trips.get(worker.id) if worker.stage is Stage.READY else None
        told = self._kinds.get(worker.id, {})
        kinds = tuple(told[share.uuid] for share in worker.gpus if share.uuid in told)
        known = kinds if len(kinds) == len(worker.gpus) else ()
        return worker._replace(shipped=shipped, round_trip=round_trip, kinds=known)
