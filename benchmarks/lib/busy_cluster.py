"""A cluster of equal nodes with pods that run on them, as the scheduler's rules know it: no API server.

Of each node's GPUs about three quarters are wished for; on some nodes pods wait.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.pairs.relation import SWITCH_KEYS
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, SLOT, ClusterSnapshot, NodeFacts

PODS = 4
"""On each node."""
RACK = 32
"""Nodes on one switch."""
_AMOUNTS = (0, 250, 500, 1000, 1000, 1500, 2000, 2000, 3000, 4000)
_FACTS = NodeFacts(allocatable={SLOT: 50, CPU: 128_000})


def any_wish(chance: random.Random) -> Wish:
    """Return a wish of the usual mix."""
    topology = chance.choice((None, None, None, "island"))
    model = chance.choice(((), (), ("H100", "A100")))
    return Wish(chance.choice(_AMOUNTS), model=model, topology=topology, priority=chance.choice((None, None, 5)))


def running_pod(chance: random.Random, number: int, nodes: int) -> PodState:
    """Return the pod of a number, counted from 0, with a wish that is not decided yet."""
    return PodState(uid_of(number), f"node-{number % nodes}", Requested(1, any_wish(chance)), limit=4000)


def uid_of(number: int) -> str:
    """Return the uid of the pod of a number."""
    return f"pod-{number:05}"


def build(inventories: Mapping[str, tuple[Gpu, ...]], pods: Sequence[PodState]) -> ClusterSnapshot:
    """Return a snapshot of nodes and pods."""
    snapshot = ClusterSnapshot()
    for name, gpus in inventories.items():
        snapshot.put_node(name, gpus)
    for pod in pods:
        snapshot.put_pod(pod)
    return snapshot


def place(snapshot: ClusterSnapshot, names: Sequence[str], *, switches: bool) -> None:
    """Give the nodes slots and CPU, and put them on switches, or on none that is known."""
    for number, name in enumerate(names):
        labels = {SWITCH_KEYS[0]: f"switch-{number // RACK}"} if switches else {}
        snapshot.put_node(name, snapshot.gpus(name) or (), replace(_FACTS, labels=labels))


def step(snapshot: ClusterSnapshot, node: str) -> None:
    """Decide, record it, and let the node attach it."""
    for decision in decide(snapshot, node):
        pod = snapshot.pod(decision.uid)
        assert pod is not None
        after = decision.allocated
        attached = Attached(after.observed_generation, after.shares, revision=after.revision)
        snapshot.put_pod(replace(pod, allocated=decision.allocated, attached=attached))


def with_wish(pod: PodState, wish: Wish) -> PodState:
    """Return a pod with its next wish."""
    assert pod.requested
    return replace(pod, requested=Requested(pod.requested.generation + 1, wish))
