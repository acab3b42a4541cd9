"""Requests of running pods that another node serves, in turn with requests that their own nodes decide alone.

Every tenth node is full: one of its pods has all GPUs, and the others, which have none, ask for some. What is kept of
other nodes is out of date by what both kinds of requests changed, as in a cluster where each second request needs
another node.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import process_time
from typing import Any

from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu_scheduler.rules.pairs.choose import Pair, PairChooser
from jupyter_gpu_scheduler.rules.pairs.split import Splitter, Worker, on_own_node
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.pairs.workers import promise
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .busy_cluster import PODS, any_wish, build, place, running_pod, step, uid_of, with_wish
from .gpus import inventory

KINDS = (Wish(1000), Wish(500), Wish(2000), Wish(4000, topology="island"))
_FULL = 10  # one node of so many
_ALL = Wish(8000)
_MOST = 8  # workers of a notebook
_UNMEASURED = 40  # rounds: each kind is new at first


@dataclass
class Times:
    """Seconds of the CPU."""

    plain: list[float] = field(default_factory=list)
    """Seconds of each request that its own node decides: put into the snapshot, decided, recorded."""
    whole: list[float] = field(default_factory=list)
    """Seconds of each that another node serves: the same, and divided among nodes, with the promise of the worker."""
    choice: list[float] = field(default_factory=list)
    """Seconds of these that the choice of the other node took."""

    @property
    def chosen(self) -> float:
        """One request and the choice of another node, in times of one request."""
        return 1 + median(self.choice) / median(self.plain)

    @property
    def decided(self) -> float:
        """All of a decision that another node serves, in times of one request."""
        return median(self.whole) / median(self.plain)


def measure(nodes: int, kinds: Sequence[Wish], rounds: int) -> Times:
    """Measure ``rounds`` requests of each sort on labelled switches; ``kinds``: the wishes, in turn."""
    bench, times = _Bench(nodes), Times()
    for number in range(_UNMEASURED + rounds):
        plain, elsewhere = bench.plain(), bench.elsewhere(kinds[number % len(kinds)])
        if number >= _UNMEASURED:
            times.plain.append(plain)
            times.whole.append(elsewhere)
            times.choice.append(bench.chooser.seconds)
    return times


class _TimedChooser(PairChooser):
    """One that says how long the last choice took."""

    seconds = 0.0

    def for_running(self, *arguments: Any) -> Pair | None:
        begun = process_time()
        found = super().for_running(*arguments)
        self.seconds = process_time() - begun
        return found


class _Bench:
    """The cluster, in which each request leaves what it changed."""

    def __init__(self, nodes: int) -> None:
        self._chance = random.Random(nodes)
        names = [f"node-{number}" for number in range(nodes)]
        numbers = range(nodes * PODS)
        self.snapshot = build(
            {name: inventory(number) for number, name in enumerate(names)},
            [self._pod(number, nodes) for number in numbers],
        )
        place(self.snapshot, names, switches=True)
        for name in names:
            step(self.snapshot, name)
        full = [uid_of(number) for number in numbers if number >= nodes and not number % nodes % _FULL]
        self._chance.shuffle(full)
        self._askers = iter(full)
        self._others = [uid_of(number) for number in numbers if number % nodes % _FULL]
        self._rules = PairPolicy()
        self._splitter = Splitter(self.snapshot, self._rules, _MOST)
        self.chooser = self._splitter.chooser = _TimedChooser(self.snapshot, self._rules)

    def _pod(self, number: int, nodes: int) -> PodState:
        found = running_pod(self._chance, number, nodes)
        if number % nodes % _FULL:
            return found
        return replace(found, requested=Requested(1, _ALL if number < nodes else Wish(0)), limit=None)

    def plain(self) -> float:
        """Return the seconds of one request that its own node decides."""
        pod = self.snapshot.pod(self._chance.choice(self._others))
        assert pod
        changed = with_wish(pod, any_wish(self._chance))
        begun = process_time()
        self.snapshot.put_pod(changed)
        step(self.snapshot, pod.node)
        return process_time() - begun

    def elsewhere(self, wish: Wish) -> float:
        """Return the seconds of one request that another node serves; the start of the worker there does not count."""
        pod = self.snapshot.pod(next(self._askers))
        assert pod
        asked = with_wish(pod, wish)
        begun = process_time()
        workers = self._divided(asked, wish)
        step(self.snapshot, pod.node)
        took = process_time() - begun
        assert sum(worker.part.milli for worker in workers) == wish.milli
        for worker in workers:
            self.snapshot.remove_pod(worker.pod.uid)
            self.snapshot.put_pod(replace(worker.pod, node=worker.part.node, allocated=Allocated(0)))
            step(self.snapshot, worker.part.node)
        return took

    def _divided(self, asked: PodState, wish: Wish) -> list[Worker]:
        """Put a pod and its promised workers into the snapshot until its division rests, as the scheduler does."""
        assert asked.requested
        workers: list[Worker] = []
        last = False
        while True:
            here = on_own_node(self.snapshot, asked, [worker.part for worker in workers], anywhere=True)
            self.snapshot.put_pod(here)
            for worker in workers:
                self.snapshot.put_pod(worker.pod)
            if last:
                return workers
            parts, last = self._splitter.next_parts(here, wish, workers)
            last = last or parts == tuple(worker.part for worker in workers)
            workers = [Worker(part, promise(here, asked.requested, part, self._rules.worker)) for part in parts]
