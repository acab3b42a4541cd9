"""Places for new pods: nodes with the GPUs, and nodes that take the pod while another gives it the GPUs by a worker.

On a node that can serve the whole wish itself, a pod gets that node's GPUs, whatever another pair would weigh: a part
on another node would come home at once. On the others it gets those of the best other node, or where no other node has
them all, what its own node has and the rest of the best other one (`pairs.joint`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.joint import joints, serves_jointly
from jupyter_gpu_scheduler.rules.pairs.terms import BILLION, POINTS
from jupyter_gpu_scheduler.rules.queue.candidates import FilterResult, filter_nodes
from jupyter_gpu_scheduler.rules.queue.fit_cache import wanted
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import NONE_COMING, part_expected, prioritize, scores_of
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .guests import guest_nodes

MOST = 100
"""Nodes with the GPUs of another that kube-scheduler may choose from: more would only make its questions longer."""


def places(snapshot: ClusterSnapshot, chooser: PairChooser, pod: PodState, names: Sequence[str]) -> FilterResult:
    """Sort ``names`` as `filter_nodes` does, where another node may give the pod its GPUs, too.

    Nodes that fit by themselves come first, then those of the `MOST` best pairs. If there are none, those where the pod
    could be a guest.
    """
    found = _with_gpus(snapshot, chooser, pod, names)
    if found.fitting or not (guests := guest_nodes(snapshot, pod, names)):
        return found
    failed = {name: why for name, why in found.failed.items() if name not in guests}
    return FilterResult(guests, failed, found.never, as_guest=True)


def _with_gpus(snapshot: ClusterSnapshot, chooser: PairChooser, pod: PodState, names: Sequence[str]) -> FilterResult:
    found = filter_nodes(snapshot, pod, names)
    if not pod.anywhere or len(found.fitting) == len(names) or not is_first(snapshot, chooser, pod):
        return found
    best = _best(chooser, pod, {**found.failed, **found.never})
    if not best:
        return found
    failed, never = dict(found.failed), dict(found.never)
    for name in best:
        failed.pop(name, None)
        never.pop(name, None)
    return FilterResult((*found.fitting, *best), failed, never)


def fits_apart(chooser: PairChooser, pod: PodState) -> bool:
    """Tell whether a waiting pod could go to a node that kube-scheduler offered while another gives it the GPUs."""
    names = pod.offered.names if pod.anywhere and pod.offered else ()
    return bool(names) and (chooser.serves(pod, names) or serves_jointly(chooser, pod, names))


def next_of_kinds(snapshot: ClusterSnapshot) -> Iterator[PodState]:
    """Yield the next pod of each kind that waits for GPUs which another node may give, too."""
    for line in tuple(snapshot.kinds().values()):
        waiting = (pod for uid in line if (pod := snapshot.pod(uid)) and not pod.blocked)
        found = next(waiting, None)
        if found and found.anywhere:
            yield found


def is_first(snapshot: ClusterSnapshot, chooser: PairChooser, pod: PodState) -> bool:
    """Tell whether another node may give a pod GPUs: none that waits before it could have such, too.

    They wait in lines of other nodes than the one that gives the GPUs, so that node's line does not tell.
    """
    before = (other for other in next_of_kinds(snapshot) if other.uid != pod.uid and other.rank < pod.rank)
    return not any(fits_apart(chooser, other) for other in before)


def rate(
    snapshot: ClusterSnapshot,
    chooser: PairChooser,
    pod: PodState,
    names: Sequence[str],
    policy: Policy,
    coming: Mapping[str, float] = NONE_COMING,
) -> dict[str, int]:
    """Return 0 to 10 for each of ``names`` as `prioritize` does, with its own GPUs or those of the best other node.

    A pod that wants no GPU yet is rated by those that it can expect later, of its own node first; so is one that no
    node can serve, where it could be a guest.
    """

    def apart(scores: Mapping[str, float]) -> Mapping[str, float]:
        if pod.anywhere and wanted(pod) is None:
            part = part_expected(policy)
            return chooser.expected(pod).raise_scores(scores, coming, part) if part else {}
        if not pod.anywhere:
            return {}
        network = _as_scores(policy, chooser.network(pod, list(scores)))
        own = {name: scores[name] + more for name, more in network.items()}
        others = [name for name in names if name not in scores]
        return own | _as_scores(policy, _points(chooser, pod, others) if others else {})

    scores = prioritize(snapshot, pod, names, policy, coming, apart)
    if not any(scores.values()) and (guests := guest_nodes(snapshot, pod, names)):
        scores |= prioritize(snapshot, replace(pod, requested=None), guests, policy, coming)
    return scores


def _as_scores(policy: Policy, points: Mapping[str, int]) -> dict[str, float]:
    unit = POINTS * BILLION
    return scores_of(policy, {name: found / unit for name, found in points.items()})


def _best(chooser: PairChooser, pod: PodState, names: Collection[str]) -> Sequence[str]:
    """Return the best `MOST` of ``names`` with GPUs of another node; of equals the first by name."""
    if chooser.givers(pod) > 1:  # so each that can take the pod has another one, which gives all: none gives a part
        return chooser.best_beside(pod, names, MOST)
    points = _points(chooser, pod, list(names))
    return sorted(points, key=lambda name: (-points[name], name))[:MOST]


def _points(chooser: PairChooser, pod: PodState, names: Sequence[str]) -> dict[str, int]:
    """Return the billionths of points of those of ``names`` that can take a pod with GPUs of another node."""
    points = chooser.points(pod, names)
    if len(points) == len(names) or chooser.givers(pod) > 1:
        return points
    left = [name for name in names if name not in points]
    return points | {name: one.points for name, one in joints(chooser, pod, left).items()}
