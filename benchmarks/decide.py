"""The time to decide one resize, to filter and rate one new pod, and to choose a pair of nodes for either.

In synthetic clusters of 100, 1,000 and 5,000 nodes with 8 GPUs each.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.places import places, rate
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, ClusterSnapshot

from .lib.busy_cluster import PODS, RACK, any_wish, build, place, running_pod, step
from .lib.figures import Figure, percentile
from .lib.gpus import inventory
from .lib.served_elsewhere import KINDS, measure

_GOALS = {100: 1.0, 1_000: 5.0, 5_000: 25.0}  # nodes: milliseconds
_REQUESTS = 2_000
_REBUILDS = 7  # of the whole snapshot: slow where the cluster is large
_NEW = 200  # new pods; the first of each kind are not counted, as their wish is new
_KINDS = (Wish(0), Wish(500), Wish(1000), Wish(2000), Wish(4000, topology="island"))
_ANEW = 40  # one pair in so many is also chosen with nothing known
_ELSEWHERE = 300  # requests that another node serves
_COMMAND = "scripts/bench decide"
_WORDS = ("no GPU", "half a GPU", "one GPU", "two GPUs", "an island of four")  # of the kinds
_TIMES = 1.5
"""Times of a decision that GPUs of other nodes may take."""


def run() -> Sequence[Figure]:
    """Measure milliseconds from a changed wish to the recorded decisions; the baseline builds the snapshot anew."""
    return [figure for nodes, goal in _GOALS.items() for figure in _measure(nodes, goal)]


def _measure(nodes: int, goal: float) -> list[Figure]:
    chance = random.Random(nodes)
    inventories = {f"node-{number}": inventory(number) for number in range(nodes)}
    snapshot = build(inventories, [running_pod(chance, number, nodes) for number in range(nodes * PODS)])
    for name in inventories:  # every pod is served or queued before anything is measured
        step(snapshot, name)
    samples = [_request(chance, snapshot, nodes) for _ in range(_REQUESTS)]
    pods = [pod for name in inventories for pod in snapshot.pods(name)]
    baseline = [_rebuild(inventories, pods, f"node-{chance.randrange(nodes)}") for _ in range(_REBUILDS)]
    resize = Figure.of(
        f"decide: one request, {nodes:,} nodes with {nodes * PODS:,} pods",
        "ms",
        samples,
        _COMMAND,
        goal=goal,
        baseline=baseline,
    )
    first, again, anywhere, kinds = _new_pods(chance, snapshot, list(inventories))
    new = Figure.of(
        f"filter and prioritize: one new pod, {nodes:,} nodes", "ms", again, _COMMAND, goal=goal, baseline=first
    )
    apart = Figure.of(
        f"the same with GPUs of any node, {nodes:,} nodes",
        "ms",
        anywhere,
        _COMMAND,
        goal=goal,
        baseline=again,
    )
    by_kind = _by_kind(f"{nodes:,} nodes", nodes, kinds)
    if nodes == max(_GOALS):
        *_, kinds = _new_pods(chance, snapshot, list(inventories), switches=True)
        by_kind += _by_kind(f"{nodes:,} nodes on {-(-nodes // RACK)} switches", nodes, kinds)
        by_kind += _elsewhere(nodes)
    return [resize, new, apart, *by_kind, *_pairs(chance, snapshot, list(inventories))]


def _elsewhere(nodes: int) -> list[Figure]:
    """Return how many times of one request's time of the CPU one takes that another node serves."""
    found: list[Figure] = []
    for words, kinds in (("one kind of wish", KINDS[:1]), (f"{len(KINDS)} kinds of wishes in turn", KINDS)):
        times = measure(nodes, kinds, _ELSEWHERE)
        where = f"{words}, {nodes:,} nodes on {-(-nodes // RACK)} switches, against one request"
        for what, value in (
            ("with the choice of another node", times.chosen),
            ("served by another node", times.decided),
        ):
            name = f"decide: one request {what}, {where}"
            found.append(Figure(name, "times of the CPU", value, _COMMAND, goal=_TIMES))
    return found


def _by_kind(what: str, nodes: int, kinds: Sequence[tuple[list[float], list[float]]]) -> list[Figure]:
    """Return how many times of the CPU's time pairs take, by kind of wish."""
    return [
        Figure(
            f"pairs: {words} with GPUs of any node, {what}, against the same without",
            "times of the CPU",
            percentile(remote, 50) / percentile(without, 50),
            _COMMAND,
            goal=_TIMES if nodes == max(_GOALS) else None,
        )
        for words, (without, remote) in zip(_WORDS, kinds, strict=True)
    ]


def _request(chance: random.Random, snapshot: ClusterSnapshot, nodes: int) -> float:
    """Return the milliseconds of one wish: put it, decide for its node, record the decisions."""
    pod = snapshot.pod(f"pod-{chance.randrange(nodes * PODS):05}")
    assert pod is not None
    assert pod.requested is not None
    changed = replace(pod, requested=Requested(pod.requested.generation + 1, any_wish(chance)))
    began = time.perf_counter()
    snapshot.put_pod(changed)
    step(snapshot, pod.node)
    return (time.perf_counter() - began) * 1000


def _new_pods(
    chance: random.Random, snapshot: ClusterSnapshot, names: Sequence[str], *, switches: bool = False
) -> tuple[list[float], list[float], list[float], list[tuple[list[float], list[float]]]]:
    """Return the milliseconds of filter and prioritize, for wishes that are new, for those asked before, and for pairs.

    Last, the seconds of the CPU by kind of wish, without and with pairs.

    Each pod is bound to its best node, so what was computed for that node is void for the next. Pods that may have GPUs
    of any node are asked for in turn with those that may not. ``switches``: nodes have labels that name theirs.
    """
    policy, rules = Policy(), PairPolicy()
    chooser = PairChooser(snapshot, rules)
    place(snapshot, names, switches=switches)
    first: list[float] = []
    again: list[float] = []
    anywhere: list[float] = []
    kinds: list[tuple[list[float], list[float]]] = [([], []) for _ in _KINDS]
    for number in range(2 * _NEW):
        wish, apart = _KINDS[number // 2 % len(_KINDS)], bool(number % 2)
        pod = PodState(
            f"new-{switches:d}-{number}", requested=Requested(1, wish), asks={CPU: 1000}, created=chance.random()
        )
        pod = replace(pod, anywhere=apart)
        began, began_cpu = time.perf_counter(), time.process_time()
        if apart:
            fitting = places(snapshot, chooser, pod, names).fitting
            scores = rate(snapshot, chooser, pod, fitting, policy)
        else:
            fitting = filter_nodes(snapshot, pod, names).fitting
            scores = prioritize(snapshot, pod, fitting, policy)
        took, took_cpu = (time.perf_counter() - began) * 1000, time.process_time() - began_cpu
        if number >= 2 * len(_KINDS):
            kinds[number // 2 % len(_KINDS)][apart].append(took_cpu)
            (anywhere if apart else again).append(took)
        elif not apart:
            first.append(took)
        if fitting:
            _, best = max((score, name) for name, score in scores.items())
            granted = allocate(snapshot, pod, best)
            if not isinstance(granted, Allocated):  # another node gives the GPUs
                continue
            snapshot.put_pod(replace(pod, node=best, allocated=granted, attached=Attached(1, granted.shares)))
    return first, again, anywhere, kinds


def _pairs(chance: random.Random, snapshot: ClusterSnapshot, names: Sequence[str]) -> list[Figure]:
    """Measure the choice of a pair after one change; the baseline examines all nodes anew."""
    rules = PairPolicy()
    place(snapshot, names, switches=True)
    chooser = PairChooser(snapshot, rules)
    running: list[float] = []
    new: list[float] = []
    anew: list[float] = []
    for number in range(_NEW):
        wish = _KINDS[1 + number % (len(_KINDS) - 1)]
        pod = PodState(f"pair-{number}", requested=Requested(1, wish), asks={CPU: 1000}, created=chance.random())
        fixed = replace(pod, node=chance.choice(names))
        if not number % _ANEW:
            fresh = PairChooser(snapshot, PairPolicy())
            began = time.perf_counter()
            fresh.for_running(fixed, wish)
            anew.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        chooser.for_running(fixed, wish)
        middle = time.perf_counter()
        pair = chooser.for_new(pod, names)
        if number >= len(_KINDS):
            running.append((middle - began) * 1000)
            new.append((time.perf_counter() - middle) * 1000)
        if pair and pair.gpu_node == pair.pod_node:
            granted = allocate(snapshot, pod, pair.pod_node)
            assert isinstance(granted, Allocated)
            snapshot.put_pod(replace(pod, node=pair.pod_node, allocated=granted, attached=Attached(1, granted.shares)))
    nodes = f"{len(names):,} nodes"
    return [
        Figure.of(f"pair: other node for a running pod, {nodes}", "ms", running, _COMMAND, baseline=anew),
        Figure.of(f"pair: both nodes for one new pod, {nodes}", "ms", new, _COMMAND),
    ]


def _rebuild(inventories: dict[str, tuple[Gpu, ...]], pods: Sequence[PodState], node: str) -> float:
    """Return the milliseconds of the same with nothing kept between two requests."""
    began = time.perf_counter()
    step(build(inventories, pods), node)
    return (time.perf_counter() - began) * 1000
