"""Pure: which GPU has a guest: a preemptible pod that waits for a part of a GPU, while those who have this one rest.

A guest takes no milli in the books, and memory that no pod has there: none is left beside a whole GPU that is not
lendable. So it goes only where owners have booked less of the memory than there is, and it goes away when one of them
works, or when a waiting pod could use what it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.demand import HeldMemory, part
from jupyter_gpu.model.feasible import fits
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.use_class import UseClass, use_class
from jupyter_gpu_scheduler.rules.state.books import free_memory
from jupyter_gpu_scheduler.rules.state.pod_state import PodState


@dataclass(frozen=True, slots=True)
class Host:
    """One GPU as guests see it."""

    gpu: Gpu
    milli: Mapping[str, int]
    """Milli that each pod holds there, by uid."""
    memory: Mapping[str, HeldMemory]
    """Memory that pods hold there, by uid, where a share records it."""
    working: Collection[str]
    """UIDs of the pods that may use it now."""
    wanted_by: Collection[str]
    """UIDs of the waiting pods that it could serve if more of it were free."""
    ahead: Collection[str] = ()
    """UIDs of the pods that come before it in line."""
    used_outside: bool = False
    """Whether a program uses it that was not granted it."""

    def has_room(self, uid: str, needed: int) -> bool:
        """Tell whether that pod may be the guest here, with so many bytes."""
        others = {pod: milli for pod, milli in self.milli.items() if pod != uid}
        owners = {pod: milli for pod, milli in others.items() if milli}
        if self.used_outside or not owners or self.milli.get(uid) or self._has_other_guest(uid):
            return False
        if not owners.keys().isdisjoint(self.working):
            return False
        if any(self._could_use(pod, owners) for pod in self.wanted_by if pod != uid):
            return False
        return needed <= free_memory(self.gpu.memory, self.milli, self.memory, without=uid)

    def _could_use(self, pod: str, owners: Mapping[str, int]) -> bool:
        """Tell whether memory would serve a waiting pod here: where time is free, or it has all, or comes first."""
        has = owners.get(pod, 0)
        return sum(owners.values()) < MILLI_PER_GPU or has == MILLI_PER_GPU or (has > 0 and pod in self.ahead)

    def _has_other_guest(self, uid: str) -> bool:
        return any(pod != uid and not self.milli.get(pod) for pod in self.memory)


def may_be_guest(pod: PodState, wish: Wish) -> bool:
    """Tell whether a pod that gets nothing of its ``wish`` may be a guest: it wishes one part of a GPU."""
    return not pod.blocked and pod.preemptible and len(wish.pieces) == 1 and wish.pieces[0] < MILLI_PER_GPU


def guest_share(pod: PodState, wish: Wish, hosts: Iterable[Host]) -> GpuShare | None:
    """Return the guest's share of such a pod, on the GPU where it is a guest already if it may stay; None: none."""
    before = {share.uuid for share in pod.allocated.shares if share.guest} if pod.allocated else set()
    found = []
    for host in hosts:
        gpu = host.gpu
        needed = wish.memory or part(gpu.memory, wish.milli)
        able = gpu.healthy and gpu.gate and not gpu.slow and fits(gpu, wish, wish.milli)
        if able and needed and host.has_room(pod.uid, needed):
            found.append((gpu.uuid not in before, gpu.index, GpuShare(gpu.uuid, 0, needed)))
    return min(found)[2] if found else None


def working(pods: Iterable[PodState], uuid: str) -> frozenset[str]:
    """Return the uids of those of ``pods`` whose programs use a GPU now."""
    return frozenset(pod.uid for pod in pods if use_class(uuid, pod.busy, pod.resting) is UseClass.WORKING)
