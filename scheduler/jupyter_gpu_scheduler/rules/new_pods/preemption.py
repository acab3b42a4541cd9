"""Preemption: whether ending pods would give a more important pod its GPUs. If it would not, no pod is ended.

kube-scheduler chooses victims by what it knows: CPU, memory, slots. It needs all of them for these, so its choice on a
node is accepted as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, unacceptable
from jupyter_gpu_scheduler.rules.queue.fit_cache import fit_on, known_fits
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot


def helpful(snapshot: ClusterSnapshot, pod: PodState, victims: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the nodes where ``pod`` could start once their ``victims``, by uid, have ended and closed what they hold.

    Pods ahead of it there are served first, as always. Nodes without victims are left out: no pod would end.
    """
    if unacceptable(pod) is not None:
        return ()
    return tuple(node for node, uids in victims.items() if uids and _helps(snapshot, pod, node, uids))


def _helps(snapshot: ClusterSnapshot, pod: PodState, node: str, uids: Sequence[str]) -> bool:
    if snapshot.gpus(node) is None or not acceptable(pod, snapshot.facts(node)):
        return False
    ended = [state for uid in uids if (state := snapshot.pod(uid)) and state.node == node]
    gpus, facts = snapshot.gpus(node) or (), snapshot.facts(node)
    slots = max(0, facts.used.get(SLOT, 0) - sum(state.slots for state in ended if not state.finished))
    try:
        snapshot.put_node(node, gpus, replace(facts, used={**facts.used, SLOT: slots}))
        for state in ended:
            snapshot.remove_pod(state.uid)
        return fit_on(snapshot, pod, node, known_fits(snapshot, pod))[0].fits
    finally:
        snapshot.put_node(node, gpus, facts)
        for state in ended:
            snapshot.put_pod(state)
