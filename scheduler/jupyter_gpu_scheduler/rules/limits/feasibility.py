"""Whether a pod could use more GPUs at all, whatever its limit.

Only the wish and the GPUs that are there decide, not what was answered before: an answer changes with the allowance,
and an allowance that followed it would never come to rest.
"""

from __future__ import annotations

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot


def can_use_more(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Tell whether a node, were all of it free, could serve a pod's whole wish, and the pod waits for GPUs only."""
    if pod.requested is None or pod.blocked:
        return False
    wish = pod.requested.wish
    if pod.node and pod.lacks:
        gpus = tuple(gpu for gpu in snapshot.gpus(pod.node) or () if gpu.uuid not in pod.lacks)
        return refuse(wish, limit=None, gpus=gpus) is None
    known = snapshot.gpu_memo(("feasible", wish))
    if pod.node:
        return _known(snapshot, wish, pod.node, known)
    return any(_known(snapshot, wish, node, known) for node in snapshot.nodes())


def _known(snapshot: ClusterSnapshot, wish: Wish, node: str, known: dict[str, bool]) -> bool:
    if node not in known:
        known[node] = refuse(wish, limit=None, gpus=snapshot.gpus(node) or ()) is None
    return known[node]
