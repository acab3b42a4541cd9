"""A recorded cluster in the form of Alibaba's openb trace: its nodes, its pods, and the order in which they come.

The files are not part of this project: `nodes.csv` and `pods_default.csv`, `pods_cpu250.csv` and so on, from
https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2023).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, MEMORY, SLOT, ClusterSnapshot, NodeFacts

MIB = 1024**2
Nodes = Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]]
_SLOTS = 1000


def cluster(nodes: Nodes) -> ClusterSnapshot:
    """Return a snapshot of the nodes without any pod."""
    snapshot = ClusterSnapshot()
    for name, (gpus, facts) in nodes.items():
        snapshot.put_node(name, gpus, facts)
    return snapshot


def capacity(nodes: Nodes) -> int:
    """Return the milli of all GPUs."""
    return MILLI_PER_GPU * sum(len(gpus) for gpus, _ in nodes.values())


def facts(cpu: int, memory: int) -> NodeFacts:
    """Return the facts of a node with so many milli of CPU and bytes, and slots enough."""
    return NodeFacts(allocatable={CPU: cpu, MEMORY: memory, SLOT: _SLOTS})


def read_nodes(file: Path) -> Nodes:
    """Read the nodes of a trace: sn, cpu_milli, memory_mib, gpu, model."""
    with file.open(newline="") as lines:
        return {
            row["sn"]: (
                tuple(Gpu(f"{row['sn']}-{n}", n, row["model"], 32 * 1024 * MIB) for n in range(int(row["gpu"]))),
                facts(int(row["cpu_milli"]), int(row["memory_mib"]) * MIB),
            )
            for row in csv.DictReader(lines)
        }


def with_gpus(nodes: Nodes) -> Nodes:
    """Return the nodes that have a GPU, as the published figures of other schedulers count them."""
    return {name: node for name, node in nodes.items() if node[0]}


def endless(nodes: Nodes) -> Nodes:
    """Return the nodes with more CPU and memory than all pods could take: the bound of any placement of them."""
    return {name: (gpus, facts(10**12, 2**60)) for name, (gpus, _) in nodes.items()}


def sample(nodes: Nodes, part: float) -> Nodes:
    """Return a regular sample of the nodes."""
    step = max(1, round(1 / part))
    return {name: nodes[name] for number, name in enumerate(nodes) if number % step == 0}


def read_pods(file: Path) -> list[PodState]:
    """Read the pods of a trace: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec."""
    with file.open(newline="") as lines:
        return [
            PodState(
                row["name"],
                requested=Requested(1, _wish(int(row["num_gpu"]), int(row["gpu_milli"]), row["gpu_spec"])),
                slots=1 if int(row["num_gpu"]) else 0,
                asks={CPU: int(row["cpu_milli"]), MEMORY: int(row["memory_mib"]) * MIB},
            )
            for row in csv.DictReader(lines)
        ]


def _wish(count: int, milli: int, models: str) -> Wish:
    amount = milli if count == 1 else 1000 * count
    return Wish(amount, model=tuple(models.split("|")) if models else ())


def drawn(pods: Sequence[PodState], wished: float, seed: int) -> Iterator[PodState]:
    """Yield pods drawn from ``pods`` until they wished for ``wished`` milli."""
    return _until(_draw(pods, random.Random(seed)), wished)


def shuffled(pods: Sequence[PodState], wished: float, seed: int) -> Iterator[PodState]:
    """Yield each of ``pods`` once, in any order, then drawn ones, until they wished for ``wished`` milli."""
    chance = random.Random(seed)
    return _until(_all_then_drawn(pods, chance), wished)


def _draw(pods: Sequence[PodState], chance: random.Random) -> Iterator[PodState]:
    while True:
        yield chance.choice(pods)


def _all_then_drawn(pods: Sequence[PodState], chance: random.Random) -> Iterator[PodState]:
    yield from chance.sample(pods, len(pods))
    yield from _draw(pods, chance)


def _until(pods: Iterator[PodState], wished: float) -> Iterator[PodState]:
    total = number = 0
    while total < wished:
        pod = next(pods)
        total += pod.requested.milli if pod.requested else 0
        yield replace(pod, uid=f"pod-{number}", created=float(number))
        number += 1
