"""Pure: the room that there is on the GPUs of a node once bundles are parked, and which bundles make it for a step.

What is free, or is being given back, is room already; nobody is parked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.demand import booked, wished_bytes
from jupyter_gpu.model.feasible import fits
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.parked import Parkable

Order = tuple[bool, bool, bool, int, int, str, str]
"""Sorts bundles, the first to be parked first; no two have the same."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bundle that may be parked for others, or is ordered to be."""

    uid: str
    """Its pod's."""
    parkable: Parkable
    ordered: bool
    """Whether it is ordered already."""
    preemptible: bool
    """Whether its pod runs on what others do not use."""
    above: bool
    """Whether its owner has more than is guaranteed."""

    @property
    def order(self) -> Order:
        """Order of choice: ordered ones, preemptible pods, owners above their guarantee, longest rest, fewest bytes."""
        each = self.parkable
        return (not self.ordered, not self.preemptible, not self.above, each.since, each.bytes, self.uid, each.bundle)


class Step(NamedTuple):
    """A share that a pod waits for, on one GPU, and the bundles that are parked for it."""

    gpu: Gpu
    milli: int
    bytes: int
    leaving: tuple[Candidate, ...]


def last_first(steps: Iterable[Step]) -> list[Order]:
    """Return the key that sorts ways to make room, the best first: none is parked, or the last one is early enough."""
    return sorted((each.order for step in steps for each in step.leaving), reverse=True)


class Room:
    """The GPUs of one node, and what of them was promised or is to be parked so far."""

    def __init__(
        self, gpus: Mapping[str, Gpu], stays: Mapping[str, Iterable[GpuShare]], found: Iterable[Candidate]
    ) -> None:
        """Begin with the shares that pods keep (``stays``, by uid), and the bundles of them that may be parked."""
        self.leaving: dict[Order, Candidate] = {}
        """The bundles that are to be parked, in the order in which they were chosen."""
        self._milli = dict.fromkeys(gpus, MILLI_PER_GPU)
        self._bytes = {uuid: gpu.memory for uuid, gpu in gpus.items()}
        self._gpus = gpus
        self._shares: dict[tuple[str, str], GpuShare] = {}  # by uid and uuid
        self._on: dict[str, list[Candidate]] = {uuid: [] for uuid in gpus}
        for uid, shares in stays.items():
            for share in shares:
                self._shares[uid, share.uuid] = share
                self._change(share, -1)
        for candidate in sorted(found, key=lambda each: each.order):
            for uuid in candidate.parkable.uuids:
                self._on[uuid].append(candidate)

    def best(self, wish: Wish, size: int, uuids: Collection[str], only: Collection[Order] | None = None) -> Step | None:
        """Return how a share of ``size`` is best served on one of these GPUs; ``None``: it can't be.

        ``only``: the bundles that may be parked for it; ``None``: any.
        """
        steps = (step for uuid in uuids if (step := self._step(wish, size, self._gpus[uuid], only)))
        return min(steps, key=self._worth, default=None)

    def take(self, step: Step) -> None:
        """Promise a step: what it needs is for nobody else."""
        self._milli[step.gpu.uuid] -= step.milli
        self._bytes[step.gpu.uuid] -= step.bytes
        for candidate in step.leaving:
            self.leaving[candidate.order] = candidate
            for share in self._of(candidate):
                self._change(share, 1)

    def undo(self, steps: Sequence[Step]) -> None:
        """Take promises back, which were the last."""
        for step in steps:
            self._milli[step.gpu.uuid] += step.milli
            self._bytes[step.gpu.uuid] += step.bytes
            for candidate in step.leaving:
                del self.leaving[candidate.order]
                for share in self._of(candidate):
                    self._change(share, -1)

    def _step(self, wish: Wish, size: int, gpu: Gpu, only: Collection[Order] | None) -> Step | None:
        if not gpu.healthy or not fits(gpu, wish, size):
            return None
        needed = wished_bytes(gpu, wish, size)
        milli, memory, leaving = self._milli[gpu.uuid], self._bytes[gpu.uuid], list[Candidate]()
        for candidate in self._on[gpu.uuid]:
            if milli >= size and memory >= needed:
                break
            if candidate.order not in self.leaving and (only is None or candidate.order in only):
                share = self._shares[candidate.uid, gpu.uuid]
                milli, memory = milli + share.milli, memory + booked(gpu.memory, share.milli, share.memory)
                leaving.append(candidate)
        if milli < size or memory < needed:
            return None
        for candidate in leaving[::-1]:  # whoever rests longer may have made no difference
            share = self._shares[candidate.uid, gpu.uuid]
            less = memory - booked(gpu.memory, share.milli, share.memory)
            if milli - share.milli >= size and less >= needed:
                milli, memory = milli - share.milli, less
                leaving.remove(candidate)
        return Step(gpu, size, needed, tuple(leaving))

    def _worth(self, step: Step) -> tuple[list[Order], int, int]:
        """Return the key that sorts ways to serve a share, the best first."""
        return (last_first([step]), self._milli[step.gpu.uuid], step.gpu.index)

    def _of(self, candidate: Candidate) -> Iterator[GpuShare]:
        for uuid in candidate.parkable.uuids:
            yield self._shares[candidate.uid, uuid]

    def _change(self, share: GpuShare, sign: int) -> None:
        self._milli[share.uuid] += sign * share.milli
        self._bytes[share.uuid] += sign * booked(self._gpus[share.uuid].memory, share.milli, share.memory)
