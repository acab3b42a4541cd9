"""The GPUs that a notebook can expect later: it can only get those of its own node.

Its part is what is free there, or will be soon, divided among all pods there that may still grow. A pod without GPUs is
expected to want as many as a typical wish; a pod that has some, so many fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import fits
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .policy import UNKNOWN, Policy, preferred

_ANY = Wish(0)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The supply and demand of a node's pods together; amounts in milli."""

    supply: int = 0
    """Free milli, now or soon, not promised to any pod."""
    demand: float = 0.0
    """Milli that the pods there may still want."""
    typical: float = MILLI_PER_GPU
    """Milli that one more pod without GPUs may want."""
    preferred: float = UNKNOWN
    """The policy's preference for what is free, 0 to 1."""

    def with_more(self, pods: float) -> Expectation:
        """Return the expectation once ``pods`` more have come, without GPUs."""
        return replace(self, demand=self.demand + pods * self.typical)

    @property
    def of_one_more(self) -> float:
        """Rating of the node for one more pod that has nothing yet, 0 to 1: 1/2 where it gets what is typical."""
        return self.supply / (self.supply + self.demand + self.typical)

    def of_others(self, taken: int) -> float:
        """Rate the node for its present pods once ``taken`` is gone, 0 to 1; 1 where none of them may grow."""
        if not self.demand:
            return 1.0
        left = max(0, self.supply - taken)
        return left / (left + self.demand)


def expectation(snapshot: ClusterSnapshot, node: str, policy: Policy, wish: Wish | None = None) -> Expectation:
    """Return the expectation for a node's GPUs of the model and memory that ``wish`` asks for; without one, for all."""
    sought = _ANY if wish is None else Wish(0, memory=wish.memory, model=wish.model, vendor=wish.vendor)
    answers: dict[str, Expectation] = snapshot.memo(("expectation", policy, sought))
    found = answers.get(node)
    if found is None:
        found = answers[node] = _expectation(snapshot, node, policy, sought)
    return found


def _expectation(snapshot: ClusterSnapshot, node: str, policy: Policy, sought: Wish) -> Expectation:
    liked = _liked(snapshot, node, policy, sought)
    left = dict.fromkeys(liked, MILLI_PER_GPU)
    pods = [pod for pod in snapshot.pods(node) if not pod.gone]
    typical = _typical(policy)
    demand = 0.0
    for pod in pods:
        keeps = _keeps(pod)
        for uuid, milli in keeps.items():
            if uuid in left:
                left[uuid] = max(0, left[uuid] - milli)
        demand += _may_want(pod, typical, sum(keeps.values()))
    free = sum(left.values())
    able = [gpu for gpu in snapshot.gpus(node) or () if gpu.uuid in liked]
    promised = sum(_owed(pod, able) for pod in (*pods, *snapshot.nominated(node)) if pod.waits)
    return Expectation(
        supply=max(0, free - promised),
        demand=demand,
        typical=typical,
        preferred=sum(left[uuid] * like for uuid, like in liked.items()) / free if free else UNKNOWN,
    )


def _liked(snapshot: ClusterSnapshot, node: str, policy: Policy, sought: Wish) -> Mapping[str, float]:
    """Return the preference for each GPU of a node that works and fits a wish, by uuid."""
    answers: dict[str, Mapping[str, float]] = snapshot.gpu_memo(("liked", policy, sought))
    found = answers.get(node)
    if found is None:
        found = answers[node] = {
            gpu.uuid: preferred(policy, gpu.model, snapshot.priority(gpu.uuid), slow=gpu.slow)
            for gpu in snapshot.gpus(node) or ()
            if gpu.healthy and fits(gpu, sought, MILLI_PER_GPU)
        }
    return found


def _keeps(pod: PodState) -> Mapping[str, int]:
    """Return what a pod goes on to hold: not what it is giving back, nor what it holds only until it has ended."""
    if pod.allocated is None:
        return pod.held
    return {share.uuid: share.milli for share in pod.allocated.shares}


def _owed(pod: PodState, able: list[Gpu]) -> int:
    """Return the milli a pod that waits gets before any later pod, if it could use one of these GPUs; else 0."""
    wish = pod.wish
    if wish is None or pod.blocked or pod.fault:
        return 0
    usable = wish.milli and any(fits(gpu, wish, wish.pieces[0]) for gpu in able)
    return max(0, wish.milli - sum(_keeps(pod).values())) if usable else 0


def _may_want(pod: PodState, typical: float, keeps: int) -> float:
    """Return the milli a pod may want beyond what it ``keeps`` or is owed; a pod at its limit wants no more."""
    may = typical if pod.limit is None else min(typical, pod.limit)
    if pod.cut:
        return 0.0
    wished = pod.requested.milli if pod.requested and not pod.fault else 0
    return max(0.0, may - max(wished, keeps))


@lru_cache(maxsize=64)
def _typical(policy: Policy) -> float:
    """Return the milli of the mean wish of the policy's mix."""
    kinds = [kind for kind in policy.workload if kind.wish and kind.wish.milli]
    shares = sum(kind.share for kind in kinds)
    return sum(kind.share * kind.wish.milli for kind in kinds if kind.wish) / shares if shares else MILLI_PER_GPU
