"""How many GPUs stay unused because of where pods were placed: each policy on the same stream of new pods. And how many
notebooks that started without a wish can be served at once later, where they were placed.

`scripts/bench placement` uses a synthetic cluster. On a recorded one, in the form of Alibaba's openb trace (`nodes.csv`
and `pods_default.csv`):

    python -m benchmarks.placement --trace DIR [--pods FILE] [--policy fgd] [--part 0.1] [--seed 0]
"""

import argparse
import csv
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.lib.simulated_cluster import Job, SimulationResult, at_once, replay
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.scoring.fragmentation import workload_of
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS, Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, MEMORY, SLOT, ClusterSnapshot, NodeFacts

from .lib.figures import Figure

_COMMAND = "scripts/bench placement"
_MIB = 1024**2
_GOAL = 10.0  # percent unallocated
_INFLATION = 1.3  # pods come until they wished for this much of all GPUs
_SLOTS = 1000
_EQUAL = "32 notebooks on 4 equal nodes of 8 GPUs"
Nodes = Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]]


def run() -> Sequence[Figure]:
    """Measure percent of all GPUs that are unallocated when 130 % were asked for; the baseline is packing."""
    nodes, pods = _synthetic(60), _notebooks()
    outcomes = {name: measure(nodes, pods, name, 0) for name in ("pack", "fgd", "spread")}
    packed = unallocated(outcomes["pack"])
    return [
        Figure(
            name=f"placement: GPUs left unallocated, {name}, {len(nodes)} nodes",
            unit="%",
            value=unallocated(outcomes[name]),
            command=_COMMAND,
            goal=_GOAL if name == "fgd" else None,
            baseline=packed,
        )
        for name in ("fgd", "spread")
    ] + [figure for name in ("fgd", "pack", "spread") for figure in _later(name)]


def _later(name: str) -> Sequence[Figure]:
    """Measure percent of the wishes of running notebooks that wait; the baseline ignores later wishes."""
    blind = {**PRESETS[name], "expected": 0.0, "left_for_others": 0.0}
    figures = []
    for what, nodes, wishes in _days():
        missed = {weights is blind: _missed(nodes, wishes, Policy(name, weights)) for weights in (blind, PRESETS[name])}
        figures.append(
            Figure(
                name=f"placement: later wishes that are not served at once, {name}, {what}",
                unit="%",
                value=missed[False],
                command=_COMMAND,
                goal=0.0 if what == _EQUAL else None,
                baseline=missed[True],
            )
        )
    return figures


def _missed(nodes: Nodes, wishes: Sequence[Wish], policy: Policy) -> float:
    """Return the missed part in percent of the wishes. All notebooks start without GPUs."""
    pods = [PodState(f"pod-{number}", asks={CPU: 1000}, created=float(number)) for number in range(len(wishes))]
    return 100 * (1 - at_once(_cluster(nodes), pods, wishes, list(nodes), policy) / len(wishes))


def _days() -> Iterator[tuple[str, Nodes, Sequence[Wish]]]:
    """Yield one GPU each on equal nodes, as many as there are; and a mix on mixed nodes, for four fifths of what is
    there.
    """
    names = [f"node-{number}" for number in range(4)]
    yield (
        _EQUAL,
        {name: (_gpus(name, 8, "H100"), _facts(64_000, 512 * 1024 * _MIB)) for name in names},
        [Wish(1000)] * 32,
    )
    mixed = _synthetic(60)
    chance, left = random.Random(0), 0.8 * _milli(mixed)
    kinds = [pod.requested.wish for pod in _notebooks() if pod.requested and pod.requested.milli]
    wishes: list[Wish] = []
    while left > 0:
        wishes.append(chance.choice(kinds))
        left -= wishes[-1].milli
    yield f"a mix on {len(mixed)} nodes", mixed, wishes


def measure(nodes: Nodes, pods: Sequence[PodState], policy: str, seed: int) -> SimulationResult:
    """Place pods drawn from ``pods`` by one policy, until they wished for more than there is."""
    rules = Policy(policy, PRESETS[policy], workload=workload_of(pods))
    return replay(_cluster(nodes), _stream(pods, _milli(nodes) * _INFLATION, seed), list(nodes), rules)


def _cluster(nodes: Nodes) -> ClusterSnapshot:
    snapshot = ClusterSnapshot()
    for name, (gpus, facts) in nodes.items():
        snapshot.put_node(name, gpus, facts)
    return snapshot


def _milli(nodes: Nodes) -> int:
    """Return the milli of all GPUs."""
    return MILLI_PER_GPU * sum(len(gpus) for gpus, _ in nodes.values())


def unallocated(outcome: SimulationResult) -> float:
    """Return the unallocated part in percent of all GPUs."""
    return 100 * (1 - outcome.part)


def _stream(pods: Sequence[PodState], wished: float, seed: int) -> Iterator[Job]:
    chance = random.Random(seed)
    total = number = 0
    while total < wished:
        pod = chance.choice(pods)
        total += pod.requested.milli if pod.requested else 0
        yield Job(replace(pod, uid=f"pod-{number}", created=float(number)))
        number += 1


def _gpus(node: str, count: int, model: str, memory: int = 80) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(f"{node}-{index}", index, model, memory * 1024 * _MIB, island=str(index // 4), switch=str(index // 2))
        for index in range(count)
    )


def _facts(cpu: int, memory: int) -> NodeFacts:
    return NodeFacts(allocatable={CPU: cpu, MEMORY: memory, SLOT: _SLOTS})


def _synthetic(count: int) -> Nodes:
    """Return large nodes, small ones and some of another model."""
    kinds = ((8, "H100", 96_000), (8, "A100", 64_000), (4, "A100", 32_000), (2, "T4", 16_000))
    found = {}
    for number in range(count):
        gpus, model, cpu = kinds[number % len(kinds)]
        found[f"node-{number}"] = (_gpus(f"node-{number}", gpus, model), _facts(cpu, 512 * 1024 * _MIB))
    return found


def _notebooks() -> list[PodState]:
    """Return a mix of notebooks: shares of a GPU, single ones, some larger, some bound to a model, some without."""
    wishes = [
        *[(Wish(0), 4000)] * 2,
        *[(Wish(milli), 2000) for milli in (100, 250, 250, 300, 500, 500, 500, 700)],
        *[(Wish(1000), 6000)] * 8,
        *[(Wish(1000, model=("A100",)), 6000)] * 2,
        *[(Wish(2000), 12000)] * 3,
        *[(Wish(4000), 24000), (Wish(8000), 64000)],
    ]
    return [PodState(str(n), requested=Requested(1, w), asks={CPU: cpu}) for n, (w, cpu) in enumerate(wishes)]


def read_nodes(file: Path) -> Nodes:
    """Read the nodes of a trace: sn, cpu_milli, memory_mib, gpu, model."""
    with file.open(newline="") as lines:
        return {
            row["sn"]: (
                tuple(Gpu(f"{row['sn']}-{n}", n, row["model"], 32 * 1024 * _MIB) for n in range(int(row["gpu"]))),
                _facts(int(row["cpu_milli"]), int(row["memory_mib"]) * _MIB),
            )
            for row in csv.DictReader(lines)
        }


def read_pods(file: Path) -> list[PodState]:
    """Read the pods of a trace: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec."""
    with file.open(newline="") as lines:
        return [
            PodState(
                row["name"],
                requested=Requested(1, _wish(int(row["num_gpu"]), int(row["gpu_milli"]), row["gpu_spec"])),
                slots=1 if int(row["num_gpu"]) else 0,
                asks={CPU: int(row["cpu_milli"]), MEMORY: int(row["memory_mib"]) * _MIB},
            )
            for row in csv.DictReader(lines)
        ]


def _wish(count: int, milli: int, models: str) -> Wish:
    amount = milli if count == 1 else 1000 * count
    return Wish(amount, model=tuple(models.split("|")) if models else ())


def _sample(nodes: Nodes, part: float) -> Nodes:
    """Return a regular sample of the nodes."""
    step = max(1, round(1 / part))
    return {name: nodes[name] for number, name in enumerate(nodes) if number % step == 0}


def main() -> int:
    """Replay a recorded trace and print the result of each policy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, metavar="DIR", help="has nodes.csv and the pods")
    parser.add_argument("--pods", default="pods_default.csv", metavar="FILE", help="in DIR")
    parser.add_argument("--policy", choices=sorted(PRESETS), action="append", help="default: all")
    parser.add_argument("--part", type=float, default=1.0, help="of the nodes, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    nodes = _sample(read_nodes(arguments.trace / "nodes.csv"), arguments.part)
    pods = read_pods(arguments.trace / arguments.pods)
    for policy in arguments.policy or sorted(PRESETS):
        began = time.monotonic()
        found = measure(nodes, pods, policy, arguments.seed)
        print(
            f"{policy}: {100 - unallocated(found):.2f} % of {found.capacity // 1000} GPUs allocated, "
            f"{100 * found.fragmented / found.capacity:.2f} % fragmented, {found.refused} of {len(found.arrived)} "
            f"pods refused ({time.monotonic() - began:.0f} s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
