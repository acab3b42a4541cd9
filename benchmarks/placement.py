"""How many GPUs stay unused because of where pods were placed: each policy on the same stream of new pods. And how many
notebooks that started without a wish can be served at once later, where they were placed.

`scripts/bench placement` uses a synthetic cluster. On a recorded one, in the form of Alibaba's openb trace (`nodes.csv`
and `pods_default.csv`), as others measure it: nodes with GPUs only, all pods in a random order, then random ones:

    python -m benchmarks.placement --trace DIR --pods pods_default.csv pods_cpu250.csv --seed 42 43 44 \
        --weight 0 1 --headroom 10 --worker none 100 1000

What came out is in `docs/designs/remote-gpus.md` ("CPU beside free GPUs").
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from benchmarks.lib import openb
from benchmarks.lib.openb import MIB, Nodes
from benchmarks.lib.simulated_cluster import Job, SimulationResult, at_once, replay
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.scoring.fragmentation import workload_of
from jupyter_gpu_scheduler.rules.scoring.policy import HEADROOM, PRESETS, Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, MEMORY

from .lib.figures import Figure

_COMMAND = "scripts/bench placement"
_GOAL = 10.0  # percent unallocated
_INFLATION = 1.3  # pods come until they wished for this much of all GPUs
_WORKER_MEMORY = 512 * MIB
_EQUAL = "32 notebooks on 4 equal nodes of 8 GPUs"


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
    return 100 * (1 - at_once(openb.cluster(nodes), pods, wishes, list(nodes), policy) / len(wishes))


def _days() -> Iterator[tuple[str, Nodes, Sequence[Wish]]]:
    """Yield one GPU each on equal nodes, as many as there are; and a mix on mixed nodes, for four fifths of what is
    there.
    """
    names = [f"node-{number}" for number in range(4)]
    yield (
        _EQUAL,
        {name: (_gpus(name, 8, "H100"), openb.facts(64_000, 512 * 1024 * MIB)) for name in names},
        [Wish(1000)] * 32,
    )
    mixed = _synthetic(60)
    chance, left = random.Random(0), 0.8 * openb.capacity(mixed)
    kinds = [pod.requested.wish for pod in _notebooks() if pod.requested and pod.requested.milli]
    wishes: list[Wish] = []
    while left > 0:
        wishes.append(chance.choice(kinds))
        left -= wishes[-1].milli
    yield f"a mix on {len(mixed)} nodes", mixed, wishes


def measure(nodes: Nodes, pods: Sequence[PodState], policy: str, seed: int) -> SimulationResult:
    """Place pods drawn from ``pods`` by one policy, until they wished for more than there is."""
    rules = Policy(policy, PRESETS[policy], workload=workload_of(pods))
    stream = openb.drawn(pods, openb.capacity(nodes) * _INFLATION, seed)
    return replay(openb.cluster(nodes), map(Job, stream), list(nodes), rules)


def unallocated(outcome: SimulationResult) -> float:
    """Return the unallocated part in percent of all GPUs."""
    return 100 * (1 - outcome.part)


def _gpus(node: str, count: int, model: str, memory: int = 80) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(f"{node}-{index}", index, model, memory * 1024 * MIB, island=str(index // 4), switch=str(index // 2))
        for index in range(count)
    )


def _synthetic(count: int) -> Nodes:
    """Return large nodes, small ones and some of another model."""
    kinds = ((8, "H100", 96_000), (8, "A100", 64_000), (4, "A100", 32_000), (2, "T4", 16_000))
    found = {}
    for number in range(count):
        gpus, model, cpu = kinds[number % len(kinds)]
        found[f"node-{number}"] = (_gpus(f"node-{number}", gpus, model), openb.facts(cpu, 512 * 1024 * MIB))
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


def _recorded(nodes: Nodes, pods: Sequence[PodState], policy: Policy, seed: int, worker: int | None) -> str:
    """Place the pods of a trace; ``worker``: milli of CPU of a worker pod, ``None`` where no pod may have one."""
    began = time.monotonic()
    stream = openb.shuffled(pods, openb.capacity(nodes) * _INFLATION, seed)
    pairs = None if worker is None else PairPolicy(policy, worker={CPU: worker, MEMORY: _WORKER_MEMORY})
    found = replay(openb.cluster(nodes), map(Job, stream), list(nodes), policy, pairs)
    return (
        f"{100 * found.part_when(1.0):.2f} % of {found.capacity // 1000} GPUs allocated when 100 % were wished, "
        f"{100 * found.part:.2f} % at {100 * _INFLATION:.0f} %; {found.refused} of {len(found.arrived)} pods refused, "
        f"{found.remote} have GPUs of another node ({time.monotonic() - began:.0f} s)"
    )


def main() -> int:
    """Replay a recorded trace and print a line for each combination of settings."""
    arguments = _arguments()
    nodes = openb.read_nodes(arguments.trace / "nodes.csv")
    nodes = openb.sample(nodes if arguments.all_nodes else openb.with_gpus(nodes), arguments.part)
    nodes = openb.endless(nodes) if arguments.bound else nodes
    for file in arguments.pods or ["pods_default.csv"]:
        pods = openb.read_pods(arguments.trace / file)
        mix = workload_of(pods)
        settings = product(arguments.policy, arguments.weight, arguments.headroom, arguments.worker, arguments.seed)
        for name, weight, cores, worker, seed in settings:
            weights = {**PRESETS[name], **({} if weight is None else {"cpu_headroom": weight})}
            policy = Policy(name, weights, workload=mix, headroom=round(cores * 1000))
            head = f"weight {weights.get('cpu_headroom', 0):g}, {cores:g} cores"
            pairs = "no pairs" if worker is None else f"workers of {worker} milli"
            line = _recorded(nodes, pods, policy, seed, worker)
            print(f"{file}, {name}, {head}, {pairs}, seed {seed}: {line}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__.splitlines()[0])
    trace = os.environ.get("JUPYTER_GPU_OPENB")
    parser.add_argument(
        "--trace", type=Path, required=not trace, default=trace and Path(trace), metavar="DIR",
        help="has nodes.csv and the pods; default: JUPYTER_GPU_OPENB",
    )  # fmt: skip
    parser.add_argument("--pods", nargs="+", metavar="FILE", help="in DIR; default: pods_default.csv")
    parser.add_argument("--policy", nargs="+", choices=sorted(PRESETS), default=["fgd"])
    parser.add_argument(
        "--weight", nargs="+", type=float, default=[None], help="of cpu_headroom; default: the policy's"
    )
    parser.add_argument("--headroom", nargs="+", type=float, default=[HEADROOM / 1000], help="cores for each free GPU")
    parser.add_argument(
        "--worker", nargs="+", type=_worker, default=[None], metavar="MILLI",
        help="CPU of a worker pod, which serves GPUs of another node; none: no such pods (default)",
    )  # fmt: skip
    parser.add_argument("--seed", nargs="+", type=int, default=[42])
    parser.add_argument("--part", type=float, default=1.0, help="of the nodes, 0 to 1")
    parser.add_argument("--all-nodes", action="store_true", help="also those without GPUs")
    parser.add_argument("--bound", action="store_true", help="endless CPU and memory on each node")
    return parser.parse_args()


def _worker(text: str) -> int | None:
    return None if text == "none" else int(text)


if __name__ == "__main__":
    sys.exit(main())
