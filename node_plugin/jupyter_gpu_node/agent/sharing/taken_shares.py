"""Shares that were taken away: from which pods, why, and whether their users have asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from jupyter_gpu_node.agent.metrics import Metrics
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.sharing.rules.served import TakenShare
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.shares.rules.share_file import ShareKey

TAKEN, STOPPED = "GpuShareTaken", "GpuShareStopped"


class TakenShares:
    """The taken shares of one node.

    ``pods`` returns its pods; ``tell`` makes a pod's Event from reason and message.
    """

    def __init__(
        self,
        pods: Callable[[], Mapping[str, ManagedPod]],
        tell: Callable[[PodRef, str, str], None],
        metrics: Metrics,
    ) -> None:
        self._pods = pods
        self._tell = tell
        self._metrics = metrics
        self._known: dict[ShareKey, TakenShare] = {}
        self.restoring = False
        """Whether what is added now was recorded by an earlier process."""

    @property
    def known(self) -> frozenset[ShareKey]:
        """All taken shares, also those whose users have asked again."""
        return frozenset(self._known)

    @property
    def in_force(self) -> frozenset[ShareKey]:
        """The taken shares whose users have not asked again."""
        pods = self._pods()
        for key, found in self._known.items():
            self._known[key] = _dated(found, pods.get(key[1]))
        return frozenset(
            (gpu, uid) for (gpu, uid), found in self._known.items() if _is_in_force(pods.get(uid), gpu, found)
        )

    def of(self, uid: str) -> Mapping[str, str]:
        """Return, by GPU, why that pod's share of it was taken away, until its user asks again."""
        return {gpu: self._known[gpu, pod].reason for gpu, pod in sorted(self.in_force) if pod == uid}

    def add(self, gpu: str, uid: str, reason: str) -> None:
        """Take a share away from now on, with an Event and a step for its pod."""
        if (gpu, uid) in self._known:
            return
        pod = self._pods().get(uid)
        if self.restoring or pod is None or pod.view is None:
            self._known[gpu, uid] = TakenShare(reason)
        else:
            allocated = pod.view.allocated
            given = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
            generation = allocated.observed_generation if allocated else None
            self._known[gpu, uid] = TakenShare(reason, generation, given.get(gpu))
            self._metrics.shares_taken.inc()
            self._tell(pod.view.ref, TAKEN, f"GPU {gpu}: {reason}")
        if pod:
            pod.wake.set()

    def stopped(self, gpu: str, uid: str, reason: str) -> None:
        """Publish an Event for the user of a share whose programs are stopped for a while."""
        self._metrics.share_stops.inc()
        pod = self._pods().get(uid)
        if pod and pod.view:
            self._tell(pod.view.ref, STOPPED, f"GPU {gpu}: {reason}")

    def forgive(self, keys: Iterable[ShareKey]) -> None:
        """Allow these shares to be had again."""
        for key in keys:
            self._known.pop(key, None)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.forgive([key for key in self._known if key[1] == uid])


def _dated(found: TakenShare, pod: ManagedPod | None) -> TakenShare:
    """Return it with the decision from which an earlier process took it: the one recorded before our first step."""
    if found.generation is not None or pod is None or pod.view is None or pod.attached is None:
        return found
    return replace(found, generation=pod.attached.observed_generation)


def _is_in_force(pod: ManagedPod | None, gpu: str, found: TakenShare) -> bool:
    if pod is None or pod.view is None or pod.view.problem:
        return True  # nothing is known of a new decision
    return found.is_in_force(gpu, pod.view.allocated)
